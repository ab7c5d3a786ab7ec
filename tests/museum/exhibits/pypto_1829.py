"""pypto#1829: a barrier over ranks stores 1 and waits for 1, and so is none when it is used again.

Two rounds: each rank stores a word, meets the other, reads its word, and meets it again before the next round. From the
second barrier on the flag is 1 already. The mended barrier stores and waits for its number.
"""

from tests.museum.exhibit import Exhibit

BARRIER = """
-   mov.u32 %r9, 1;
+   add.u32 %r9, %r8, {number};
    st.release.sys.global.u32 [%peer_flag], %r9;
WAIT{number}:
    ld.acquire.sys.global.u32 %r5, [%flag];
    bra WAIT{number} if %r5 lt %r9;
"""
ROUND = """
    add.u32 %r1, %r2, {add};
    st.global.u32 [%data], %r1;
{before}
    ld.global.u32 %r3, [%peer_data];
    st.global.u32 [%out+{place}], %r3;
{after}
"""

EXHIBIT = Exhibit(
    thread="hw-native-sys/pypto#1829",
    defect="a barrier over ranks stores and waits for the same number each time",
    buffers={"data": [0], "flag": [0], "out": [0, 0]},
    expected=lambda rank: [101 - rank, 201 - rank],
    block=1,
    ways=("races", "random", "priority"),
    body="    mov.u32 %r2, %rank;\n    mov.u32 %r8, 0;\n"
    + ROUND.format(add=100, place=0, before=BARRIER.format(number=1), after=BARRIER.format(number=2))
    + ROUND.format(add=200, place=4, before=BARRIER.format(number=3), after=""),
)
