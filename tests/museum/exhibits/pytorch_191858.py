"""pytorch#191858: the barrier of one backend of symmetric memory returns at once.

A caller pushes into its peer's memory, calls the barrier, and reads what its peer has pushed. Where the barrier is an
empty function, the read may come first. The failure is silent: another backend has the same call, and there it waits.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    name="pytorch#191858",
    thread="pytorch/pytorch#191858",
    defect="the barrier between two kernels does nothing",
    parameters=("u64 data", "u64 peer_data", "u64 flag", "u64 peer_flag", "u64 out", "u32 rank", "u32 launch"),
    buffers={"data": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    host=launches(3),
    ways=("races", "random"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    setp.eq.u32 %p1, %launch, 1;
    @%p1 bra BARRIER;
    setp.eq.u32 %p1, %launch, 2;
    @%p1 bra CONSUME;
    add.u64 %d1, %peer_data, %d0;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.global.u32 [%d1], %r1;
    ret;
BARRIER:
-   ret;
+   setp.ne.u32 %p2, %lane, 0;
+   @%p2 ret;
+   st.release.sys.global.u32 [%peer_flag], 1;
+WAIT:
+   ld.acquire.sys.global.u32 %r2, [%flag];
+   setp.eq.u32 %p3, %r2, 0;
+   @%p3 bra WAIT;
+   ret;
CONSUME:
    add.u64 %d2, %data, %d0;
    ld.global.u32 %r3, [%d2];
    add.u64 %d3, %out, %d0;
    st.global.u32 [%d3], %r3;
""",
)
