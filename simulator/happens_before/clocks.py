"""Vector clocks: what each thread knows of the accesses of all others.

Time is the number of an event in the run (a stamp). A row is what somebody knows: for each slot, the stamp up to which
all accesses of that slot happen before. A slot is a block of a rank; each rank has a last one for its host and for the
copies of its blocks. Blocks of launches that may run side by side, on several streams, are in different rooms: numbers
of blocks of a rank, from `first` on. With more rooms than one the copies of each have a slot of their own. Rows never
change once somebody holds them. A row has three parts: what base causality orders
(GENERIC), of that what a fence.proxy.alias (ALIAS) or a fence.proxy.async of the own block (ASYNC) has seen as well.
Only worlds whose kernels use other proxies keep the last two.

What is finer than a block is in extras (extras.py): a lane's, a warp's or an mbarrier's stamp, by part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.happens_before.extras import ALL, ASYNC, NOT_ASYNC, SAME, Extras, Mask, Numbers

Stamps = npt.NDArray[np.int32]

STAMP_SHIFT = 36
RANK_SHIFT = 29
BLOCK_SHIFT = 11
BLOCK_MASK = (1 << RANK_SHIFT - BLOCK_SHIFT) - 1
CODE_MASK = (1 << BLOCK_SHIFT) - 1
LOW_MASK = (1 << STAMP_SHIFT) - 1
"""An epoch is stamp << STAMP_SHIFT | rank << RANK_SHIFT | block << BLOCK_SHIFT | code; without its stamp it is an
actor."""
WARP_CODE, SPAN_CODE, COPY_CODE, HOST_CODE = 1024, 1056, 1552, 1553
"""Codes below WARP_CODE are threads; then any thread of a warp (32 codes), of neighbouring warps (496, see span_code),
a copy under way, the rank's host."""
WARP_KEY, MBARRIER_KEY = 1 << 40, 1 << 41
"""Keys of extras: an actor; a warp (the actor of its first thread, and this bit); an mbarrier (a number, and this
bit)."""
_FIRST_ROWS = 256
_LAST_OF_SPAN = np.repeat(np.arange(1, 32), np.arange(1, 32))


@dataclass(slots=True)
class Room:
    """Numbers of the blocks of launches that follow each other: from first on. copies: the slot of their copies."""

    first: int
    blocks: int
    copies: int


