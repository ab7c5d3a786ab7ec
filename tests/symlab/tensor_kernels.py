"""Functions of CuTe DSL with cute.Tensor parameters, which launch with grids and blocks of their own, for tests."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.memory import SmemAllocator

THREADS = 128


@cute.kernel
def _added(
    left: cute.Tensor, right: cute.Tensor, out: cute.Tensor, places: cute.Tensor, shape: cute.Shape, layout: cute.Layout
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile = ((None, None), block)
    parts = [cute.composition(one[tile], layout)[thread, None] for one in (left, right, out, places)]
    inside = cute.make_rmem_tensor(parts[3].shape, cutlass.Boolean)
    for at in cutlass.range_constexpr(cute.size(inside)):
        inside[at] = cute.elem_less(parts[3][at], shape)
    for at in cutlass.range_constexpr(cute.size(inside)):
        if inside[at]:
            parts[2][at] = parts[0][at] + parts[1][at]


@cute.jit
def added(left: cute.Tensor, right: cute.Tensor, out: cute.Tensor) -> None:
    """Add matrices, in tiles that a layout of threads and values covers."""
    threads = cute.make_ordered_layout((4, 32), order=(1, 0))
    values = cute.make_ordered_layout((4, 4), order=(1, 0))
    tiler, layout = cute.make_layout_tv(threads, values)
    tiles = [cute.zipped_divide(one, tiler) for one in (left, right, out)]
    places = cute.zipped_divide(cute.make_identity_tensor(out.shape), tiler=tiler)
    _added(tiles[0], tiles[1], tiles[2], places, out.shape, layout).launch(
        grid=[cute.size(tiles[2], mode=[1]), 1, 1], block=[cute.size(layout, mode=[0]), 1, 1]
    )


@cute.kernel
def _row_sums(rows: cute.Tensor, sums: cute.Tensor, scale: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    partial = SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(THREADS), byte_alignment=16)
    total = cutlass.Float32(0)
    for column in cutlass.range(thread, cute.size(rows, mode=[1]), THREADS):
        total = total + rows[row, column]
    partial[thread] = total
    cute.arch.sync_threads()
    step = THREADS // 2
    for _ in cutlass.range_constexpr(7):
        if thread < step:
            partial[thread] = partial[thread] + partial[thread + step]
        cute.arch.sync_threads()
        step = step // 2
    if thread == 0:
        sums[row] = partial[0] * scale


@cute.jit
def row_sums(rows: cute.Tensor, sums: cute.Tensor, scale: cutlass.Constexpr) -> None:
    """Sum each row of a matrix through shared memory; scale is a constant of the code."""
    _row_sums(rows, sums, scale).launch(grid=[cute.size(rows, mode=[0]), 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def _total(inputs: list[cute.Tensor], out: cute.Tensor):
    at = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if at < cute.size(out):
        total = cutlass.Float32(0)
        for peer in cutlass.range_constexpr(len(inputs)):
            total = total + inputs[peer][at].to(cutlass.Float32)
        out[at] = total.to(out.element_type)


@cute.jit
def total(inputs: list[cute.Tensor], out: cute.Tensor) -> None:
    """All ranks' inputs, added in rank order: an all_reduce that each rank does for itself."""
    _total(inputs, out).launch(grid=[cute.ceil_div(cute.size(out), THREADS), 1, 1], block=[THREADS, 1, 1])


@cute.jit
def total_of_pair(inputs: tuple[cute.Tensor, cute.Tensor], out: cute.Tensor) -> None:
    """The same of two ranks, as a tuple."""
    _total([inputs[0], inputs[1]], out).launch(
        grid=[cute.ceil_div(cute.size(out), THREADS), 1, 1], block=[THREADS, 1, 1]
    )


@cute.jit
def in_a_cluster(out: cute.Tensor) -> None:
    """Note the number of its block in each element, in clusters of two blocks."""
    _noted(out).launch(grid=[4, 1, 1], block=[32, 1, 1], cluster=[2, 1, 1])


@cute.kernel
def _noted(out: cute.Tensor):
    block = cute.arch.block_idx()[0]
    out[block * 32 + cute.arch.thread_idx()[0]] = block


@cute.jit
def none(out: cute.Tensor, is_launched: cutlass.Int32) -> None:
    """Launch a kernel if it is asked to."""
    if is_launched:
        _noted(out).launch(grid=[4, 1, 1], block=[32, 1, 1])


class Filled:
    """A callable with a constant of its own, as kernels of libraries are."""

    def __init__(self, value: float) -> None:
        self.value = value

    @cute.jit
    def __call__(self, out: cute.Tensor) -> None:
        self.kernel(out).launch(grid=[cute.size(out, mode=[0]), 1, 1], block=[cute.size(out, mode=[1]), 1, 1])

    @cute.kernel
    def kernel(self, out: cute.Tensor) -> Any:
        out[cute.arch.block_idx()[0], cute.arch.thread_idx()[0]] = cutlass.Float32(self.value)
