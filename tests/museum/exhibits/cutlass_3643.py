"""cutlass#3643: the leader of two blocks reads what the other has, behind an arrival of block scope and no wait.

A block has one part of its scales by stores and the other by a bulk copy, and arrives at the leader's mbarrier. The
arrival releases at .cta scope, which the leader is outside of; and the copy, which counts on the block's own mbarrier,
is not waited for until then.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/cutlass#3643",
    defect="an arrival at another block's mbarrier is of .cta scope, and a copy is not waited for",
    buffers={"scales": list(range(100, 132)), "out": [0] * 64},
    expected=lambda rank: [*range(32, 64), *range(100, 132)],
    ranks=1,
    grid=2,
    cluster=2,
    ways=("races",),
    before=".shared .align 128 .b8 parts[256];\n.shared .align 8 .b64 full;\n.shared .align 8 .b64 ready;",
    body="""
    mov.u32 %r10, parts; mov.u32 %r12, full; mov.u32 %r13, ready; mov.u32 %r1, 0;
    mad.lo.u32 %r11, %r0, 4, %r10;
    st.shared.u32 [%r11], 0; st.shared.u32 [%r11+128], 0;
    fence.proxy.async.shared::cta;
    bra BEGIN if %r0 ne 0;
    mbarrier.init.shared.b64 [%r12], 1; mbarrier.init.shared.b64 [%r13], 32;
    fence.mbarrier_init.release.cluster;
BEGIN:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    bra LEADER if %block eq 0;
    st.shared.u32 [%r11], %lane;
    bra LOADED if %r0 ne 0;
    add.u32 %r2, %r10, 128;
    bulk load %r2 = scales[%r1], %r12;
LOADED:
+   phase %r12, %r1;
    mapa.shared::cluster.u32 %r3, %r13, 0;
-   mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r3];
+   mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
-   phase %r12, %r1;
    bra END;
LEADER:
    mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p1, [%r13], 0;
    @!%p1 bra LEADER;
    mapa.shared::cluster.u32 %r3, %r11, 1;
    ld.shared::cluster.u32 %r4, [%r3]; ld.shared::cluster.u32 %r5, [%r3+128];
    out[lane] = %r4;
    add.u32 %r6, %lane, 32;
    out[%r6] = %r5;
END:
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
""",
)
