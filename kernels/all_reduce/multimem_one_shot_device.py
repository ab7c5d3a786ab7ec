"""The device half of all_reduce/multimem_one_shot: see multimem_one_shot.py for the design."""

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


class MultimemOneShot:
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
        self.accumulate_float32 = self.total.wide

    @cute.jit
    def __call__(
        self,
        input_multicast: cute.Pointer,
        input_peers: cute.Pointer,
        output: cute.Pointer,
        signals_multicast: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        numel: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(input_multicast, input_peers, output, signals_multicast, signals, epochs, numel).launch(
            grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self,
        input_multicast: cute.Pointer,
        input_peers: cute.Pointer,
        output: cute.Pointer,
        signals_multicast: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        numel: cutlass.Int64,
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
        words_end = size & -4

        if cutlass.const_expr(self.entry_barrier):
            epoch += 1
            barrier.over_multicast(thread, block, epoch, signals_multicast.toint(), signals.toint(), self.world_size)

        reduce = partial(self.reduce, input_multicast.toint(), output.toint())
        each_vector(index * VECTOR_BYTES, end, step, self.unroll, reduce)
        offset = end + index * 4
        if offset < words_end:
            word = device.multimem_sum_word(input_multicast.toint() + offset, self.dtype, self.accumulate_float32)
            device.store_word(output.toint() + offset, word)
        if cutlass.const_expr(self.itemsize == 2):
            if index == 0 and words_end < size:
                self.reduce_element(Peers(input_peers.toint(), 0, self.world_size), output.toint(), words_end)

        if cutlass.const_expr(self.exit_barrier):
            epoch += 1
            barrier.over_multicast(thread, block, epoch, signals_multicast.toint(), signals.toint(), self.world_size)
        if thread == 0:
            device.store_word(epoch_address, epoch)

    def reduce(self, inputs: Any, output: Any, offsets: Sequence[Any]) -> None:
        """The switch's sum of one vector at each byte offset, to this rank's output; all loads come first."""
        sums = [device.multimem_sum_vector(inputs + at, self.dtype, self.accumulate_float32) for at in offsets]
        for offset, words in zip(offsets, sums, strict=True):
            device.store_vector(output + offset, words)

    def reduce_element(self, inputs: Peers, output: Any, offset: Any) -> None:
        """The sum of a single 16-bit element, folded here."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_half_word(address)])
        device.store_half_word(output + offset, words[0])
