"""Exchanges between all ranks on NVSHMEM's device functions: who may be written to, put_signal to each, waits for all.

Block b of a rank works with block b of the others, each with its part of every message, and has words of its own that
they set: `ready` (the rank's memory may be overwritten) and, for each round of messages, `arrived`; a word for each
rank. A launch has a number in each block, one more than that of the launch before (Frame.epoch), which signals carry:
so no word is ever reset. Waits are for equality, which is right when the number wraps, after 2^32 launches.

So a word must not get its next number before the rank that waits for it has seen this one. Who sets it is done with the
launch only after a message of that rank, which comes behind its wait: with `allow` that holds where every rank waits
for a message of every other (await_others, await_all). Where one rank alone gives, a rank would be done without those
that are behind, and its next `ready` would take the place of one that they wait for; they would never see it. There
`allow_one` sets and awaits the giver's words alone.

What comes before `allow` on a rank is ordered before what others put there, and what others put before what comes after
`await_all`, in the stream too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl.device_nvshmem import EQUAL, Nvshmem
from kernels.dsl.frame import Frame, each_number
from kernels.dsl.put_shares import ALIGNMENT_BYTES, READY


class Signalled:
    """A launch's exchanges. Made while a kernel is traced; rounds: number of rounds of messages (put_shares.words)."""

    def __init__(self, frame: Frame, rounds: int = 1) -> None:
        self.frame = frame
        self.shmem = Nvshmem.of(frame)
        self.number = number_of(frame)
        self.rounds = rounds

    def word(self, row: int, rank: Any) -> Any:
        """Address of the own block's word of a row (READY, or a round from 1 on) for a rank."""
        place = (self.frame.block * (1 + self.rounds) + row) * self.frame.world_size + rank
        return self.frame.address("words") + cutlass.Int64(place) * 8

    def allow(self, before: Callable[[Any], None] | None = None) -> None:
        """Tell all ranks that this rank's memory may be overwritten, and wait until all have told the same. For
        exchanges in which every rank waits for a message of every other. before(rank) is called by the thread that
        tells the rank: who has waited sees what it put there."""
        frame, shmem = self.frame, self.shmem

        def each() -> None:
            if before is not None:
                before(frame.thread)
            shmem.fence()  # signal_op orders nothing
            shmem.signal_op(self.word(READY, frame.rank), self.number, frame.thread)
            shmem.signal_wait_until(self.word(READY, frame.thread), EQUAL, self.number)

        frame.when(frame.thread < frame.world_size, each)
        sync_block()

    def allow_one(self, giver: Any) -> None:
        """Tell one rank that this rank's memory may be overwritten, and on that rank wait until all have told it. Every
        rank has to wait for its message (await_one)."""
        frame, shmem = self.frame, self.shmem

        def tell() -> None:
            shmem.fence()  # signal_op orders nothing
            shmem.signal_op(self.word(READY, frame.rank), self.number, giver)

        frame.when(frame.thread == 0, tell)
        self._await_if((frame.rank == giver) & (frame.thread < frame.world_size), READY)

    def give(self, target: Any, source: Any, size_bytes: Any, rank: Any, round: int = 1) -> None:
        """Put the block's part of a message of size_bytes to a rank, and its signal behind it. source: own memory;
        target: the own address of the rank's."""
        start, size = part_of_block(self.frame, size_bytes)
        signal = self.word(round, self.frame.rank)
        self.shmem.put_signal(target + start, source + start, size, signal, self.number, rank)

    def each_rank(self, body: Callable[[Any], None]) -> None:
        """Call body(rank) for all ranks, from the next one on and with the own last, for all threads alike."""
        self._each(self.frame.world_size, body)

    def each_other(self, body: Callable[[Any], None]) -> None:
        """The same without the own."""
        self._each(self.frame.world_size - 1, body)

    def _each(self, count: int, body: Callable[[Any], None]) -> None:
        frame = self.frame
        first = frame.after(frame.rank, 1 % frame.world_size)

        def each(number: Any, _index: Any, _lanes: Any) -> None:
            body(frame.after(first, number))

        each_number(cutlass.Int32(0), count, 1, frame.index, frame.lanes, each)

    def slice_of(self, rank: Any) -> tuple[Any, Any]:
        """Return where a rank's slice of the buffer begins, and its size, both Int64 in bytes (put_shares.owner)."""
        size = self.frame.size
        step = self.slice_bytes
        start = cutlass.Int64(rank) * step
        start = cutlass.select_(start < size, start, size)
        rest = size - start
        return start, cutlass.select_(rest < step, rest, step)

    @property
    def slice_bytes(self) -> Any:
        """put_shares.slice_bytes of the buffer."""
        every = self.frame.world_size * ALIGNMENT_BYTES
        return (self.frame.size + every - 1) // every * ALIGNMENT_BYTES

    def contribute(self, source: Any, size_bytes: Any, most_bytes: Any, rank: Any) -> None:
        """give() a contribution of own memory to the row for this rank in a rank's workspace "scratch", with source's
        16-byte boundaries. A rank's rows are in the order of the ranks after it, without its own; each has room for
        most_bytes, the same on all ranks."""
        frame = self.frame
        row = frame.steps(rank, frame.rank) - 1
        place = frame.address("scratch") + cutlass.Int64(row) * _row_bytes(most_bytes)
        self.give(place + (source & (ALIGNMENT_BYTES - 1)), source, size_bytes, rank)

    def reduce(self, own: Any, size_bytes: Any, most_bytes: Any, output: Any) -> None:
        """Reduce the block's part of the contributions of all ranks, after await_others, to output, in the order of
        their rows; own: this rank's, the last."""
        frame = self.frame
        start, size = part_of_block(frame, size_bytes)
        rows = frame.address("scratch") + (own & (ALIGNMENT_BYTES - 1)) + start
        frame.index, frame.lanes = cutlass.Int64(frame.thread), cutlass.Int64(frame.threads)
        contributions = frame.rows(rows, _row_bytes(most_bytes), own + start)
        span = frame.span(own + start, size)
        target = frame.at(output + start)
        frame.reduce(span, contributions, target, frame.aligned(own, output))
        frame.reduce_edges(span, contributions, target)
        sync_block()

    def sum_place(self, root: Any, own: Any, output: Any) -> Any:
        """Return where this rank's sum goes: to output on the root, elsewhere to the row in its workspace "sum", with
        own's 16-byte boundaries."""
        row = self.frame.address("sum") + (own & (ALIGNMENT_BYTES - 1))
        return cutlass.select_(self.frame.rank == root, output, row)

    def await_others(self, round: int = 1) -> None:
        """await_all, without the own."""
        frame = self.frame
        is_other = (frame.thread < frame.world_size) & (frame.thread != frame.rank)
        self._await_if(is_other, round)

    def await_all(self, round: int = 1) -> None:
        """Wait for the block's part of the messages of all ranks."""
        self._await_if(self.frame.thread < self.frame.world_size, round)

    def await_one(self, rank: Any, round: int = 1) -> None:
        """Wait for the block's part of the message of one rank."""
        frame, word = self.frame, self.word(round, rank)
        frame.when(frame.thread == 0, lambda: self.shmem.signal_wait_until(word, EQUAL, self.number))
        sync_block()

    def _await_if(self, condition: Any, round: int) -> None:
        """Threads wait for the rank of their number, on a condition."""
        word = self.word(round, self.frame.thread)
        self.frame.when(condition, lambda: self.shmem.signal_wait_until(word, EQUAL, self.number))
        sync_block()


def _row_bytes(size_bytes: Any) -> Any:
    """put_shares.row_bytes on the device."""
    return (size_bytes + 2 * ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


def number_of(frame: Frame) -> Any:
    """Return the number of this launch as signals carry it, Uint64 below 2^32. The frame keeps it for the next one
    (Frame.keep_epoch)."""
    frame.epoch += 1
    return cutlass.Uint64(cutlass.Uint32(frame.epoch))


def part_of_block(frame: Frame, size_bytes: Any) -> tuple[Any, Any]:
    """Return where the block's part of size_bytes begins, and its size, both Int64 in bytes; the last parts may be
    smaller, or empty."""
    every = frame.blocks * ALIGNMENT_BYTES
    step = (size_bytes + every - 1) // every * ALIGNMENT_BYTES
    start = cutlass.Int64(frame.block) * step
    start = cutlass.select_(start < size_bytes, start, size_bytes)
    rest = size_bytes - start
    return start, cutlass.select_(rest < step, rest, step)


def sync_block() -> None:
    """Barrier of the block's threads."""
    cute.arch.sync_threads()
