"""nccl-tests commit 081ea64: the barrier at the entry of eight kernels was relaxed.

An earlier kernel has written each rank's input. The collective begins with a barrier of all ranks, so that the inputs
are there, and then reads its peer's. With `.relaxed` on both sides the barrier only says that the peer's kernel has
begun: nothing makes its input visible. The commit changes the barrier's order to acquire; in the PTX model the arrival
has to release as well, and so it does here.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    name="nccl-tests@081ea64",
    thread="NVIDIA/nccl-tests@081ea64",
    defect="the barrier at entry is relaxed",
    parameters=("u64 input", "u64 peer_input", "u64 flag", "u64 peer_flag", "u64 out", "u32 rank", "u32 launch"),
    buffers={"input": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    host=launches(2),
    ways=("races", "weak"),
    body="""
    setp.eq.u32 %p1, %launch, 1;
    @%p1 bra COLLECTIVE;
    mad.lo.u64 %d1, %lane64, 4, %input;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.global.u32 [%d1], %r1;
    ret;
COLLECTIVE:
    setp.ne.u32 %p2, %lane, 0;
    @%p2 bra READY;
-   red.relaxed.sys.global.add.u32 [%peer_flag], 1;
+   red.release.sys.global.add.u32 [%peer_flag], 1;
WAIT:
-   ld.relaxed.sys.global.u32 %r2, [%flag];
+   ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra WAIT;
READY:
    bar.sync 0;
    mad.lo.u64 %d2, %lane64, 4, %peer_input;
    ld.global.u32 %r3, [%d2];
    mad.lo.u64 %d3, %lane64, 4, %out;
    st.global.u32 [%d3], %r3;
""",
)
