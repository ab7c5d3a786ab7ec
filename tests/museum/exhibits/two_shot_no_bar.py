"""A two-shot whose first thread signals without bar.sync: the other warps' part of the sum is not stored yet."""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    title="two-shot, no bar.sync",
    defect="a thread signals for its block without bar.sync before",
    buffers={"input": list(range(128)), "half": [0] * 64, "flag": [0], "out": [0] * 128},
    expected=lambda rank: [2 * word for word in range(128)],
    block=64,
    ways=("races", "random"),
    body="""
    // The first shot: this rank's half of the sum.
    mul.lo.u64 %d0, %lane64, 4;
    mad.wide.u32 %d1, %rank, 256, %d0;
    %r1 = input[%d1];
    %r2 = peer_input[%d1];
    add.u32 %r3, %r1, %r2;
    half[lane] = %r3;
    out[%d1] = %r3;
+   bar.sync 0;
    meet release.sys acquire.sys;
    // The second shot: the peer's half.
    %r5 = peer_half[lane];
    xor.b64 %d7, %d1, 256;
    out[%d7] = %r5;
""",
)
