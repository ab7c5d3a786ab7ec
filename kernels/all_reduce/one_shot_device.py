"""The device half of all_reduce/one_shot: see one_shot.py for the design."""

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
from kernels.traverse import VECTOR_BYTES, each_vector


class OneShot(AllReduce):
    """peer_loads: one of device.PEER_LOADS. entry_signal, exit_signal: "release", or for trials "relaxed"."""

    def __init__(
        self,
        world_size: int,
        dtype: str,
        accumulator: str,
        threads: int,
        unroll: int,
        peer_loads: str = "weak",
        entry_signal: str = "release",
        exit_signal: str = "release",
    ) -> None:
        super().__init__(world_size, dtype, accumulator, threads, unroll)
        self.contributors = world_size
        self.load = partial(device.load_vector, kind=peer_loads)
        self.entry_signal = entry_signal
        self.exit_signal = exit_signal

    @cute.jit
    def __call__(
        self,
        input_peers: cute.Pointer,
        output: cute.Pointer,
        signal_peers: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        status: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        patience: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        self.kernel(input_peers, output, signal_peers, signals, epochs, status, numel, rank, patience).launch(
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
        barrier = OverPeers(thread, watch, *places, self.entry_signal, self.exit_signal)
        frame.arrive(barrier)
        inputs = Peers(input_peers.toint(), 0, self.contributors)
        frame.wait(barrier)

        reduce = partial(self.reduce, inputs, output.toint())
        each_vector(frame.index * VECTOR_BYTES, frame.end, frame.step, self.unroll, reduce)
        offset = frame.end + frame.index * self.itemsize
        if offset < frame.size:
            self.reduce_element(inputs, output.toint(), offset)
        frame.leave(barrier)

    def reduce(self, inputs: Peers, output: Any, offsets: Sequence[Any]) -> None:
        """The sum of one vector at each byte offset, to this rank's output."""
        for offset, words in zip(offsets, inputs.fold(self.total, offsets, self.load), strict=True):
            device.store_vector(output + offset, words)

    def reduce_element(self, inputs: Peers, output: Any, offset: Any) -> None:
        """The same for a single element."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_element(address, self.itemsize)])
        device.store_element(output + offset, words[0], self.itemsize)
