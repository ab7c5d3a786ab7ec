"""humming#53: of two blocks the first copies to both, again as soon as it has read the former tile itself.

The thread has it that the second block had not armed its mbarrier yet. PTX takes bytes that come before they are
expected; what its successor, 56, mends is that the second block may still read the shared memory that is filled.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="inclusionAI/humming#53",
    defect="a copy to two blocks does not wait until both have read the tile before it",
    buffers={"tiles": list(range(96)), "out": [0] * 192},
    expected=lambda rank: [*range(96), *range(96)],
    ranks=1,
    grid=2,
    cluster=2,
    ways=("random", "races"),
    before=".shared .align 128 .b8 tile[128];\n.shared .align 8 .b64 full;\n.shared .align 8 .b64 empty;",
    body="""
    mov.u32 %r10, tile; mov.u32 %r12, full; mov.u32 %r13, empty; mov.u32 %r1, 0; mov.u16 %h1, 3;
    mad.lo.u32 %r11, %r0, 4, %r10;
    mapa.shared::cluster.u32 %r14, %r13, 0;
    map %d1 = tiles;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra BEGIN;
    mbarrier.init.shared.b64 [%r12], 1; mbarrier.init.shared.b64 [%r13], 64;
    fence.mbarrier_init.release.cluster;
BEGIN:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
NEXT:
    @%p1 bra READ;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r12], 128;
    bra READ if %block ne 0;
+   add.u32 %r2, %r1, 1; and.b32 %r2, %r2, 1;
+FREE:
+   mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r13], %r2;
+   @!%p2 bra FREE;
    fence.proxy.async;
    mul.lo.u32 %r3, %r1, 32;
    cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [%r10], [%d1, {%r3}], [%r12], %h1;
READ:
    and.b32 %r2, %r1, 1;
    phase %r12, %r2;
    ld.shared.u32 %r4, [%r11]; mad.lo.u32 %r5, %block, 3, %r1; mad.lo.u32 %r5, %r5, 32, %r0;
    out[%r5] = %r4;
    fence.proxy.async;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];
    bar.sync 0;
    bra NEXT if ++%r1 lt 3;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
)
