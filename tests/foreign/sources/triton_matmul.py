"""A matrix product in Triton: of wgmma for Hopper, of mma.sync for GPUs before it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    along = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        left = tl.load(a + row[:, None] * depth + (start + along)[None, :])
        right = tl.load(b + (start + along)[:, None] * columns + column[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * columns + column[None, :], total)
