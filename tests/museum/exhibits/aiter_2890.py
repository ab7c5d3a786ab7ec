"""aiter#2890: the wait for peers acquires at device scope, the peers release at system scope.

Each rank stores its part of a sum into its peer's memory and releases a flag there. The peer polls with
`ld.acquire.gpu`. That scope does not contain the storing thread, so the two accesses to the flag are not morally
strong and order nothing: the sum may read the peer's part before it arrives.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="aiter#2890",
    thread="ROCm/aiter#2890",
    defect="the flag of another GPU is acquired at .gpu scope",
    parameters=("u64 parts", "u64 peer_parts", "u64 flag", "u64 peer_flag", "u64 out", "u32 rank"),
    buffers={"parts": [0] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: [100 * (1 - rank) + lane for lane in range(32)],
    ways=("races", "weak"),
    body="""
    mad.lo.u64 %d1, %lane64, 4, %peer_parts;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.global.u32 [%d1], %r1;
    bar.sync 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra READY;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
-   ld.acquire.gpu.global.u32 %r2, [%flag];
+   ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
READY:
    bar.sync 0;
    mad.lo.u64 %d2, %lane64, 4, %parts;
    ld.global.u32 %r3, [%d2];
    mad.lo.u64 %d3, %lane64, 4, %out;
    st.global.u32 [%d3], %r3;
""",
)
