"""aiter#2890: the wait for peers acquires at device scope, the peers release at system scope.

Each rank stores its part of a sum into its peer's memory and releases a flag there. The peer polls with
`ld.acquire.gpu`. That scope does not contain the storing thread, so the two accesses to the flag are not morally
strong and order nothing: the sum may read the peer's part before it arrives.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="ROCm/aiter#2890",
    defect="the flag of another GPU is acquired at .gpu scope",
    buffers={"parts": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    ways=("races", "weak"),
    body="""
    mad.lo.u32 %r1, %rank, 100, %lane;
    peer_parts[lane] = %r1;
    bar.sync 0;
-   meet release.sys acquire.gpu;
+   meet release.sys acquire.sys;
    %r3 = parts[lane];
    out[lane] = %r3;
""",
)
