"""A Lamport protocol that polls one word of a unit: the unit is four words, each of which arrives by itself."""

from tests.museum.exhibit import Exhibit

EMPTY = 0x80000000

EXHIBIT = Exhibit(
    title="Lamport, one word",
    defect="of a unit of four words only the first is polled",
    buffers={"inbox": [EMPTY] * 128, "out": [0] * 128},
    expected=lambda rank: [100 * (1 - rank) + lane + word for lane in range(32) for word in range(4)],
    ways=("random", "weak"),
    body="""
    mul.lo.u64 %d1, %lane64, 16;
    add.u64 %d2, %peer_inbox, %d1;
    mad.lo.u32 %r1, %rank, 100, %lane;
    add.u32 %r2, %r1, 1;
    add.u32 %r3, %r1, 2;
    add.u32 %r4, %r1, 3;
    st.relaxed.sys.global.v4.b32 [%d2], {%r1, %r2, %r3, %r4};
    add.u64 %d3, %inbox, %d1;
WAIT:
    ld.relaxed.sys.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d3];
    setp.eq.u32 %p1, %r5, 0x80000000;
+   setp.eq.or.u32 %p1, %r6, 0x80000000, %p1;
+   setp.eq.or.u32 %p1, %r7, 0x80000000, %p1;
+   setp.eq.or.u32 %p1, %r8, 0x80000000, %p1;
    @%p1 bra WAIT;
    add.u64 %d4, %out, %d1;
    st.global.v4.b32 [%d4], {%r5, %r6, %r7, %r8};
""",
)
