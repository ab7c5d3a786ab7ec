"""nccl-extensions#8: readers give a stage back by an mbarrier, and the next bulk load may pass their reads.

Thread 0 of warp 0 loads pieces in bulk into one stage, warp 1 reads each and arrives at the mbarrier that gives the
stage back. An arrival orders generic accesses, and the load is none: each reader has to fence before it arrives.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="nccl-extensions#8",
    thread="NVIDIA/nccl-extensions#8",
    defect="no fence.proxy.async between reading a stage and giving it back by an mbarrier",
    parameters=("u64 pieces", "u64 out"),
    buffers={"pieces": list(range(96)), "out": [0] * 96},
    expected=lambda rank: list(range(96)),
    ranks=1,
    block=64,
    ways=("races",),
    before=".shared .align 128 .b8 stage[128];\n.shared .align 8 .b64 full;\n.shared .align 8 .b64 empty;",
    body="""
    mov.u32 %r10, stage;
    mov.u32 %r11, full;
    mov.u32 %r12, empty;
    mov.u32 %r1, 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [%r11], 1;
    mbarrier.init.shared.b64 [%r12], 32;
    fence.mbarrier_init.release.cluster;
READY:
    bar.sync 0;
    setp.ge.u32 %p2, %lane, 32;
    @%p2 bra READ;
    @%p1 bra END;
LOAD:
    // The stage is free at first, then whenever its readers have arrived.
    add.u32 %r2, %r1, 1;
    and.b32 %r2, %r2, 1;
FREE:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r12], %r2;
    @!%p3 bra FREE;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
    mad.wide.u32 %d1, %r1, 128, %pieces;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d1], 128, [%r11];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p4, %r1, 3;
    @%p4 bra LOAD;
    bra END;
READ:
    and.b32 %r2, %r1, 1;
FULL:
    mbarrier.try_wait.parity.shared.b64 %p3, [%r11], %r2;
    @!%p3 bra FULL;
    and.b32 %r3, %lane, 31;
    mad.lo.u32 %r4, %r3, 4, %r10;
    ld.shared.u32 %r5, [%r4];
+   fence.proxy.async.shared::cta;
    mbarrier.arrive.shared.b64 _, [%r12];
    mad.lo.u32 %r6, %r1, 32, %r3;
    mad.wide.u32 %d2, %r6, 4, %out;
    st.global.u32 [%d2], %r5;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p4, %r1, 3;
    @%p4 bra READ;
END:
""",
)
