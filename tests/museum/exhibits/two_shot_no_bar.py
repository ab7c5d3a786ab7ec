"""A two-shot whose first thread signals without bar.sync: the other warps' part of the sum is not stored yet."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="two-shot, no bar.sync",
    thread="",
    defect="a thread signals for its block without bar.sync before",
    parameters=(
        "u64 input",
        "u64 peer_input",
        "u64 half",
        "u64 peer_half",
        "u64 flag",
        "u64 peer_flag",
        "u64 out",
        "u32 rank",
    ),
    buffers={"input": list(range(128)), "half": [0] * 64, "flag": [0], "out": [0] * 128},
    expected=lambda rank: [2 * word for word in range(128)],
    block=64,
    ways=("races", "random"),
    body="""
    // The first shot: this rank's half of the sum.
    mul.lo.u64 %d0, %lane64, 4;
    mul.wide.u32 %d1, %rank, 256;
    add.u64 %d1, %d1, %d0;
    add.u64 %d2, %input, %d1;
    ld.global.u32 %r1, [%d2];
    add.u64 %d3, %peer_input, %d1;
    ld.global.u32 %r2, [%d3];
    add.u32 %r3, %r1, %r2;
    add.u64 %d4, %half, %d0;
    st.global.u32 [%d4], %r3;
    add.u64 %d5, %out, %d1;
    st.global.u32 [%d5], %r3;
+   bar.sync 0;
    setp.ne.u32 %p1, %lane, 0;
    @%p1 bra READY;
    st.release.sys.global.u32 [%peer_flag], 1;
WAIT:
    ld.acquire.sys.global.u32 %r4, [%flag];
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra WAIT;
READY:
    bar.sync 0;
    // The second shot: the peer's half.
    add.u64 %d6, %peer_half, %d0;
    ld.global.u32 %r5, [%d6];
    xor.b64 %d7, %d1, 256;
    add.u64 %d7, %out, %d7;
    st.global.u32 [%d7], %r5;
""",
)
