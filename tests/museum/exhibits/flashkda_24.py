"""FlashKDA#24: a sequence without tokens skips the loop with the fence, and its zeroed state is copied out in bulk.

All threads zero the state in shared memory; the loop over tokens updates it, with a fence in each turn; thread 0 then
copies it out. For an empty sequence no turn runs, and nothing shows the zeros to the copy.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    thread="MoonshotAI/FlashKDA#24",
    defect="zeroed shared memory is copied in bulk without a fence if a loop does not run",
    buffers={"tokens": [0], "out": [5] * 32},
    expected=lambda rank: [0] * 32,
    ranks=1,
    ways=("races",),
    before=".shared .align 16 .b8 state[128];",
    body="""
    shared words %r10, %r11 = state;
    mov.u32 %r1, 0;
    st.shared.u32 [%r11], %r1;
+   fence.proxy.async.shared::cta;
    bar.sync 0;
    ld.global.u32 %r2, [%tokens];
NEXT:
    bra DONE if %r1 ge %r2;
    ld.shared.u32 %r3, [%r11];
    add.u32 %r3, %r3, 1;
    st.shared.u32 [%r11], %r3;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    bra NEXT;
DONE:
    bra END if %lane ne 0;
    bulk store [%out], [%r10], 128;
END:
""",
)