class Clocks:
    """The rows of a world. slots: world_size times stride, which is the number of blocks of a rank in all rooms, and a
    few more for copies and the host. copies_of: by block its copies' slot, then the host's; None with one room."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.stride = 2
        self.rooms = [Room(0, 1, 1)]
        self.copies_of: Numbers | None = None
        self.parts = 1
        self.rows: Stamps = np.zeros((_FIRST_ROWS, 1, world_size * self.stride), np.int32)
        self.floor: Stamps = np.zeros((_FIRST_ROWS, 1), np.int32)
        self.extras = Extras(_FIRST_ROWS)
        self.free: Numbers = np.arange(_FIRST_ROWS)
        self.unused = _FIRST_ROWS  # how many of free
        self.roots: Callable[[], list[Numbers]] = list
        """Gives the rows that are in use."""

    # Shape

    def fit(self, grid: int, has_proxies: bool, number: int = 0) -> None:
        """Make room for the blocks of a grid, in a room that is large enough, the last one or a new one, and for the
        parts of other proxies."""
        rooms = self.rooms
        if number == len(rooms) or rooms[number].blocks < grid:
            blocks = rooms[-1].first + rooms[-1].blocks  # so far
            copies = [one.copies for one in rooms]
            if number == len(rooms):
                rooms.append(Room(blocks, grid, 0))
                copies.append(self.stride - 1)
            assert rooms[number] is rooms[-1]
            rooms[-1].blocks = grid
            self._lay_out(blocks, copies)
        if has_proxies and self.parts == 1:
            self.parts = 3
            self.rows = np.repeat(self.rows, 3, axis=1)
            self.floor = np.repeat(self.floor, 3, axis=1)
            rows = np.flatnonzero(self.extras.of_row)
            self.extras.derive(rows, np.arange(len(rows)), self.extras.of_row[rows], ALL)

    def _lay_out(self, blocks: int, copies: list[int]) -> None:
        """Change the slots to those of the rooms. blocks: how many were there; copies: by room, the slot of before that
        says the most of its copies. What was not there so far is known as far as the host is."""
        total = self.rooms[-1].first + self.rooms[-1].blocks
        tails = 0 if len(self.rooms) == 1 else len(self.rooms)
        sources = np.full(total + tails + 1, self.stride - 1)
        sources[:blocks] = np.arange(blocks)
        sources[total : total + tails] = copies[:tails]
        old = self.rows.reshape(len(self.rows), self.parts, self.world_size, self.stride)
        self.stride = len(sources)
        self.rows = old[..., sources].reshape(len(self.rows), self.parts, -1)
        self.floor = self.rows.min(axis=2)
        for at, room in enumerate(self.rooms):
            room.copies = total + at
        self.copies_of = None
        if tails:
            of_rooms = [np.full(room.blocks, room.copies) for room in self.rooms]
            self.copies_of = np.concatenate([*of_rooms, [self.stride - 1]])

    def know(self, row: int, rank: int, stamp: int, without: Collection[int] = ()) -> None:
        """Let a row that is being made know all of a rank up to a stamp but what is in some rooms."""
        if not without:
            self.rows[row, :, rank * self.stride : (rank + 1) * self.stride] = stamp
            return
        known = np.ones(self.stride, np.bool_)
        for number in without:
            room = self.rooms[number]
            known[room.first : room.first + room.blocks] = known[room.copies] = False
        self.rows[row, :, rank * self.stride + np.flatnonzero(known)] = stamp

    def slots_of(self, actors: Numbers) -> Numbers:
        """Return the slot of each actor; of a copy its room's, of a host the last one of the rank."""
        blocks = actors >> BLOCK_SHIFT & BLOCK_MASK
        last = self.stride - 1
        copies: Numbers | int = last
        if self.copies_of is not None:
            copies = self.copies_of[np.minimum(blocks, len(self.copies_of) - 1)]
        blocks = np.where((actors & CODE_MASK) >= COPY_CODE, copies, np.minimum(blocks, last))
        found: Numbers = (actors >> RANK_SHIFT) * self.stride + blocks
        return found

    # Rows

    def new(self, count: int, *sources: Numbers) -> Numbers:
        """Return numbers of unused rows; their content is left over. sources: rows that they will be made of."""
        if self.unused < count:
            self._collect(count, sources)
        taken = self.free[self.unused - count : self.unused].copy()
        self.unused -= count
        self.extras.of_row[taken] = 0
        return taken

    def _collect(self, count: int, sources: tuple[Numbers, ...]) -> None:
        used = np.zeros(len(self.rows), np.bool_)
        for rows in (*self.roots(), *sources):
            used[rows] = True
        self.extras.collect(np.flatnonzero(used))
        self.free = np.flatnonzero(~used)
        if len(self.free) < max(count, len(self.rows) // 2):
            more = max(len(self.rows), 2 * count)
            self.free = np.concatenate([self.free, np.arange(len(self.rows), len(self.rows) + more)])
            self.rows = np.concatenate([self.rows, np.zeros((more, *self.rows.shape[1:]), np.int32)])
            self.floor = np.concatenate([self.floor, np.zeros((more, self.parts), np.int32)])
            self.extras.of_row = np.concatenate([self.extras.of_row, np.zeros(more, np.int64)])
        self.unused = len(self.free)

    def seal(self, rows: Numbers) -> None:
        """Note that rows have their content."""
        floors = self.rows[rows].min(axis=2)
        self.floor[rows] = floors
        if self.extras.of_row[rows].any():
            self.extras.trim(rows, floors.min(axis=1))

    def joined(self, rows: list[int], how: int = SAME) -> int:
        """Return a new row that knows what any of these knows; not sealed. how: of extras.py."""
        sources = np.array(rows, np.int64)
        made = self.new(1, sources)
        self.rows[made] = self.rows[sources].max(axis=0)
        self.extras.derive(made, np.zeros(len(rows), np.int64), self.extras.of_row[sources], how)
        return int(made[0])

    def join_groups(self, rows: Numbers, owners: Numbers, is_other: Mask | None = None) -> Numbers:
        """Return a new row for each group of rows, not sealed. owners: of each row its group, ascending, all from 0;
        is_other: whether the row comes from another block, see join_pairs."""
        starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]]))
        made = self.new(len(starts), rows)
        hows = SAME if is_other is None or self.parts == 1 else np.where(is_other, NOT_ASYNC, SAME)
        self.extras.derive(made, owners, self.extras.of_row[rows], hows)
        back: Any = slice(None)
        alike = _alike(rows, starts, is_other)
        if alike is not None:
            chosen, back = alike
            each = len(rows) // len(starts)
            some = (starts[chosen][:, None] + np.arange(each)).ravel()
            rows, starts = rows[some], np.arange(len(chosen)) * each
            is_other = None if is_other is None else is_other[some]
        found = self._most(rows, starts, is_other if self.parts > 1 else None)
        self.rows[made] = found[back]
        return made

    def _most(self, rows: Numbers, starts: Numbers, is_other: Mask | None) -> Stamps:
        """Return the maximum of each group of rows, which begin at starts. is_other: of these ASYNC does not count."""
        counts = np.diff(np.append(starts, len(rows)))
        order = np.argsort(-counts, kind="stable")  # those that have a row more are the first ones
        places, found = order, np.zeros((len(starts), *self.rows.shape[1:]), np.int32)
        for nth in range(int(counts[order[0]])):
            order = order[: int(np.searchsorted(-counts[order], -nth))]
            at = starts[order] + nth
            more = self.rows[rows[at]]
            if is_other is not None:
                more[is_other[at], ASYNC] = 0
            np.maximum(found[: len(order)], more, out=found[: len(order)])
        back = np.empty(len(starts), np.int64)
        back[places] = np.arange(len(starts))
        return found[back] if (np.diff(places) != 1).any() else found

    def join_pairs(self, first: Numbers, second: Numbers, same_block: Mask) -> Numbers:
        """Return a new row for each pair of rows that knows what both know; not sealed.

        same_block: for each pair, whether the second row comes from the own block: fences of the async proxy concern
        their own block alone.
        """
        made = self.new(len(first), first, second)
        self.rows[made] = np.maximum(self.rows[first], self.rows[second])
        is_all = self.parts == 1 or bool(same_block.all())
        if not is_all:
            other = ~same_block
            self.rows[made[other], ASYNC] = self.rows[first[other], ASYNC]
        nodes = self.extras.of_row
        parents = np.concatenate([nodes[first], nodes[second]])
        hows = np.zeros(len(parents), np.int64)
        if not is_all:
            hows[len(first) :] = np.where(same_block, SAME, NOT_ASYNC)
        self.extras.derive(made, np.tile(np.arange(len(first)), 2), parents, hows)
        return made


