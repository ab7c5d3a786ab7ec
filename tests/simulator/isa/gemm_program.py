"""A GEMM in PTX of its own: C (rows, columns) float32 = A (rows, depth) B (columns, depth), both bfloat16, a block of
one warpgroup for each 64 x 256 of C. Stages of 64 columns come by tensor copies, two at a time.
"""

import numpy as np

from tests.simulator.harness import executable, get, make_world, module, put, start, succeed
from tests.simulator.isa.tensor_maps import Map, encoded

ROWS, COLUMNS, DEPTH, STAGES = 64, 256, 64, 2
A_BYTES, STAGE_BYTES = ROWS * DEPTH * 2, (ROWS + COLUMNS) * DEPTH * 2
DESCRIPTOR = 1 << 62 | 1 << 16 | 1024 // 16 << 32
"""K-major, swizzled by 128 bytes."""
FORM = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"


def gemm_ptx(steps, columns):
    """The kernel; steps: of DEPTH."""
    many = "{" + ", ".join(f"%f{at}" for at in range(128)) + "}"
    copy = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    body = f"""
    mov.b64 %d1, kernel_a; cvta.param.u64 %d1, %d1; mov.b64 %d2, kernel_b; cvta.param.u64 %d2, %d2;
    setp.eq.u32 %p0, %r0, 0; mov.u32 %r1, stage; mov.u32 %r2, bar;
    mov.u32 %r3, %ctaid.y; shl.b32 %r3, %r3, 6; mov.u32 %r4, %ctaid.x; shl.b32 %r4, %r4, 8;
    @%p0 mbarrier.init.shared::cta.b64 [bar], 1; @%p0 mbarrier.init.shared::cta.b64 [bar+8], 1;
    fence.mbarrier_init.release.cluster; bar.sync 0; mov.b32 %r10, 0;
    FILL: setp.ge.u32 %p1, %r10, {STAGES}; @%p1 bra FILLED; bra.uni COPY;
    FILLED: mov.b32 %r11, 0; setp.ne.u32 %p3, %r0, %r0; wgmma.fence.sync.aligned;
    STEP: and.b32 %r12, %r11, 1; shr.u32 %r13, %r11, 1; and.b32 %r13, %r13, 1;
    shl.b32 %r14, %r12, 3; add.u32 %r14, %r14, %r2;
    POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r14], %r13; @!%p2 bra POLL;
    mad.lo.u32 %r15, %r12, {STAGE_BYTES}, %r1; shr.u32 %r15, %r15, 4; cvt.u64.u32 %d3, %r15;
    add.u64 %d3, %d3, {DESCRIPTOR}; add.u64 %d4, %d3, {A_BYTES // 16};
    {" ".join(f"{FORM} {many}, %d3, %d4, %p3, 1, 1, 0, 0; setp.eq.u32 %p3, %r0, %r0; add.u64 %d3, %d3, 2; add.u64 %d4, %d4, 2;" for _ in range(DEPTH // 16))}
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; bar.sync 0;
    add.u32 %r10, %r11, {STAGES}; add.u32 %r11, %r11, 1;
    setp.ge.u32 %p1, %r10, {steps}; @!%p1 bra COPY;
    AFTER: setp.lt.u32 %p1, %r11, {steps}; @%p1 bra STEP;
    bra.uni OVER;
    COPY: and.b32 %r16, %r10, 1; shl.b32 %r17, %r16, 3; add.u32 %r17, %r17, %r2; mad.lo.u32 %r16, %r16, {STAGE_BYTES}, %r1;
    add.u32 %r18, %r16, {A_BYTES}; shl.b32 %r19, %r10, 6;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r17], {STAGE_BYTES};
    @%p0 {copy} [%r16], [%d1, {{%r19, %r3}}], [%r17]; @%p0 {copy} [%r18], [%d2, {{%r19, %r4}}], [%r17];
    setp.ge.u32 %p1, %r10, {STAGES}; @%p1 bra AFTER; add.u32 %r10, %r10, 1; bra.uni FILL;
    OVER: shr.u32 %r5, %r0, 5; shl.b32 %r5, %r5, 4; and.b32 %r6, %r0, 31; shr.u32 %r7, %r6, 2; add.u32 %r5, %r5, %r7;
    add.u32 %r5, %r5, %r3; and.b32 %r6, %r6, 3; shl.b32 %r6, %r6, 1; add.u32 %r6, %r6, %r4;
    mad.lo.u32 %r5, %r5, {columns}, %r6; cvt.u64.u32 %d5, %r5; shl.b64 %d5, %d5, 2; add.u64 %d5, %d5, %c;
    """
    for at in range(128):
        place = 4 * (at // 4 * 8 + at % 2 + at // 2 % 2 * 8 * columns)
        body += f"st.global.f32 [%d5+{place}], %f{at};\n"
    registers = ".reg .f32 %f<128>; .shared .align 8 .b64 bar[2]; "
    registers += f".shared .align 1024 .b8 stage[{STAGES * STAGE_BYTES}];"
    return module(body, ["struct128 a", "struct128 b", "u64 c"], registers=registers)


def multiplied(a, b, **options):
    """C, of matrices of bfloat16 as uint16."""
    rows, depth, columns = len(a), a.shape[1], len(b)
    ptx = gemm_ptx(depth // DEPTH, columns)

    def program(fabric):
        matrices = [put(fabric, name, one) for name, one in (("a", a), ("b", b))]
        out = fabric.allocate(rows * columns * 4, 256, "c")
        maps = [
            encoded(Map("bf16", (depth, len(one)), (2 * depth,), (DEPTH, box), (1, 1), 128), at.address)
            for one, at, box in zip((a, b), matrices, (ROWS, COLUMNS), strict=True)
        ]
        start(fabric, executable(ptx), (columns // COLUMNS, rows // ROWS, 1), (128, 1, 1), [*maps, out.address])
        return get(fabric, out, "f4")

    outcome = succeed(make_world(1, **{"heap_bytes": 16 << 20, **options}), program)
    return outcome.results[0].reshape(rows, columns), outcome


def brain(values):
    """Values of float32 as bfloat16, toward zero."""
    found: np.ndarray = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return found


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)
