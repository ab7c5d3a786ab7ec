"""pytorch#191858: the barrier of one backend of symmetric memory returns at once.

A caller pushes into its peer's memory, calls the barrier, and reads what its peer has pushed. Where the barrier is an
empty function, the read may come first. The failure is silent: another backend has the same call, and there it waits.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    thread="pytorch/pytorch#191858",
    defect="the barrier between two kernels does nothing",
    buffers={"data": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    host=launches(3),
    ways=("races", "random"),
    body="""
    bra BARRIER if %launch eq 1;
    bra CONSUME if %launch eq 2;
    mad.lo.u32 %r1, %rank, 100, %lane;
    peer_data[lane] = %r1;
    ret;
BARRIER:
-   ret;
+   setp.ne.u32 %p2, %lane, 0;
+   @%p2 ret;
+   st.release.sys.global.u32 [%peer_flag], 1;
+   spin acquire.sys [%flag];
+   ret;
CONSUME:
    %r3 = data[lane];
    out[lane] = %r3;
""",
)
