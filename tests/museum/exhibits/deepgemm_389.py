"""DeepGEMM#389: a warp reads two stages in turn, and loads into the one that it has read without a fence.

Lane 0 loads a piece in bulk while the warp reads the one before. bar.warp.sync orders the lanes' reads before its next
load into the same stage, but only in the generic proxy.
"""

from tests.museum.exhibit import Exhibit

LOAD = """
    bra LOADED{label} if %lane ne 0;
    bulk load %r{stage} = pieces[%r{piece}], %r{barrier};
LOADED{label}:
"""

EXHIBIT = Exhibit(
    thread="deepseek-ai/DeepGEMM#389",
    defect="no fence.proxy.async between reading one of two stages and loading into it again",
    buffers={"pieces": list(range(128)), "out": [0] * 32},
    expected=lambda rank: [sum(range(lane, 128, 32)) for lane in range(32)],
    ranks=1,
    ways=("races",),
    before=".shared .align 128 .b8 stages[256];\n.shared .align 8 .b64 full[2];",
    body="""
    mov.u32 %r10, stages;
    mov.u32 %r11, full;
    bra READY if %lane ne 0;
    mbarrier.init.shared.b64 [%r11], 1;
    mbarrier.init.shared.b64 [%r11+8], 1;
    fence.mbarrier_init.release.cluster;
READY:
    bar.warp.sync -1;
    mov.u32 %r1, 0;
    mov.u32 %r2, 0;
"""
    + LOAD.format(label="FIRST", barrier=11, piece=1, stage=10)
    + """
NEXT:
    // The piece after this one, into the other stage.
    add.u32 %r3, %r1, 1;
    and.b32 %r4, %r3, 1;
    mad.lo.u32 %r5, %r4, 8, %r11;
    mad.lo.u32 %r6, %r4, 128, %r10;
    bra LOADEDNEXT if %r3 ge 4;
"""
    + LOAD.format(label="NEXT", barrier=5, piece=3, stage=6)
    + """
    and.b32 %r4, %r1, 1;
    mad.lo.u32 %r5, %r4, 8, %r11;
    mad.lo.u32 %r6, %r4, 128, %r10;
    shr.u32 %r7, %r1, 1;
    phase %r5, %r7;
    mad.lo.u32 %r6, %lane, 4, %r6;
    ld.shared.u32 %r8, [%r6];
    add.u32 %r2, %r2, %r8;
+   fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    bra NEXT if ++%r1 lt 4;
    out[lane] = %r2;
""",
)
