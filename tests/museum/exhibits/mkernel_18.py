"""mKernel#18: a shared tile is filled again while the bulk store of what it held before still reads it.

One of two stages holds a task's result, too, until it was stored. The wait for that store stands before the second
piece of the next task: there this stage is filled if tasks have an even number of pieces. These have three, so that
the first piece of a second task goes there.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="uccl-project/mKernel#18",
    defect="a stage is loaded before its store was waited for, if tasks have an odd number of pieces",
    buffers={"pieces": list(range(192)), "out": [0] * 64},
    expected=lambda rank: [sum(range(first + lane, first + 96, 32)) for first in (0, 96) for lane in range(32)],
    ranks=1,
    ways=("races",),
    before=".shared .align 128 .b8 stages[256];\n.shared .align 8 .b64 full[2];",
    body="""
    mov.u32 %r10, stages; mov.u32 %r11, full; mov.u32 %r1, 0; mov.u32 %r2, 0;
    map %d1 = out;
    setp.ne.u32 %p1, %lane, 0;
    @!%p1 mbarrier.init.shared.b64 [%r11], 1; @!%p1 mbarrier.init.shared.b64 [%r11+8], 1;
    @!%p1 fence.mbarrier_init.release.cluster;
    bar.warp.sync -1;
TASK:
    mov.u32 %r3, 0; mov.u32 %r4, 0;
PIECE:
    and.b32 %r5, %r1, 1;
    mad.lo.u32 %r6, %r5, 128, %r10; mad.lo.u32 %r7, %r5, 8, %r11;
    @%p1 bra LOADED;
-   bra FREE if %r3 ne 1;
+   bra FREE if %r3 ne 0;
    cp.async.bulk.wait_group.read 0;
FREE:
    bulk load %r6 = pieces[%r1], %r7;
LOADED:
    shr.u32 %r5, %r1, 1; and.b32 %r5, %r5, 1;
    phase %r7, %r5;
    mad.lo.u32 %r6, %lane, 4, %r6;
    ld.shared.u32 %r8, [%r6]; add.u32 %r4, %r4, %r8;
    fence.proxy.async.shared::cta; bar.warp.sync -1;
    add.u32 %r1, %r1, 1;
    bra PIECE if ++%r3 lt 3;
    mad.lo.u32 %r6, %lane, 4, %r10;
    st.shared.u32 [%r6+128], %r4;
    fence.proxy.async.shared::cta; bar.warp.sync -1;
    @%p1 bra STORED;
    add.u32 %r6, %r10, 128; mul.lo.u32 %r9, %r2, 32;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d1, {%r9}], [%r6];
    cp.async.bulk.commit_group;
STORED:
    bra TASK if ++%r2 lt 2;
    cp.async.bulk.wait_group 0;
""",
)
