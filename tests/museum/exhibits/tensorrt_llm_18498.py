"""TensorRT-LLM#18498: a bulk reduction is never committed, so that the wait for all groups waits for nothing.

A block adds a tile of shared memory to the peer's by a bulk reduction, waits for its groups and signals. The reduction
is of no group yet, and may come after the signal.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="NVIDIA/TensorRT-LLM#18498",
    defect="a bulk reduction is of no group when its groups are waited for",
    buffers={"sum": [1000] * 32, "flag": [0], "out": [0] * 32},
    expected=lambda rank: list(range(1000, 1032)),
    ways=("races",),
    before=".shared .align 16 .b8 tile[128];",
    body="""
    shared words %r10, %r11 = tile;
    st.shared.u32 [%r11], %lane;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    bra WAIT if %lane ne 0;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%peer_sum], [%r10], 128;
+   cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    spin acquire.sys [%flag];
    %r3 = sum[lane];
    out[lane] = %r3;
    // What is sent later is committed, and with it what was not.
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
""",
)
