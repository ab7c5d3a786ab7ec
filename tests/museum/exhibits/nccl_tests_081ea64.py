"""nccl-tests commit 081ea64: the barrier at the entry of eight kernels was relaxed.

An earlier kernel has written each rank's input. The collective begins with a barrier of all ranks, so that the inputs
are there, and then reads its peer's. With `.relaxed` on both sides the barrier only says that the peer's kernel has
begun: nothing makes its input visible. The commit changes the barrier's order to acquire; in the PTX model the arrival
has to release as well, and so it does here.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    thread="NVIDIA/nccl-tests@081ea64",
    defect="the barrier at entry is relaxed",
    buffers={"input": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    host=launches(2),
    ways=("races", "weak"),
    body="""
    bra COLLECTIVE if %launch eq 1;
    mad.lo.u32 %r1, %rank, 100, %lane;
    input[lane] = %r1;
    ret;
COLLECTIVE:
    bra READY if %lane ne 0;
-   red.relaxed.sys.global.add.u32 [%peer_flag], 1;
+   red.release.sys.global.add.u32 [%peer_flag], 1;
-   spin relaxed.sys [%flag];
+   spin acquire.sys [%flag];
READY:
    bar.sync 0;
    %r3 = peer_input[lane];
    out[lane] = %r3;
""",
)
