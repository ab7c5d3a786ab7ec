"""DeepEP#642: a bulk copy into a buffer of shared memory is not kept behind the reads of what was there.

A block copies one tile after another into the same shared buffer, through the asynchronous proxy, and reads each by
ordinary loads. The threads meet at bar.sync before the next copy is issued; but a barrier orders generic accesses, and
the copy is none: without fence.proxy.async it may overwrite the tile before the loads have read it.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="deepseek-ai/DeepEP#642",
    defect="no fence.proxy.async between reading a shared tile and the next bulk copy into it",
    buffers={"tiles": list(range(96)), "out": [0] * 96},
    expected=lambda rank: list(range(96)),
    ranks=1,
    ways=("races",),
    before=".shared .align 128 .b8 tile[128];\n.shared .align 8 .b64 ready;",
    body="""
    mov.u32 %r10, tile;
    mov.u32 %r11, ready;
    mov.u32 %r1, 0;
    mul.lo.u32 %r12, %lane, 4;
    setp.ne.u32 %p1, %lane, 0;
    @!%p1 mbarrier.init.shared.b64 [%r11], 1;
    @!%p1 fence.proxy.async;
    bar.sync 0;
NEXT:
    @%p1 bra ISSUED;
    bulk load %r10 = tiles[%r1], %r11;
ISSUED:
    and.b32 %r2, %r1, 1;
    phase %r11, %r2;
    add.u32 %r3, %r10, %r12;
    ld.shared.u32 %r4, [%r3];
    mad.lo.u32 %r5, %r1, 32, %lane;
    out[%r5] = %r4;
+   fence.proxy.async;
    bar.sync 0;
    bra NEXT if ++%r1 lt 3;
""",
)
