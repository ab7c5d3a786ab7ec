"""The device half of all_reduce/one_shot: see one_shot.py for the design."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels import barrier, device
from kernels.arithmetic import Sum
from kernels.peers import Peers
from kernels.traverse import VECTOR_BYTES, each_vector


class OneShot:
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
        self.contributors = world_size

    @cute.jit
    def __call__(
        self,
        input_peers: cute.Pointer,
        output: cute.Pointer,
        signal_peers: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(input_peers, output, signal_peers, signals, epochs, numel, rank).launch(
            grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self,
        input_peers: cute.Pointer,
        output: cute.Pointer,
        signal_peers: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        grid, _, _ = cute.arch.grid_dim()
        epoch_address = epochs.toint() + cutlass.Int64(block) * 4
        epoch = device.load_word(epoch_address)
        index = cutlass.Int64(block * self.threads + thread)
        step = cutlass.Int64(grid * self.threads) * VECTOR_BYTES
        size = numel * self.itemsize
        end = size & -VECTOR_BYTES
        inputs = Peers(input_peers.toint(), 0, self.contributors)

        if cutlass.const_expr(self.entry_barrier):
            epoch += 1
            barrier.over_peers(thread, block, rank, epoch, signal_peers.toint(), signals.toint(), self.world_size)

        reduce = partial(self.reduce, inputs, output.toint())
        each_vector(index * VECTOR_BYTES, end, step, self.unroll, reduce)
        offset = end + index * self.itemsize
        if offset < size:
            self.reduce_element(inputs, output.toint(), offset)

        if cutlass.const_expr(self.exit_barrier):
            epoch += 1
            barrier.over_peers(thread, block, rank, epoch, signal_peers.toint(), signals.toint(), self.world_size)
        if thread == 0:
            device.store_word(epoch_address, epoch)

    def reduce(self, inputs: Peers, output: Any, offsets: Sequence[Any]) -> None:
        """The sum of one vector at each byte offset, to this rank's output."""
        for offset, words in zip(offsets, inputs.fold(self.total, offsets, device.load_vector), strict=True):
            device.store_vector(output + offset, words)

    def reduce_element(self, inputs: Peers, output: Any, offset: Any) -> None:
        """The same for a single element."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_element(address, self.itemsize)])
        device.store_element(output + offset, words[0], self.itemsize)
