"""vllm#50941: one lane fences for all, on the side of the barrier where it covers no one else's flag.

All threads store data, meet at bar.sync, and then each of two lanes tells one peer. The fence between was written as
an operation on one value, which the compiler gives to lane 0 alone. Lane 0's own flag is released; lane 1's is a
relaxed store with no fence in its thread, and the peer that it tells may read old data.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="vllm#50941",
    thread="vllm-project/vllm#50941",
    defect="the fence before the flags runs on lane 0 alone",
    parameters=("u64 data", "u64 data_0", "u64 data_1", "u64 flag", "u64 flag_0", "u64 flag_1", "u64 out", "u32 rank"),
    buffers={"data": [0] * 32, "flag": [0, 0], "out": [0] * 32},
    expected=lambda rank: [100 + 2 * lane for lane in range(32)],
    ways=("races", "weak"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    add.u64 %d1, %data, %d0;
    mad.lo.u32 %r1, %rank, 100, %lane;
    st.global.u32 [%d1], %r1;
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
WAIT:
    ld.acquire.sys.global.u32 %r2, [%d4];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra WAIT;
READY:
    bar.sync 0;
    add.u64 %d5, %data_0, %d0;
    ld.global.u32 %r3, [%d5];
    add.u64 %d6, %data_1, %d0;
    ld.global.u32 %r4, [%d6];
    add.u32 %r5, %r3, %r4;
    add.u64 %d7, %out, %d0;
    st.global.u32 [%d7], %r5;
""",
)
