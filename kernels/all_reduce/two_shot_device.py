"""The device half of all_reduce/two_shot: see two_shot.py for the design."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels import device
from kernels.all_reduce.frame_device import AllReduce, Frame
from kernels.barrier import OverPeers, Watch
from kernels.peers import Peers
from kernels.traverse import VECTOR_BYTES, each_vector, slice_of


class TwoShot(AllReduce):
    """peer_loads: one of device.PEER_LOADS. entry_signal: "release", or for trials "relaxed"."""

    def __init__(
        self,
        world_size: int,
        dtype: str,
        accumulator: str,
        threads: int,
        unroll: int,
        peer_loads: str = "weak",
        entry_signal: str = "release",
    ) -> None:
        super().__init__(world_size, dtype, accumulator, threads, unroll)
        self.load = partial(device.load_vector, kind=peer_loads)
        self.entry_signal = entry_signal

    @cute.jit
    def __call__(
        self,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        signal_peers: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        status: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        patience: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(input_peers, output_peers, signal_peers, signals, epochs, status, numel, rank, patience).launch(
            grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        signal_peers: cute.Pointer,
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
        places = (signal_peers.toint(), signals.toint(), self.world_size)
        barrier = OverPeers(thread, watch, *places, self.entry_signal)
        frame.arrive(barrier)
        first = cutlass.select_(rank == self.world_size - 1, cutlass.Int32(0), rank + 1)
        inputs = Peers(input_peers.toint(), first, self.world_size)
        outputs = Peers(output_peers.toint(), first, self.world_size)
        slice_begin, slice_end = slice_of(frame.size, rank, self.world_size)
        frame.wait(barrier)

        reduce = partial(self.reduce, inputs, outputs)
        each_vector(slice_begin + frame.index * VECTOR_BYTES, slice_end, frame.step, self.unroll, reduce)
        offset = frame.end + frame.index * self.itemsize
        if rank == self.world_size - 1 and offset < frame.size:
            self.reduce_element(inputs, outputs, offset)
        frame.leave(barrier)

    def reduce(self, inputs: Peers, outputs: Peers, offsets: Sequence[Any]) -> None:
        """The sum of one vector at each byte offset, to all ranks' outputs."""
        for offset, words in zip(offsets, inputs.fold(self.total, offsets, self.load), strict=True):
            outputs.store(offset, words, device.store_vector)

    def reduce_element(self, inputs: Peers, outputs: Peers, offset: Any) -> None:
        """The same for a single element."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_element(address, self.itemsize)])
        outputs.store(offset, words[0], partial(device.store_element, itemsize=self.itemsize))
