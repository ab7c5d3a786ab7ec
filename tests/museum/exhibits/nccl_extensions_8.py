"""nccl-extensions#8: readers give a stage back by an mbarrier, and the next bulk load may pass their reads.

Thread 0 of warp 0 loads pieces in bulk into one stage, warp 1 reads each and arrives at the mbarrier that gives the
stage back. An arrival orders generic accesses, and the load is none: each reader has to fence before it arrives.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/nccl-extensions#8",
    defect="no fence.proxy.async between reading a stage and giving it back by an mbarrier",
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
    bra READ if %lane ge 32;
    @%p1 bra END;
LOAD:
    // The stage is free at first, then whenever its readers have arrived.
    add.u32 %r2, %r1, 1;
    and.b32 %r2, %r2, 1;
    phase %r12, %r2;
    bulk load %r10 = pieces[%r1], %r11;
    bra LOAD if ++%r1 lt 3;
    bra END;
READ:
    and.b32 %r2, %r1, 1;
    phase %r11, %r2;
    and.b32 %r3, %lane, 31;
    mad.lo.u32 %r4, %r3, 4, %r10;
    ld.shared.u32 %r5, [%r4];
+   fence.proxy.async.shared::cta;
    mbarrier.arrive.shared.b64 _, [%r12];
    mad.lo.u32 %r6, %r1, 32, %r3;
    out[%r6] = %r5;
    bra READ if ++%r1 lt 3;
END:
""",
)
