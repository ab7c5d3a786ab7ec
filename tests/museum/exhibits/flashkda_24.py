"""FlashKDA#24: a sequence without tokens skips the loop with the fence, and its zeroed state is copied out in bulk.

All threads zero the state in shared memory; the loop over tokens updates it, with a fence in each turn; thread 0 then
copies it out. For an empty sequence no turn runs, and nothing shows the zeros to the copy.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    name="FlashKDA#24",
    thread="MoonshotAI/FlashKDA#24",
    defect="zeroed shared memory is copied in bulk without a fence if a loop does not run",
    parameters=("u64 tokens", "u64 out"),
    buffers={"tokens": [0], "out": [5] * 32},
    expected=lambda rank: [0] * 32,
    ranks=1,
    ways=("races",),
    before=".shared .align 16 .b8 state[128];",
    body="""
    mov.u32 %r10, state;
    mad.lo.u32 %r11, %lane, 4, %r10;
    mov.u32 %r1, 0;
    st.shared.u32 [%r11], %r1;
+   fence.proxy.async.shared::cta;
    bar.sync 0;
    ld.global.u32 %r2, [%tokens];
NEXT:
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    ld.shared.u32 %r3, [%r11];
    add.u32 %r3, %r3, 1;
    st.shared.u32 [%r11], %r3;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    bra NEXT;
DONE:
    setp.ne.u32 %p2, %lane, 0;
    @%p2 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r10], 128;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
""",
)