def _alike(rows: Numbers, starts: Numbers, is_other: Mask | None) -> tuple[Numbers, Numbers] | None:
    """Return the first of each kind of groups, and for each group its kind; None unless all have as many rows."""
    each = len(rows) // len(starts)
    if len(starts) < 2 or len(rows) != each * len(starts) or (np.diff(starts) != each).any():
        return None
    columns = (rows * 2 if is_other is None else rows * 2 + is_other).reshape(-1, each)
    weights = (np.arange(each) * 2 + 1) * 0x1E3779B97F4A7C15  # wraps
    _, first, back = np.unique(columns @ weights, return_index=True, return_inverse=True)
    back = back.reshape(-1)
    return None if (columns[first[back]] != columns).any() else (first, back)


def span_code(first: Numbers, last: Numbers) -> Numbers:
    """Return the codes of any thread of warps first to last."""
    found: Numbers = np.where(first == last, WARP_CODE + first, SPAN_CODE + last * (last - 1) // 2 + first)
    return found


def warps_of_codes(codes: Numbers) -> tuple[Numbers, Numbers]:
    """Return the first and the last warp that each code stands for; -1 of a copy's and a host's."""
    spans = np.clip(codes - SPAN_CODE, 0, len(_LAST_OF_SPAN) - 1)
    last = _LAST_OF_SPAN[spans]
    first = spans - last * (last - 1) // 2
    one = np.where(codes < WARP_CODE, codes // 32, codes - WARP_CODE)
    is_span = codes >= SPAN_CODE
    none = codes >= COPY_CODE
    return (
        np.where(none, -1, np.where(is_span, first, one)),
        np.where(none, -1, np.where(is_span, last, one)),
    )


def pairs_of(*columns: Any) -> tuple[Numbers, Numbers]:
    """Return positions of the first of each distinct tuple of non-negative numbers, and for each element its tuple."""
    if len(columns[0]) == 1:
        zero = np.zeros(1, np.int64)
        return zero, zero
    columns = tuple(np.asarray(column, np.int64) for column in columns)
    differ = np.ones(len(columns[0]), np.bool_)  # from the one before: neighbours are often alike
    differ[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        differ[1:] |= column[1:] != column[:-1]
    places = np.flatnonzero(differ)
    keys = columns[0][places]
    for column in columns[1:]:
        some = column[places]
        size = int(some.max()) + 1
        if int(keys.max()) >= 1 << 62 >> size.bit_length():
            _, keys = np.unique(keys, return_inverse=True)
            keys = keys.reshape(-1)
        keys = keys * size + some
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    back = back.reshape(-1)
    return places[first], back if len(places) == len(differ) else back[np.cumsum(differ) - 1]


def distinct(numbers: Any) -> Any:
    """Return each number once, ascending."""
    return changes_of(np.sort(numbers)) if len(numbers) else numbers


def changes_of(numbers: Numbers) -> Numbers:
    """Return the first of numbers, and those that differ from the one before."""
    found: Numbers = numbers[np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))]
    return found
