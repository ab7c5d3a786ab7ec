"""Primus-Turbo#482: what the flag of a block's rows orders are the rows of one warp.

All warps store rows to a peer. One waits for its own stores, as AMD's GPUs count them by wave, and tells the peer all
rows by a relaxed store; the barrier of the block orders the others' for the block alone. Here the wait is a fence
before that barrier: behind it, it covers all rows.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="AMD-AGI/Primus-Turbo#482",
    defect="one warp fences for its own stores, before the block's barrier, and then tells all rows by a relaxed flag",
    buffers={"inbox": [0] * 128, "flag": [0], "out": [0] * 128},
    expected=lambda rank: list(range(128)),
    block=128,
    ways=("races", "weak"),
    body="""
    setp.ge.u32 %p1, %lane, 32;
    mov.u32 %r2, %lane;
    peer_inbox[lane] = %r2;
-   @!%p1 fence.acq_rel.sys;
    bar.sync 0;
+   @!%p1 fence.acq_rel.sys;
    bra WAIT if %lane ne 0;
    st.relaxed.sys.global.u32 [%peer_flag], 1;
WAIT:
    spin acquire.sys [%flag];
    %r1 = inbox[lane];
    out[lane] = %r1;
""",
)
