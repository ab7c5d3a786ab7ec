"""Pieces that are sent in rounds and added as they arrive, so that links and own memory are busy together.

Without rounds an owner adds after the last byte has come, and the links rest meanwhile. Here some warps of a block send
and the others add what peers have sent before. Two ways to send:

- By bulk copies: one thread, the mover, copies the block's pieces through shared memory to peers (kernels/dsl/bulk.py);
  all warps but its own add. A round is as many pieces as there are stages.
- By stores: as many warps store as add, and one more signals.

Either way a thread that adds has all its vectors of a round in flight.

Protocol. Block b of a rank sends to block b of its peers, and counts rounds on the flags and by the epochs of the
barriers over ranks (kernels/dsl/rank_barriers.py): round r of a launch has arrived when the sender's flag is r + 1
beyond the launch's first epoch, and the exit barrier takes the epoch after the last round's. The number of rounds
follows from the message's bytes and the grid alone, so all ranks count alike; it is one at least, also where there are
no bytes.

Order. One release at system scope serves a whole round, because it takes longer than a piece (0.6 us on H200, 1.5 us on
H100; 2 GPUs, 2026-11-22).
- By bulk copies: a round's copies are complete when cp.async.bulk.wait_group, without .read, has let the mover pass:
  then they are its writes like others, and its release passes them on. That wait leaves the copies of the round after
  it under way, so the link is not idle while the mover waits and signals.
- By stores: a named barrier of the warps that store and the one that signals orders the stores before its release. The
  warps that store go on to the next round meanwhile.
- Each warp that adds polls by its own lanes, a lane for each sender, with acquire loads; bar.warp.sync passes on what a
  lane acquired to the others, so these warps do not wait for one another. What they read by ordinary loads may have
  been written by the proxy of bulk copies: the wait for completion has a proxy fence in it, on the writer's side.

What peers store into is free at once: their exit barrier of the launch before was passed by all ranks when this one's
ended. The fence.proxy.async at the mover's beginning orders its copies after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import bulk, device
from kernels.dsl.peers import Peers
from kernels.dsl.rank_barriers import wait_for
from kernels.dsl.slots import WARP
from kernels.dsl.status import MIDDLE
from kernels.dsl.traverse import Span, when
from kernels.shares import VECTOR_BYTES

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

SENDERS = 1
"""The named barrier of the warps that send by stores."""

LOADS_TOGETHER = 16
"""Vectors that a thread loads before its first addition, at most: of all senders and its own."""


class Pieces:
    """Messages of a number of bytes that others send and this rank adds, in rounds. Made while a kernel is traced, once
    a kernel. Call send and add, where a rank does so, and then end.

    by_stores: warps send, as many as add; else the mover does by bulk copies.
    """

    def __init__(self, frame: Frame, size_bytes: Any, by_stores: bool = False) -> None:
        self.frame = frame
        self.by_stores = by_stores
        senders = (frame.threads // WARP - 1) // 2 * WARP
        if by_stores and not senders:
            raise ValueError(f"{frame.threads} threads: a warp that stores, one that signals and one that adds take 96")
        self.adders = senders if by_stores else frame.threads - WARP
        self.count = frame.unroll
        self.lane = Int64(frame.block * self.adders + frame.thread)
        self.step = Int64(frame.blocks * self.adders) * VECTOR_BYTES
        a_round = cutlass.Uint64(self.step * self.count)
        rounds = Int32((cutlass.Uint64(size_bytes) + a_round - 1) // a_round)
        self.rounds = cutlass.select_(rounds < 1, Int32(1), rounds)

    def send(self, span: Span, count: int, ends: Callable[[Any], tuple[Any, Any, Any]], condition: Any = True) -> None:
        """Store the vectors of a span to count ranks, where a condition holds: ends(number) gives a rank, where its
        message begins, and where it goes. All begin equally far from a 16-byte boundary."""
        frame = self.frame
        flag = Int64(frame.block * frame.world_size + frame.rank) * 4

        def look_up(number: Any) -> tuple[Any, Any, Any]:
            peer, source, target = ends(number)
            return source, target, device.load_address(frame.table("signals"), peer) + flag

        only = look_up(Int32(0)) if count == 1 else None

        def known(number: Any) -> tuple[Any, Any, Any]:
            """Where a message begins, where it goes, and where its rank has this one's flag."""
            return only or look_up(number)

        def tell(number: Any, rounds: Any) -> None:
            device.signal(known(number)[2], frame.epoch + rounds)

        if self.by_stores:
            self._send_by_stores(span, count, known, tell, condition)
            return
        stages = bulk.Stages(frame, self.adders)
        begin = span.first + Int64(frame.block * self.adders) * VECTOR_BYTES
        is_mover = (frame.thread == self.adders) & cutlass.Boolean(condition)
        when(is_mover, lambda: move(begin, span.last, self.step, self.rounds, count, stages, known, tell))

    def _send_by_stores(
        self, span: Span, count: int, known: Callable[[Any], Any], tell: Callable[[Any, Any], None], condition: Any
    ) -> None:
        """Threads from adders on store, as many as add, and a warp behind them signals."""
        frame, adders = self.frame, self.adders
        begin = span.first + (self.lane - adders) * VECTOR_BYTES

        def copy(source: Any, target: Any, offsets: Sequence[Any]) -> None:
            vectors = [device.load_vector(source + at) for at in offsets]
            for at, vector in zip(offsets, vectors, strict=True):
                device.store_vector(target + at, vector)

        def meet() -> None:
            cute.arch.barrier(barrier_id=SENDERS, number_of_threads=adders + WARP)

        def store() -> None:
            store_rounds(begin, span.last, self.step, self.rounds, (count, self.count), known, copy, meet)

        def signal() -> None:
            signal_rounds(frame.thread, self.rounds, count, meet, tell)

        begins, ends = frame.thread >= adders, frame.thread >= 2 * adders
        when(cutlass.Boolean(condition) & begins & (frame.thread < 2 * adders), store)
        when(cutlass.Boolean(condition) & ends & (frame.thread < 2 * adders + WARP), signal)

    def add(self, span: Span, contributions: Peers, output: Any, edges: Peers, condition: Any = True) -> None:
        """Store the reduction of a span to the output, which has its boundaries, where a condition holds: contributions
        are what arrives and the own, edges all ranks' buffers, from which the elements around the vectors are taken."""
        frame = self.frame
        width = max(1, min(self.count, LOADS_TOGETHER // frame.world_size))
        flags = frame.address("signals") + Int64(frame.block * frame.world_size) * 4
        waits = frame.choice("awaits_rounds", True)

        def wait(number: Any) -> None:
            if waits:
                await_round(frame.thread, flags, frame.epoch + number + 1, frame.rank, frame.watch, frame.world_size)

        def store(offsets: Sequence[Any]) -> None:
            for at, words in zip(offsets, contributions.fold(frame.reduction, offsets, frame.load), strict=True):
                frame.store_near(output + at, words, True)

        def store_edge(at: Any) -> None:
            (words,) = edges.fold(frame.reduction, [at], frame.load_element)
            frame.store_element(output + at, words)

        def work() -> None:
            begin = span.first + self.lane * VECTOR_BYTES
            add_rounds(begin, span.last, self.step, self.rounds, (self.count, width), wait, store)
            span.edges(self.lane, frame.itemsize, store_edge)

        when((frame.thread < self.adders) & cutlass.Boolean(condition), work)

    def end(self) -> None:
        """Count the rounds, and wait until all ranks have added."""
        self.frame.epoch = self.frame.epoch + self.rounds
        self.frame.leave()


@cute.jit
def move(
    begin: Int64,
    end: Int64,
    step: Int64,
    rounds: Int32,
    others: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    known: cutlass.Constexpr,
    tell: cutlass.Constexpr,
) -> None:
    """In each round a turn for each of the others: its pieces at begin + step * (stages * round + stage) below end.
    Loads run ahead of stores by all stages but one, and signals follow a turn behind."""
    count, place, barrier, piece_bytes = stages.count, stages.place, stages.barrier, stages.piece_bytes
    for i in cutlass.range_constexpr(count):
        bulk.make_barrier(barrier(i))
    bulk.fence_proxies()
    source, target, _ = known(Int32(0))
    for i in cutlass.range_constexpr(count):
        bulk.load_piece(begin + step * i, end, source, place(i), barrier(i), piece_bytes)
    turn, number, done = Int32(0), Int32(0), Int32(0)
    offset = begin
    parity = Int32(0)
    while done < rounds:
        source, target, _ = known(number)
        is_last = number == others - 1
        next_number = cutlass.select_(is_last, Int32(0), number + 1)
        next_done = done + Int32(is_last)
        next_offset = cutlass.select_(is_last, offset + step * count, offset)
        next_end = cutlass.select_(next_done < rounds, end, Int64(0))
        next_source, _, _ = known(next_number)
        for i in cutlass.range_constexpr(count):
            at = offset + step * i
            store_piece(at, end, target, place(i), barrier(i), parity, piece_bytes)
            bulk.end_group()
            if cutlass.const_expr(i == 0):
                if turn > 0:
                    bulk.await_read()
                    last = count - 1
                    bulk.load_piece(offset + step * last, end, source, place(last), barrier(last), piece_bytes)
            else:
                bulk.await_read()
                before = i - 1
                ahead = next_offset + step * before
                bulk.load_piece(ahead, next_end, next_source, place(before), barrier(before), piece_bytes)
        if turn > 0:
            bulk.await_written(count)
            tell(
                cutlass.select_(number == 0, Int32(others - 1), number - 1),
                cutlass.select_(number == 0, done, done + 1),
            )
        turn += 1
        number, done, offset = next_number, next_done, next_offset
        parity = 1 - parity
    bulk.await_written()
    tell(Int32(others - 1), rounds)
    for i in cutlass.range_constexpr(count):
        bulk.end_barrier(barrier(i))


@cute.jit
def store_piece(
    at: Int64,
    end: Int64,
    target: Int64,
    place: Int32,
    barrier: Int32,
    parity: Int32,
    piece_bytes: cutlass.Constexpr,
) -> None:
    if at < end:
        bulk.await_loaded(barrier, parity)
        bulk.store(target + at, place, bulk.size_of(at, end, piece_bytes))


@cute.jit
def store_rounds(
    begin: Int64,
    end: Int64,
    step: Int64,
    rounds: Int32,
    counts: cutlass.Constexpr,
    known: cutlass.Constexpr,
    copy: cutlass.Constexpr,
    meet: cutlass.Constexpr,
) -> None:
    """In each round a turn for each other rank: copy(source, target, offsets), and meet who signals. counts: the other
    ranks, and a thread's vectors of a round."""
    others, count = counts
    offset = begin
    done = Int32(0)
    number = Int32(0)
    while done < rounds:
        source, target, _ = known(number)
        if offset + step * (count - 1) < end:
            copy(source, target, [offset + step * i for i in range(count)])
        else:
            for i in cutlass.range_constexpr(count):
                if offset + step * i < end:
                    copy(source, target, [offset + step * i])
        meet()
        is_last = number == others - 1
        number = cutlass.select_(is_last, Int32(0), number + 1)
        done += Int32(is_last)
        offset = cutlass.select_(is_last, offset + step * count, offset)


@cute.jit
def signal_rounds(
    thread: Int32, rounds: Int32, others: cutlass.Constexpr, meet: cutlass.Constexpr, tell: cutlass.Constexpr
) -> None:
    """After each turn of those who store, tell(number, rounds) by one thread: they are a turn ahead at most."""
    done = Int32(0)
    number = Int32(0)
    while done < rounds:
        meet()
        if thread & (WARP - 1) == 0:
            tell(number, done + 1)
        is_last = number == others - 1
        number = cutlass.select_(is_last, Int32(0), number + 1)
        done += Int32(is_last)


@cute.jit
def add_rounds(
    begin: Int64,
    end: Int64,
    step: Int64,
    rounds: Int32,
    widths: cutlass.Constexpr,
    wait: cutlass.Constexpr,
    body: cutlass.Constexpr,
) -> None:
    """Wait for each round, and call body with lists of byte offsets begin, begin + step, .. below end: widths are how
    many a round has, and how many go together."""
    count, width = widths
    offset = begin
    number = Int32(0)
    while number < rounds:
        wait(number)
        if offset + step * (count - 1) < end:
            for i in cutlass.range_constexpr(0, count, width):
                body([offset + step * j for j in range(i, min(i + width, count))])
        else:
            for i in cutlass.range_constexpr(count):
                if offset + step * i < end:
                    body([offset + step * i])
        offset += step * count
        number += 1


@cute.jit
def await_round(
    thread: Int32,
    flags: Int64,
    expected: Int32,
    rank: Int32,
    watch: cutlass.Constexpr,
    world_size: cutlass.Constexpr,
) -> None:
    """Wait, as one of a warp, until all other ranks' flags have reached expected."""
    for i in cutlass.range_constexpr(-(-world_size // WARP)):
        peer = (thread & (WARP - 1)) + i * WARP
        if (peer < world_size) & (peer != rank):
            wait_for(flags + Int64(peer) * 4, expected, peer, MIDDLE, watch)
    cute.arch.sync_warp()
