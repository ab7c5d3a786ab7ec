"""Kernels of CuTe DSL for tests of symlab.simulate."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute


@cute.kernel
def _scaled(x: cute.Pointer, y: cute.Pointer, count: cutlass.Int32, factor: cutlass.Float32):
    at = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if at < count:
        cute.make_tensor(y, cute.make_layout(512))[at] = cute.make_tensor(x, cute.make_layout(512))[at] * factor


@cute.jit
def scaled(
    x: cute.Pointer, y: cute.Pointer, count: cutlass.Int32, factor: cutlass.Float32, blocks: cutlass.Int32
) -> None:
    """Scale count elements; blocks is for the host alone."""
    _scaled(x, y, count, factor).launch(grid=[blocks, 1, 1], block=[128, 1, 1])


@cute.jit
def twice(x: cute.Pointer, y: cute.Pointer, count: cutlass.Int32, factor: cutlass.Float32) -> None:
    """Launch two kernels."""
    _scaled(x, y, count, factor).launch(grid=[1, 1, 1], block=[128, 1, 1])
    _scaled(y, x, count, factor).launch(grid=[1, 1, 1], block=[64, 1, 1])
