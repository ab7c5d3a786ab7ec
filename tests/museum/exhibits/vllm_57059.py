"""vllm#57059: the barrier at the start of the all-reduce is relaxed on both sides, and polled at device scope.

Each rank stages its input where its peer reads it, tells the peer by a relaxed store, and waits for the peer's flag by
a relaxed load. No release covers the staged stores and no acquire covers the reads, so a rank reduces values that are
torn between two steps of the model. It was seen as NaN and as junk tokens, under load.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="vllm-project/vllm#57059",
    defect="the barrier at the start is relaxed, and polled at .gpu scope",
    buffers={"staged": [0] * 64, "flag": [0], "out": [0] * 64},
    expected=lambda rank: [100 + 2 * lane for lane in range(64)],
    block=64,
    ways=("races", "weak"),
    body="""
    mad.lo.u32 %r1, %rank, 100, %lane;
    staged[lane] = %r1;
    bar.sync 0;
-   meet relaxed.sys relaxed.gpu;
+   meet release.sys acquire.sys;
    %r3 = peer_staged[lane];
    add.u32 %r4, %r3, %r1;
    out[lane] = %r4;
""",
)
