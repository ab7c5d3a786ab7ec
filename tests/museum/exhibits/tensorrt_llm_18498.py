"""TensorRT-LLM#18498: a bulk reduction is never committed, so that the wait for all groups waits for nothing.

A block adds a tile of shared memory to the peer's by a bulk reduction, waits for its groups and signals. The reduction
is of no group yet, and may come after the signal.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="TensorRT-LLM#18498",
    thread="NVIDIA/TensorRT-LLM#18498",
    defect="a bulk reduction is of no group when its groups are waited for",
    parameters=("u64 sum", "u64 peer_sum", "u64 flag", "u64 peer_flag", "u64 out"),
    buffers={"sum": [1000] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: list(range(1000, 1032)),
    ways=("races",),
    before=".shared .align 16 .b8 tile[128];",
    body="""
    mov.u32 %r10, tile;
    mad.lo.u32 %r11, %lane, 4, %r10;
    st.shared.u32 [%r11], %lane;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra WAIT;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%peer_sum], [%r10], 128;
+   cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
    mad.wide.u32 %d2, %lane, 4, %sum;
    ld.global.u32 %r3, [%d2];
    mad.wide.u32 %d3, %lane, 4, %out;
    st.global.u32 [%d3], %r3;
    // What is sent later is committed, and with it what was not.
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
""",
)
