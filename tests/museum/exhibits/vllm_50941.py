"""vllm#50941: one lane fences for all, on the side of the barrier where it covers no one else's flag.

All threads store data, meet at bar.sync, and then each of two lanes tells one peer. The fence between was written as
an operation on one value, which the compiler gives to lane 0 alone. Lane 0's own flag is released; lane 1's is a
relaxed store with no fence in its thread, and the peer that it tells may read old data.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="vllm-project/vllm#50941",
    defect="the fence before the flags runs on lane 0 alone",
    buffers={"data": [0] * 32, "flag": [0, 0], "out": [0] * 32},
    expected=lambda rank: [100 + 2 * lane for lane in range(32)],
    ways=("races", "weak"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    mad.lo.u32 %r1, %rank, 100, %lane;
    data[lane] = %r1;
    bar.sync 0;
    setp.gt.u32 %p1, %lane, 1;
    setp.ne.u32 %p2, %lane, 0;
    @%p1 bra READY;
-   @!%p2 fence.acq_rel.sys;
+   fence.acq_rel.sys;
    // Lane n tells rank n; each rank has a flag for each sender.
    selp.b64 %d2, %flag_1, %flag_0, %p2;
    mul.wide.u32 %d3, %rank, 4;
    add.u64 %d2, %d2, %d3;
    st.relaxed.sys.global.u32 [%d2], 1;
    add.u64 %d4, %flag, %d0;
    spin acquire.sys [%d4];
READY:
    bar.sync 0;
    %r3 = data_0[lane];
    %r4 = data_1[lane];
    add.u32 %r5, %r3, %r4;
    out[lane] = %r5;
""",
)
