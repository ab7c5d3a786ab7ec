"""LL with the flag first: word and flag of a slot are two stores, and the flag's is the first."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    title="LL, flag first",
    defect="a slot's flag and word are two stores, the flag first",
    buffers={"inbox": [0] * 64, "out": [0] * 32},
    expected=lambda rank: [100 * (2 - rank) + lane for lane in range(32)],
    ways=("random", "weak"),
    body="""
    mul.lo.u64 %d1, %lane64, 8;
    add.u64 %d2, %peer_inbox, %d1;
    mad.lo.u32 %r1, %rank, 100, %lane;
    add.u32 %r1, %r1, 100;
-   st.relaxed.sys.global.u32 [%d2+4], 1;
-   st.relaxed.sys.global.u32 [%d2], %r1;
+   mov.u32 %r2, 1;
+   mov.b64 %d3, {%r1, %r2};
+   st.relaxed.sys.global.b64 [%d2], %d3;
    add.u64 %d4, %inbox, %d1;
WAIT:
    ld.relaxed.sys.global.b64 %d5, [%d4];
    mov.b64 {%r3, %r4}, %d5;
    bra WAIT if %r4 ne 1;
    out[lane] = %r3;
""",
)
