"""What the four all_reduce kernels have in common: host choices, a thread's place in the launch, and both barriers."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels import device
from kernels.arithmetic import Sum
from kernels.barrier import OverMulticast, OverPeers
from kernels.status import ENTRY, EXIT, MIDDLE
from kernels.traverse import VECTOR_BYTES


class AllReduce:
    """Host choices of one compiled variant; a test may take a barrier out, to prove that it is missed."""

    entry_barrier = True
    exit_barrier = True

    def __init__(self, world_size: int, dtype: str, accumulator: str, threads: int, unroll: int) -> None:
        self.world_size = world_size
        self.dtype = dtype
        self.total = Sum(dtype, accumulator)
        self.itemsize = 4 if dtype == "float32" else 2
        self.threads = threads
        self.unroll = unroll


class Frame:
    """One thread's place in a launch, and what is done at both ends of the kernel. Made while a kernel is traced.

    index counts the grid's threads, step is the distance in bytes between two vectors of one thread; size, end: bytes
    of the buffer and of its full vectors. Call arrive, wait, do the work, and leave, in this order.
    """

    def __init__(self, kernel: AllReduce, block: Any, thread: Any, epochs: Any, numel: Any) -> None:
        grid, _, _ = cute.arch.grid_dim()
        self.kernel = kernel
        self.thread = thread
        self.epoch_address = epochs + cutlass.Int64(block) * 4
        self.epoch = device.load_word(self.epoch_address)
        self.index = cutlass.Int64(block * kernel.threads + thread)
        self.step = cutlass.Int64(grid * kernel.threads) * VECTOR_BYTES
        self.size = numel * kernel.itemsize
        self.end = self.size & -VECTOR_BYTES

    def arrive(self, barrier: OverPeers | OverMulticast) -> None:
        """Tell the other ranks that this one's inputs are written and its outputs may be."""
        if self.kernel.entry_barrier:
            self.epoch += 1
            barrier.arrive(self.epoch, ENTRY)

    def wait(self, barrier: OverPeers | OverMulticast) -> None:
        """Wait until all other ranks have told the same."""
        if self.kernel.entry_barrier:
            barrier.wait(self.epoch, ENTRY)

    def meet(self, barrier: OverPeers) -> None:
        """In place of arrive and wait, between two halves of the work: what all ranks did in the first is seen."""
        if self.kernel.entry_barrier:
            self.epoch += 1
            barrier.arrive(self.epoch, MIDDLE)
            barrier.wait(self.epoch, MIDDLE)

    def leave(self, barrier: OverPeers | OverMulticast) -> None:
        """Wait until all ranks have done their work; the last epoch used is kept for the next launch."""
        if self.kernel.exit_barrier:
            self.epoch += 1
            barrier.arrive(self.epoch, EXIT)
        keep(self.thread, self.epoch_address, self.epoch)
        if self.kernel.exit_barrier:
            barrier.wait(self.epoch, EXIT)


@cute.jit
def keep(thread: cutlass.Int32, address: cutlass.Int64, epoch: cutlass.Int32) -> None:
    if thread == 0:
        device.store_word(address, epoch)
