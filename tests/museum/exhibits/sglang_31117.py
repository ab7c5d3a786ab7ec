"""sglang#31117: two all-reduces of one communicator are under way at once, on two streams of each rank.

The protocol pushes into the peer's inbox, polls its own until it is not zero, and sets it back to zero for the next
launch: it holds one launch at a time, and nothing keeps a second one out. Both find the same inbox, one takes the
value of the other or both values are one, and a poll never ends. The two blocks of the kernel stand for two launches of
one block each, on two streams. In the mended one each stream has an inbox of its own.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="sgl-project/sglang#31117",
    defect="two streams use one inbox at the same time",
    buffers={"inbox": [0, 0], "out": [0, 0]},
    expected=lambda rank: [10 * (1 - rank) + 1, 10 * (1 - rank) + 2],
    grid=2,
    block=1,
    ways=("random",),
    body="""
-   mov.u64 %d1, 0;
+   mul.wide.u32 %d1, %block, 4;
    add.u64 %d2, %peer_inbox, %d1;
    mad.lo.u32 %r1, %rank, 10, %block;
    add.u32 %r1, %r1, 1;
    st.relaxed.sys.global.u32 [%d2], %r1;
    add.u64 %d3, %inbox, %d1;
WAIT:
    ld.relaxed.sys.global.u32 %r2, [%d3];
    bra WAIT if %r2 eq 0;
    st.relaxed.sys.global.u32 [%d3], 0;
    out[%block] = %r2;
""",
)
