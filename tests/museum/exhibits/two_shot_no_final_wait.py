"""A two-shot without its final wait: a rank ends when it has stored its half of the sum to all, not when all have.

The next kernel of the rank reads the whole sum, of which the peer's half may still be missing.
"""

from tests.museum.exhibit import Exhibit, launches

EXHIBIT = Exhibit(
    title="two-shot, no final wait",
    defect="a rank does not wait for the peers' halves before it ends",
    buffers={"input": list(range(64)), "sum": [0] * 64, "flag": [0], "out": [0] * 64},
    expected=lambda rank: [2 * word for word in range(64)],
    host=launches(2),
    ways=("races", "random"),
    body="""
    mul.lo.u64 %d0, %lane64, 4;
    mad.wide.u32 %d1, %rank, 128, %d0;
    bra CONSUME if %launch eq 1;
    %r1 = input[%d1];
    %r2 = peer_input[%d1];
    add.u32 %r3, %r1, %r2;
    sum[%d1] = %r3;
    peer_sum[%d1] = %r3;
    bar.sync 0;
    setp.ne.u32 %p2, %lane, 0;
    @%p2 ret;
    st.release.sys.global.u32 [%peer_flag], 1;
+   spin acquire.sys [%flag];
    ret;
CONSUME:
    %r5 = sum[%d1];
    out[%d1] = %r5;
    xor.b64 %d1, %d1, 128;
    %r5 = sum[%d1];
    out[%d1] = %r5;
""",
)
