"""LL with the word loaded before its flag: when the flag has come, the word that was loaded is still the old one."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    title="LL, word loaded first",
    defect="a slot's word is loaded before the flag that says it is there",
    buffers={"inbox": [0] * 64, "out": [0] * 32},
    expected=lambda rank: [100 * (2 - rank) + lane for lane in range(32)],
    ways=("random", "weak"),
    body="""
    mul.lo.u64 %d1, %lane64, 8;
    add.u64 %d2, %peer_inbox, %d1;
    mad.lo.u32 %r1, %rank, 100, %lane;
    add.u32 %r1, %r1, 100;
    mov.u32 %r2, 1;
    mov.b64 %d3, {%r1, %r2};
    st.relaxed.sys.global.b64 [%d2], %d3;
    add.u64 %d4, %inbox, %d1;
WAIT:
-   ld.relaxed.sys.global.u32 %r3, [%d4];
-   ld.relaxed.sys.global.u32 %r4, [%d4+4];
+   ld.relaxed.sys.global.b64 %d5, [%d4];
+   mov.b64 {%r3, %r4}, %d5;
    bra WAIT if %r4 ne 1;
    out[lane] = %r3;
""",
)
