"""Reading a piece of a buffer from all ranks and writing it to all ranks, through a table of peers' addresses.

The loads of up to BATCH ranks are issued before the first addition, because a load over a link takes a microsecond:
eight in flight hide it, and eight times 16 bytes bound the registers. A world of up to BATCH ranks keeps the
addresses in registers; a larger one goes through the ranks in batches and looks addresses up as it goes (72 of them
would fill the registers alone).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.dsl.arithmetic import Reduction
from kernels.shares import BATCH


class Peers:
    """One buffer on count ranks, in an order that begins with rank `first` and wraps after the last of world_size.

    table is the address of int64[world_size] (None: count): where this rank sees each rank's buffer. Made while a
    kernel is traced.
    """

    def __init__(self, table: Any, first: Any, count: int, world_size: int | None = None) -> None:
        self.table = table
        self.first = first
        self.count = count
        self.world_size = world_size or count
        self.shift: Any = 0
        self.addresses = self.look_up(0, count) if count <= BATCH else []

    def look_up(self, begin: Any, count: int) -> list[Any]:
        """The addresses of numbers begin to begin + count in this order."""
        return [device.load_address(self.table, self.rank(begin + i)) + self.shift for i in range(count)]

    def shifted(self, size: Any) -> Peers:
        """Return the same buffers from a byte offset on."""
        made = copy(self)
        made.shift = self.shift + size
        made.addresses = [address + size for address in self.addresses]
        return made

    def rank(self, number: Any) -> Any:
        if isinstance(self.first, int) and self.first == 0:
            return number
        rank = self.first + number
        return cutlass.select_(rank >= self.world_size, rank - self.world_size, rank)

    def fold(self, total: Reduction, offsets: Sequence[Any], load: Callable[[Any], Sequence[Any]]) -> list[list[Any]]:
        """For each byte offset the reduction, in this order, of what load gets from all ranks; all loads come first."""
        if self.count > BATCH:
            return [fold_in_batches(self, total, offset, load) for offset in offsets]
        loaded = [[load(address + offset) for address in self.addresses] for offset in offsets]
        return [reduced(total, contributions) for contributions in loaded]

    def store(self, offset: Any, value: Any, store: Callable[[Any, Any], None]) -> None:
        """Store value at a byte offset on all ranks."""
        if self.count > BATCH:
            store_in_batches(self, offset, value, store)
        for address in self.addresses:
            store(address + offset, value)


class Rows(Peers):
    """count buffers that others filled, row_bytes apart from base on, and last a rank's own."""

    def __init__(self, base: Any, row_bytes: Any, own: Any, count: int) -> None:
        self.base = base
        self.row_bytes = row_bytes
        self.own = own
        super().__init__(None, 0, count)

    def look_up(self, begin: Any, count: int) -> list[Any]:
        return [self.place(begin + i) for i in range(count)]

    def place(self, number: Any) -> Any:
        """The address of a row; the last is the own."""
        if isinstance(number, int):
            return self.own if number == self.count - 1 else self.base + self.row_bytes * number
        row = self.base + self.row_bytes * cutlass.Int64(number)
        return cutlass.select_(number == self.count - 1, self.own, row)


def reduced(total: Reduction, contributions: Sequence[Sequence[Any]]) -> list[Any]:
    """The reduction in the order given; a single contribution keeps its bits, NaN payloads included."""
    if len(contributions) == 1:
        return list(contributions[0])
    return total.finish(accumulate(total, total.start(contributions[0]), contributions[1:]))


def accumulate(total: Reduction, state: list[Any], contributions: Sequence[Sequence[Any]]) -> list[Any]:
    for words in contributions:
        state = total.add(state, words)
    return state


@cute.jit
def fold_in_batches(
    peers: cutlass.Constexpr, total: cutlass.Constexpr, offset: cutlass.Int64, load: cutlass.Constexpr
) -> list[cutlass.Int32]:
    """Peers.fold of one offset over more ranks than a batch: a loop over full batches, then the rest."""
    look_up = peers.look_up  # a loop takes an object whose method it calls for a value to be carried, and fails
    first = [load(address + offset) for address in look_up(0, BATCH)]
    state = accumulate(total, total.start(first[0]), first[1:])
    batches = peers.count // BATCH
    for batch in cutlass.range(1, batches, unroll=1):
        loaded = [load(address + offset) for address in look_up(batch * BATCH, BATCH)]
        state = accumulate(total, state, loaded)
    rest = [load(address + offset) for address in look_up(batches * BATCH, peers.count - batches * BATCH)]
    return total.finish(accumulate(total, state, rest))


@cute.jit
def store_in_batches(
    peers: cutlass.Constexpr, offset: cutlass.Int64, value: cutlass.Constexpr, store: cutlass.Constexpr
) -> None:
    """Peers.store on more ranks than a batch."""
    look_up = peers.look_up
    batches = peers.count // BATCH
    for batch in cutlass.range(0, batches, unroll=1):
        for address in look_up(batch * BATCH, BATCH):
            store(address + offset, value)
    for address in look_up(batches * BATCH, peers.count - batches * BATCH):
        store(address + offset, value)
