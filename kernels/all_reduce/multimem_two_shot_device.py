"""The device half of all_reduce/multimem_two_shot: see multimem_two_shot.py for the design."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels import device
from kernels.all_reduce.frame_device import AllReduce, Frame
from kernels.peers import Peers
from kernels.signals import OverMulticast, Watch
from kernels.traverse import VECTOR_BYTES, each_vector, slice_of


class MultimemTwoShot(AllReduce):
    """accumulate_float32: whether the switch is asked for at least float32 inside its sums."""

    def __init__(self, world_size: int, dtype: str, accumulator: str, threads: int, unroll: int) -> None:
        super().__init__(world_size, dtype, accumulator, threads, unroll)
        self.accumulate_float32 = self.total.wide

    @cute.jit
    def __call__(
        self,
        input_multicast: cute.Pointer,
        output_multicast: cute.Pointer,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        signals_multicast: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        status: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        patience: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(
            input_multicast,
            output_multicast,
            input_peers,
            output_peers,
            signals_multicast,
            signals,
            epochs,
            status,
            numel,
            rank,
            patience,
        ).launch(grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1)

    @cute.kernel
    def kernel(
        self,
        input_multicast: cute.Pointer,
        output_multicast: cute.Pointer,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        signals_multicast: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        status: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        patience: cutlass.Int64,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        frame = Frame(self, block, thread, epochs.toint(), numel)
        watch = Watch(rank, block, status.toint(), patience)
        barrier = OverMulticast(thread, watch, signals_multicast.toint(), signals.toint(), self.world_size)
        frame.arrive(barrier)
        words_end = frame.size & -4
        slice_begin, slice_end = slice_of(frame.size, rank, self.world_size)
        frame.wait(barrier)

        reduce = partial(self.reduce, input_multicast.toint(), output_multicast.toint())
        each_vector(slice_begin + frame.index * VECTOR_BYTES, slice_end, frame.step, self.unroll, reduce)
        if rank == self.world_size - 1:
            offset = frame.end + frame.index * 4
            if offset < words_end:
                word = device.multimem_sum_word(input_multicast.toint() + offset, self.dtype, self.accumulate_float32)
                device.multimem_store_word(output_multicast.toint() + offset, word, self.dtype)
            if cutlass.const_expr(self.itemsize == 2):
                if frame.index == 0 and words_end < frame.size:
                    inputs = Peers(input_peers.toint(), 0, self.world_size)
                    self.reduce_element(inputs, Peers(output_peers.toint(), 0, self.world_size), words_end)

        frame.leave(barrier)

    def reduce(self, inputs: Any, outputs: Any, offsets: Sequence[Any]) -> None:
        """The switch's sum of one vector at each byte offset, to all ranks; all loads come first."""
        sums = [device.multimem_sum_vector(inputs + at, self.dtype, self.accumulate_float32) for at in offsets]
        for offset, words in zip(offsets, sums, strict=True):
            device.multimem_store_vector(outputs + offset, words, self.dtype)

    def reduce_element(self, inputs: Peers, outputs: Peers, offset: Any) -> None:
        """The sum of a single 16-bit element, folded here, to all ranks."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_half_word(address)])
        outputs.store(offset, words[0], device.store_half_word)
