"""Barriers over ranks, block by block: block b of every rank waits for block b of all others.

A barrier has two halves, arrive and wait, so that work that needs no other rank can lie between them. It has a
number, its epoch, which only grows and wraps: a kernel reads its block's last one from device memory and writes back
the last one it used, so launches follow each other, also in a graph, with no work by the host and nothing to be
reset. Waits compare the difference as a signed number, which is right across the wrap.

A kernel has two of them. What comes before it on the stream is ordered before all its threads, so at entry a thread
arrives on its own; a bar.sync after the wait passes on what the waiting threads acquired. At exit a bar.sync before
the arrival orders what any thread of the block did or saw before the release at system scope of the signalling
thread; what the waiting threads acquire is passed on by the kernel's end.

Waits are bounded, so that a rank that never arrives is reported and not only killed. patience (ns; 0: wait for ever)
costs nothing where the first look already finds the flag set, and after that one counter: only every LOOK_EVERY-th
failed look (some 50 us; a barrier among GPUs that are all there takes a few) reads the clock and the status. Who
waits too long gives up, and the first thread of a rank to do so leaves its report (kernels/dsl/status.py). The kernel
goes on to its end with worthless results; every later wait, in launches that follow, too, sees the status and gives
up at its first look at it.

Without patience the wait is a load, a comparison and a branch, with no other state: an interpreter can see that it
makes no progress.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.dsl.status import ALL_RANKS, COMPLETE, ENTRY, EXIT, MIDDLE

LOOK_EVERY = 64
"""A power of two. An acquire load takes most of a microsecond, so waits of normal length never get that far."""


class Watch:
    """Who waits and for how long at most: what a wait needs to give up and say so. Made while a kernel is traced."""

    def __init__(self, rank: Any, block: Any, status: Any, patience: Any) -> None:
        self.rank = rank
        self.block = block
        self.status = status
        self.patience = patience


class OverPeers:
    """Barriers through peers' addresses; they need world_size threads a block. Made while a kernel is traced.

    signals is int32[blocks][world_size]: entry [b][p] is the last epoch in which block b of rank p arrived. Thread t
    tells rank t, and waits for rank t. signal_peers is the table of all ranks' signals. Where to write is looked up
    here, beside whatever else the kernel loads at its beginning. entry and exit are the orders of the two signals:
    relaxed instead of release is for trials, see one_shot.py.
    """

    def __init__(
        self,
        thread: Any,
        watch: Watch,
        signal_peers: Any,
        signals: Any,
        world_size: int,
        entry: str = "release",
        exit: str = "release",
    ) -> None:
        self.thread = thread
        self.watch = watch
        self.world_size = world_size
        self.orders = {ENTRY: entry, MIDDLE: "release", EXIT: exit}
        self.flag, self.mine = places(thread, watch.block, watch.rank, signal_peers, signals, world_size)

    def arrive(self, epoch: Any, phase: int) -> None:
        if phase != ENTRY:
            cute.arch.sync_threads()
        tell_peer(self.thread, self.mine, epoch, self.world_size, self.orders[phase])

    def wait(self, epoch: Any, phase: int) -> None:
        await_peer(self.thread, self.flag, epoch, phase, self.watch, self.world_size)
        if phase != EXIT:
            cute.arch.sync_threads()


@cute.jit
def places(
    thread: cutlass.Int32,
    block: cutlass.Int32,
    rank: cutlass.Int32,
    signal_peers: cutlass.Int64,
    signals: cutlass.Int64,
    world_size: cutlass.Constexpr,
) -> tuple[cutlass.Int64, cutlass.Int64]:
    """Where thread t finds the flag of rank t, and where it tells rank t: of use to the first world_size threads."""
    row = block * world_size
    flag = signals + cutlass.Int64(row + thread) * 4
    mine = cutlass.Int64(0)
    if thread < world_size:
        mine = device.load_address(signal_peers, thread) + cutlass.Int64(row + rank) * 4
    return flag, mine


@cute.jit
def tell_peer(
    thread: cutlass.Int32,
    mine: cutlass.Int64,
    epoch: cutlass.Int32,
    world_size: cutlass.Constexpr,
    order: cutlass.Constexpr,
) -> None:
    if thread < world_size:
        device.signal(mine, epoch, order)


@cute.jit
def await_peer(
    thread: cutlass.Int32,
    flag: cutlass.Int64,
    epoch: cutlass.Int32,
    phase: cutlass.Constexpr,
    watch: cutlass.Constexpr,
    world_size: cutlass.Constexpr,
) -> None:
    if thread < world_size:
        wait_for(flag, epoch, thread, phase, watch)


class OverMulticast:
    """Barriers through the switch: one reduction adds to all ranks' counters. Made while a kernel is traced.

    signals is int32[blocks]: how often block b of any rank has arrived, so epoch e is complete at e * world_size.
    Every thread fences on both sides between the two addresses of the same bytes: ordinary and multicast accesses go
    through different proxies, and payload that crosses from one to the other is ordered by a release and an acquire
    only with a proxy fence on the way.
    """

    def __init__(self, thread: Any, watch: Watch, signals_multicast: Any, signals: Any, world_size: int) -> None:
        self.thread = thread
        self.watch = watch
        self.world_size = world_size
        offset = cutlass.Int64(watch.block) * 4
        self.counters = signals_multicast + offset
        self.flag = signals + offset

    def arrive(self, epoch: Any, phase: int) -> None:
        device.fence_aliases()
        cute.arch.sync_threads()
        count_arrival(self.thread, self.counters)

    def wait(self, epoch: Any, phase: int) -> None:
        await_all(self.thread, self.flag, epoch * self.world_size, phase, self.watch)
        cute.arch.sync_threads()
        device.fence_aliases()


@cute.jit
def count_arrival(thread: cutlass.Int32, counters: cutlass.Int64) -> None:
    if thread == 0:
        device.multimem_signal(counters)


@cute.jit
def await_all(
    thread: cutlass.Int32,
    flag: cutlass.Int64,
    complete: cutlass.Int32,
    phase: cutlass.Constexpr,
    watch: cutlass.Constexpr,
) -> None:
    if thread == 0:
        wait_for(flag, complete, cutlass.Int32(ALL_RANKS), phase, watch)


@cute.jit
def wait_for(
    flag: cutlass.Int64,
    expected: cutlass.Int32,
    peer: cutlass.Int32,
    phase: cutlass.Constexpr,
    watch: cutlass.Constexpr,
) -> None:
    """Wait until the flag has reached expected, or patience is over. peer is for the report."""
    rank, block, status, patience = watch.rank, watch.block, watch.status, watch.patience
    if device.observe(flag) - expected < 0:
        if patience == 0:
            while device.observe(flag) - expected < 0:
                pass
        else:
            seen, waited = wait_with_patience(flag, expected, status, patience)
            if seen - expected < 0:
                report(status, rank, block, phase, peer, expected, seen, waited)


@cute.jit
def wait_with_patience(
    flag: cutlass.Int64, expected: cutlass.Int32, status: cutlass.Int64, patience: cutlass.Int64
) -> tuple[cutlass.Int32, cutlass.Int64]:
    """The value last seen, and the nanoseconds waited since the first look at the clock."""
    seen = expected - 1
    looks = cutlass.Int32(0)
    since = cutlass.Int64(0)
    waited = cutlass.Int64(0)
    while (seen - expected < 0) & (waited < patience):
        seen = device.observe(flag)
        looks += 1
        if looks & (LOOK_EVERY - 1) == 0:
            now = device.clock_ns()
            if since == 0:
                since = now
            waited = now - since
            if device.observe(status) != 0:
                waited = patience
    return seen, waited


@cute.jit
def report(
    status: cutlass.Int64,
    rank: cutlass.Int32,
    block: cutlass.Int32,
    phase: cutlass.Constexpr,
    peer: cutlass.Int32,
    expected: cutlass.Int32,
    seen: cutlass.Int32,
    waited: cutlass.Int64,
) -> None:
    """Leave the words of kernels/dsl/status.py, unless some thread of this rank has done so before."""
    if device.claim(status) == 0:
        halves = (cutlass.Int32(waited), cutlass.Int32(waited >> 32))
        words = (rank, block, cutlass.Int32(phase), peer, expected, seen, *halves)
        for position in cutlass.range_constexpr(len(words)):
            device.store_word(status + 4 * (position + 1), words[position])
        device.signal(status, cutlass.Int32(COMPLETE))
