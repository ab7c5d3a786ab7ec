"""ThunderKittens#194: a tile goes to another GPU in bulk, and the flag is stored once the tile was read, not written.

cp.async.bulk.wait_group.read says that shared memory may be used again, and no more: the flag may come before the tile.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="HazyResearch/ThunderKittens#194",
    defect="a flag for another GPU after cp.async.bulk.wait_group.read",
    buffers={"inbox": [0] * 32, "flag": [0], "out": [9] * 32},
    expected=lambda rank: list(range(32)),
    ways=("races",),
    before=".shared .align 16 .b8 tile[128];",
    body="""
    shared words %r10, %r11 = tile;
    st.shared.u32 [%r11], %lane;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    bra WAIT if %lane ne 0;
    cp.async.bulk.global.shared::cta.bulk_group [%peer_inbox], [%r10], 128;
    cp.async.bulk.commit_group;
-   cp.async.bulk.wait_group.read 0;
+   cp.async.bulk.wait_group 0;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    spin acquire.sys [%flag];
    %r3 = inbox[lane];
    out[lane] = %r3;
""",
)
