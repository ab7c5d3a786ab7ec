"""Kernels in Numba: a reduction whose last block adds what the blocks found."""

from __future__ import annotations

from numba import cuda, float32, int32

THREADS = 128
WARPS = THREADS // 32


def total(x, partial, arrived, out):
    """out[0] = sum of x: warps by shuffles, a block through shared memory, the grid by a ticket."""
    of_warp = cuda.shared.array(WARPS, float32)
    ticket = cuda.shared.array(1, int32)
    thread = cuda.threadIdx.x
    found = float32(0)
    for at in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        found += x[at]
    step = 16
    while step:
        found += cuda.shfl_down_sync(0xFFFFFFFF, found, step)
        step >>= 1
    if thread % 32 == 0:
        of_warp[thread // 32] = found
    cuda.syncthreads()
    if thread == 0:
        found = float32(0)
        for warp in range(WARPS):
            found += of_warp[warp]
        partial[cuda.blockIdx.x] = found
        cuda.threadfence()
        ticket[0] = cuda.atomic.add(arrived, 0, 1)
    cuda.syncthreads()
    if ticket[0] == cuda.gridDim.x - 1 and thread == 0:
        cuda.threadfence()
        found = float32(0)
        for block in range(cuda.gridDim.x):
            found += partial[block]
        out[0] = found


def largest(x, out):
    """out[0] = (maximum of x), by atomics of shared memory and then of global memory."""
    of_block = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        of_block[0] = -(2**31)
    cuda.syncthreads()
    for at in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.max(of_block, 0, x[at])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(out, 0, of_block[0])
