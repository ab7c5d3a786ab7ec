"""A stage is loaded again while the wgmma that takes it as its matrix A is under way.

Three products add up in the same registers, which need no wait between them. The stage does: bar.sync says that all
threads have issued the wgmma, and not that it has read shared memory.
"""

from tests.museum.exhibit import Exhibit
from tests.museum.exhibits.wgmma_no_fence import ONES

EXHIBIT = Exhibit(
    title="wgmma, stage loaded too early",
    defect="a shared stage is loaded again before wgmma.wait_group",
    buffers={"pieces": [0x3C003C00] * 512 + [0x40004000] * 512 + [0x44004400] * 512, "out": [0] * 128},
    expected=lambda rank: [16 * (1 + 2 + 4)] * 128,
    ranks=1,
    block=128,
    ways=("races",),
    before=".shared .align 128 .b8 matrices[2304];\n.shared .align 8 .b64 full;",
    body=ONES
    + """
    mov.u32 %r12, full; mov.u32 %r2, 0;
    setp.ne.u32 %p2, %lane, 0;
    @!%p2 mbarrier.init.shared.b64 [%r12], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    zero accumulators;
NEXT:
    @%p2 bra LOADED;
    mul.wide.u32 %d1, %r2, 2048; add.u64 %d1, %d1, %pieces;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r12], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d1], 2048, [%r12];
LOADED:
    and.b32 %r3, %r2, 1;
    phase %r12, %r3;
    wgmma %r10;
+   wgmma.wait_group.sync.aligned 0;
    bar.sync 0;
    bra NEXT if ++%r2 lt 3;
    wgmma.wait_group.sync.aligned 0;
    cvt.rzi.u32.f32 %r4, %r24;
    out[lane] = %r4;
""",
)
