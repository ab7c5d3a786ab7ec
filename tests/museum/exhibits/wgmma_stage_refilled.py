"""A stage of shared memory is refilled while a wgmma may still read it: the wait for the group comes after the stores.

The mended kernel waits, and meets at a barrier, before any of its threads stores again.
"""

from tests.museum.exhibit import Exhibit

EXHIBIT = Exhibit(
    title="wgmma, stage refilled",
    defect="a stage is stored to again before wgmma.wait_group",
    buffers={"out": [0] * 128},
    expected=lambda rank: [16] * 128,
    block=128,
    ways=("races",),
    before=".shared .align 128 .b8 stage[4096];",
    body="""
    .reg .f32 %f<4>;
    // Ones in float16: A is 64 x 16 of them, B behind it 8 x 16.
    shared words %r10, %r11 = stage;
    mov.b32 %r1, 0x3c003c00;
    mov.b32 %r2, 0;
FILL:
    st.shared.b32 [%r11], %r1;
    add.u32 %r11, %r11, 512;
    bra FILL if ++%r2 lt 8;
    fence.proxy.async;
    bar.sync 0;
    shr.u32 %r10, %r10, 4;
    cvt.u64.u32 %d1, %r10;
    add.u64 %d1, %d1, 0x1000080000;
    add.u64 %d2, %d1, 128;
    setp.ne.u32 %p1, %lane, %lane;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
+   wgmma.wait_group.sync.aligned 0;
+   bar.sync 0;
    add.u32 %r11, %r11, -4096;
    st.shared.b32 [%r11], 0;
-   wgmma.wait_group.sync.aligned 0;
    cvt.rzi.u32.f32 %r3, %f0;
    out[lane] = %r3;
""",
)
