"""ThunderKittens#194: a tile goes to another GPU in bulk, and the flag is stored once the tile was read, not written.

cp.async.bulk.wait_group.read says that shared memory may be used again, and no more: the flag may come before the tile.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="ThunderKittens#194",
    thread="HazyResearch/ThunderKittens#194",
    defect="a flag for another GPU after cp.async.bulk.wait_group.read",
    parameters=("u64 inbox", "u64 peer_inbox", "u64 flag", "u64 peer_flag", "u64 out"),
    buffers={"inbox": [0] * 32, "flag": [0], "out": [9] * 32},
    expected=lambda rank: list(range(32)),
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
    cp.async.bulk.global.shared::cta.bulk_group [%peer_inbox], [%r10], 128;
    cp.async.bulk.commit_group;
-   cp.async.bulk.wait_group.read 0;
+   cp.async.bulk.wait_group 0;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    ld.acquire.sys.global.u32 %r2, [%flag];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
    mad.wide.u32 %d2, %lane, 4, %inbox;
    ld.global.u32 %r3, [%d2];
    mad.wide.u32 %d3, %lane, 4, %out;
    st.global.u32 [%d3], %r3;
""",
)
