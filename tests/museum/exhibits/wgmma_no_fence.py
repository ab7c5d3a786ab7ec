"""A wgmma reads shared memory by the asynchronous proxy, and a block's stores there were not fenced for it.

bar.sync orders the threads' stores for loads of the block alone: each thread that stores needs fence.proxy.async first.
"""

from tests.museum.exhibit import Exhibit

ONES = """
    // Each thread has a row of 16 bytes of A, some have one of B, too.
    mov.u32 %r10, matrices; mov.b32 %r1, 0x3c003c00;
    mad.lo.u32 %r11, %lane, 16, %r10;
    st.shared.v4.b32 [%r11], {%r1, %r1, %r1, %r1};
    setp.gt.u32 %p1, %lane, 15;
    @!%p1 st.shared.v4.b32 [%r11+2048], {%r1, %r1, %r1, %r1};
"""

EXHIBIT = Exhibit(
    title="wgmma, stores not fenced",
    defect="no fence.proxy.async between stores to shared memory and the wgmma that reads it",
    buffers={"out": [0] * 128},
    expected=lambda rank: [16] * 128,
    ranks=1,
    block=128,
    ways=("races",),
    before=".shared .align 128 .b8 matrices[2304];",
    body=ONES
    + """
+   fence.proxy.async.shared::cta;
    bar.sync 0;
    zero accumulators;
    wgmma %r10;
    wgmma.wait_group.sync.aligned 0;
    cvt.rzi.u32.f32 %r2, %r24;
    out[lane] = %r2;
""",
)
