"""CuTe DSL functions whose host halves compute what they launch, for tests."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute


@cute.kernel
def _store(first: cute.Pointer, second: cute.Pointer, count: cutlass.Int32):
    at = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if at < count:
        cute.make_tensor(second, cute.make_layout(1024))[at] = cute.make_tensor(first, cute.make_layout(1024))[at]


@cute.kernel
def _note(out: cute.Pointer):
    cute.make_tensor(out, cute.make_layout(1024))[cute.arch.thread_idx()[0]] = cutlass.Float32(1)


@cute.jit
def offset(first: cute.Pointer, second: cute.Pointer, count: cutlass.Int32) -> None:
    """The kernel gets the second pointer, 100 elements on, before the first."""
    _store(second + 100, first, count).launch(grid=[cute.ceil_div(count, 128), 1, 1], block=[128, 1, 1], smem=64)


@cute.jit
def in_clusters(out: cute.Pointer) -> None:
    _note(out).launch(grid=[8, 1, 1], block=[32, 2, 1], cluster=[2, 1, 1])


@cute.jit
def if_asked(out: cute.Pointer, asked: cutlass.Int32) -> None:
    if asked > 0:
        _note(out).launch(grid=[3, 1, 1], block=[32, 1, 1])


@cute.jit
def often(out: cute.Pointer, times: cutlass.Int32) -> None:
    for _ in cutlass.range(times, unroll=1):
        _note(out).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.jit
def by_address(first: cute.Pointer, second: cute.Pointer) -> None:
    blocks = cutlass.Int32((second.toint() >> 12) & 1023) + 1
    _note(first).launch(grid=[blocks, 1, 1], block=[32, 1, 1])
