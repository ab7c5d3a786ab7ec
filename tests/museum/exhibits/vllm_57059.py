"""vllm#57059: the barrier at the start of the all-reduce is relaxed on both sides, and polled at device scope.

Each rank stages its input where its peer reads it, tells the peer by a relaxed store, and waits for the peer's flag by
a relaxed load. No release covers the staged stores and no acquire covers the reads, so a rank reduces values that are
torn between two steps of the model. It was seen as NaN and as junk tokens, under load.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="vllm#57059",
    thread="vllm-project/vllm#57059",
    defect="the barrier at the start is relaxed, and polled at .gpu scope",
    parameters=("u64 staged", "u64 peer_staged", "u64 flag", "u64 peer_flag", "u64 out", "u32 rank"),
    buffers={"staged": [0] * 64, "flag": [0], "out": [0] * 64},
    expected=lambda rank: [100 + 2 * lane for lane in range(64)],
    block=64,
    ways=("races", "weak"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    add.u64 %d1, %staged, %d0;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.global.u32 [%d1], %r1;
    bar.sync 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra READY;
-   st.relaxed.sys.global.u32 [%peer_flag], 1;
+   st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
-   ld.relaxed.gpu.global.u32 %r2, [%flag];
+   ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
READY:
    bar.sync 0;
    add.u64 %d2, %peer_staged, %d0;
    ld.global.u32 %r3, [%d2];
    add.u32 %r4, %r3, %r1;
    add.u64 %d3, %out, %d0;
    st.global.u32 [%d3], %r4;
""",
)
