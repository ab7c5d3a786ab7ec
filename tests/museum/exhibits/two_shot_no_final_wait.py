"""A two-shot without its final wait: a rank ends when it has stored its half of the sum to all, not when all have.

The next kernel of the rank reads the whole sum, of which the peer's half may still be missing.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    name="two-shot, no final wait",
    thread="",
    defect="a rank does not wait for the peers' halves before it ends",
    parameters=(
        "u64 input",
        "u64 peer_input",
        "u64 sum",
        "u64 peer_sum",
        "u64 flag",
        "u64 peer_flag",
        "u64 out",
        "u32 rank",
        "u32 launch",
    ),
    buffers={"input": list(range(64)), "sum": [0] * 64, "flag": [0], "out": [0] * 64},
    expected=lambda rank: [2 * word for word in range(64)],
    host=launches(2),
    ways=("races", "random"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    mul.wide.u32 %d1, %rank, 128;
    add.u64 %d1, %d1, %d0;
    setp.eq.u32 %p1, %launch, 1;
    @%p1 bra CONSUME;
    add.u64 %d2, %input, %d1;
    ld.global.u32 %r1, [%d2];
    add.u64 %d3, %peer_input, %d1;
    ld.global.u32 %r2, [%d3];
    add.u32 %r3, %r1, %r2;
    add.u64 %d4, %sum, %d1;
    st.global.u32 [%d4], %r3;
    add.u64 %d5, %peer_sum, %d1;
    st.global.u32 [%d5], %r3;
    bar.sync 0;
    setp.ne.u32 %p2, %lane, 0;
    @%p2 ret;
    st.release.sys.global.u32 [%peer_flag], 1;
+WAIT:
+   ld.acquire.sys.global.u32 %r4, [%flag];
+   setp.eq.u32 %p3, %r4, 0;
+   @%p3 bra WAIT;
    ret;
CONSUME:
    add.u64 %d6, %sum, %d1;
    ld.global.u32 %r5, [%d6];
    add.u64 %d7, %out, %d1;
    st.global.u32 [%d7], %r5;
    xor.b64 %d1, %d1, 128;
    add.u64 %d6, %sum, %d1;
    ld.global.u32 %r5, [%d6];
    add.u64 %d7, %out, %d1;
    st.global.u32 [%d7], %r5;
""",
)
