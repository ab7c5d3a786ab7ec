"""CuTe DSL functions whose host halves make tensor maps, for tests."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync

TILE = (16, 32)
SWIZZLES = {32: (1, 4, 3), 64: (2, 4, 3), 128: (3, 4, 3)}


@cute.kernel
def _prefetched(atom: cute.CopyAtom, tensor: cute.Tensor):
    cpasync.prefetch_descriptor(atom)


def with_a_map(shape, strides, box, swizzle=0):
    """A function that makes a map of a tensor at its pointer, and launches a kernel that gets it."""

    @cute.jit
    def launched(pointer: cute.Pointer):
        tensor = cute.make_tensor(pointer, cute.make_layout(shape, stride=strides))
        atom, part = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, _layout(box, swizzle), box)
        _prefetched(atom, part).launch(grid=[1, 1, 1], block=[32, 1, 1])

    return launched


def _layout(box, swizzle):
    rows = cute.make_layout(box)
    return cute.make_composed_layout(cute.make_swizzle(*SWIZZLES[swizzle]), 0, rows) if swizzle else rows


@cute.kernel
def _doubled(
    load: cute.CopyAtom, source: cute.Tensor, store: cute.CopyAtom, target: cute.Tensor, layout: cute.ComposedLayout
):
    memory = cutlass.memory.SmemAllocator()
    barrier = memory.allocate_array(cutlass.Int64, 1)
    tile = memory.allocate_tensor(cutlass.Float32, layout.outer, byte_alignment=1024, swizzle=layout.inner)
    warp, thread = cute.arch.make_warp_uniform(cute.arch.warp_idx()), cute.arch.thread_idx()[0]
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    at = (cute.arch.block_idx()[0], cute.arch.block_idx()[1])
    one = cute.make_layout(1)
    flat = cute.group_modes(tile, 0, 2)
    origin = cute.group_modes(cute.zipped_divide(source, TILE)[(None, None), at], 0, 2)
    goal = cute.group_modes(cute.zipped_divide(target, TILE)[(None, None), at], 0, 2)
    to_shared, from_global = cpasync.tma_partition(load, 0, one, flat, origin)
    from_shared, to_global = cpasync.tma_partition(store, 0, one, flat, goal)
    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, TILE[0] * TILE[1] * 4)
        cute.copy(load, from_global, to_shared, tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    for turn in cutlass.range_constexpr(4):
        row = thread // 32 + 4 * turn
        tile[row, thread % 32] = tile[row, thread % 32] * 2
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if thread == 0:
        cute.copy(store, from_shared, to_global)
        cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def doubled(given: cute.Tensor, out: cute.Tensor) -> None:
    """Each block doubles a tile, which it loads and stores by swizzled maps."""
    rows = cute.make_layout(TILE, stride=(TILE[1], 1))
    layout = cute.make_composed_layout(cute.make_swizzle(*SWIZZLES[128]), 0, rows)
    load, source = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), given, layout, TILE)
    store, target = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), out, layout, TILE)
    grid = [cute.ceil_div(given.shape[0], TILE[0]), cute.ceil_div(given.shape[1], TILE[1]), 1]
    _doubled(load, source, store, target, layout).launch(grid=grid, block=[128, 1, 1])
