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

COPIES_IN_FLIGHT = 8
"""Vectors of its own memory that a thread loads before it stores the first to another rank's."""


class TwoShot(AllReduce):
    """push: contributions are stored to their owner's scratch, not loaded by it.

    peer_loads: one of device.PEER_LOADS. entry_signal: "release", or for trials "relaxed".
    """

    def __init__(
        self,
        world_size: int,
        dtype: str,
        accumulator: str,
        threads: int,
        unroll: int,
        peer_loads: str = "weak",
        entry_signal: str = "release",
        push: bool = False,
    ) -> None:
        super().__init__(world_size, dtype, accumulator, threads, unroll)
        self.load = partial(device.load_vector, kind=peer_loads)
        self.entry_signal = entry_signal
        self.push = push

    @cute.jit
    def __call__(
        self,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        scratch_peers: cute.Pointer,
        signal_peers: cute.Pointer,
        signals: cute.Pointer,
        epochs: cute.Pointer,
        status: cute.Pointer,
        numel: cutlass.Int64,
        rank: cutlass.Int32,
        patience: cutlass.Int64,
        blocks: cutlass.Int32,
    ) -> None:
        memory = (input_peers, output_peers, scratch_peers, signal_peers, signals, epochs, status)
        self.kernel(*memory, numel, rank, patience).launch(
            grid=[blocks, 1, 1], block=[self.threads, 1, 1], min_blocks_per_mp=1
        )

    @cute.kernel
    def kernel(
        self,
        input_peers: cute.Pointer,
        output_peers: cute.Pointer,
        scratch_peers: cute.Pointer,
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
        tables = (input_peers.toint(), output_peers.toint(), scratch_peers.toint())
        inputs, outputs, contributions = self.bring(frame, barrier, rank, *tables)

        slice_begin, slice_end = slice_of(frame.size, rank, self.world_size)
        reduce = partial(self.reduce, contributions, outputs)
        each_vector(slice_begin + frame.index * VECTOR_BYTES, slice_end, frame.step, self.unroll, reduce)
        offset = frame.end + frame.index * self.itemsize
        if rank == self.world_size - 1 and offset < frame.size:
            self.reduce_element(inputs, outputs, offset)
        frame.leave(barrier)

    def bring(
        self, frame: Frame, barrier: OverPeers, rank: Any, input_peers: Any, output_peers: Any, scratch_peers: Any
    ) -> tuple[Peers, Peers, Peers]:
        """All inputs, all outputs, and where this rank finds what it adds: from here on it may."""
        first = cutlass.select_(rank == self.world_size - 1, cutlass.Int32(0), rank + 1)
        if self.push:
            inputs = Peers(input_peers, first, self.world_size)
            contributions = self.exchange(frame, rank, inputs, Peers(scratch_peers, first, self.world_size))
            outputs = Peers(output_peers, first, self.world_size)
            frame.meet(barrier)
            return inputs, outputs, contributions
        frame.arrive(barrier)
        inputs = Peers(input_peers, first, self.world_size)
        outputs = Peers(output_peers, first, self.world_size)
        frame.wait(barrier)
        return inputs, outputs, inputs

    def exchange(self, frame: Frame, rank: Any, inputs: Peers, scratch: Peers) -> Peers:
        """Store this rank's contribution to each other slice to its owner, in the owner's row for this rank.

        Row i of a rank's scratch is for rank + 1 + i, the order in which it adds. Gives where this rank finds its own.
        """
        others = self.world_size - 1
        vectors = cutlass.Uint64(frame.size) >> 4
        row_bytes = cutlass.Int64((vectors + others) // self.world_size) * VECTOR_BYTES
        own = inputs.addresses[others]
        for number in range(others):
            begin, end = slice_of(frame.size, scratch.rank(number), self.world_size)
            target = scratch.addresses[number] + row_bytes * (others - 1 - number) - begin
            copy = partial(self.copy, own, target)
            each_vector(begin + frame.index * VECTOR_BYTES, end, frame.step, COPIES_IN_FLIGHT, copy)
        begin, _ = slice_of(frame.size, rank, self.world_size)
        return Peers.at([*(scratch.addresses[others] + row_bytes * row - begin for row in range(others)), own])

    def copy(self, source: Any, target: Any, offsets: Sequence[Any]) -> None:
        """One vector at each byte offset, from own memory to anywhere."""
        vectors = [device.load_vector(source + offset) for offset in offsets]
        for offset, vector in zip(offsets, vectors, strict=True):
            device.store_vector(target + offset, vector)

    def reduce(self, contributions: Peers, outputs: Peers, offsets: Sequence[Any]) -> None:
        """The sum of one vector at each byte offset, to all ranks' outputs."""
        for offset, words in zip(offsets, contributions.fold(self.total, offsets, self.load), strict=True):
            outputs.store(offset, words, device.store_vector)

    def reduce_element(self, inputs: Peers, outputs: Peers, offset: Any) -> None:
        """The same for a single element."""
        (words,) = inputs.fold(self.total, [offset], lambda address: [device.load_element(address, self.itemsize)])
        outputs.store(offset, words[0], partial(device.store_element, itemsize=self.itemsize))
