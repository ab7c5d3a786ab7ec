"""Vector clocks: what each thread knows of the accesses of all others.

Time is the number of an event in the run (a stamp). A row is what somebody knows: for each slot, the stamp up to which
all accesses of that slot happen before. A slot is a block of a rank; each rank has a last one for its host and for the
ends of its launches. Rows never change once somebody holds them. A row has three parts: what base causality orders
(GENERIC), of that what a fence.proxy.alias (ALIAS) or a fence.proxy.async of the own block (ASYNC) has seen as well.
Only worlds whose kernels use other proxies keep the last two.

What is finer than a block is in extras, a dictionary for the few rows that need one: a lane's, a warp's or an
mbarrier's stamp, by part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
GENERIC, ALIAS, ASYNC = range(3)

STAMP_SHIFT = 36
RANK_SHIFT = 29
BLOCK_SHIFT = 11
BLOCK_MASK = (1 << RANK_SHIFT - BLOCK_SHIFT) - 1
CODE_MASK = (1 << BLOCK_SHIFT) - 1
LOW_MASK = (1 << STAMP_SHIFT) - 1
"""An epoch is stamp << STAMP_SHIFT | rank << RANK_SHIFT | block << BLOCK_SHIFT | code; without its stamp it is an
actor."""
WARP_CODE, BLOCK_CODE, COPY_CODE, HOST_CODE = 1024, 1056, 1057, 1058
"""Codes below WARP_CODE are threads; then any thread of a warp (32 codes), any thread of the block, a copy under way,
the rank's host."""
WARP_KEY, MBARRIER_KEY = 1 << 40, 1 << 41
"""Keys of extras: an actor; a warp (the actor of its first thread, and this bit); an mbarrier (a number, and this
bit)."""
Extras = dict[tuple[int, int], int]
"""By part and key."""
_FIRST_ROWS = 256
_MOST_EXTRAS = 32
"""A row that has more is searched for those that say no more than its slots."""


class Clocks:
    """The rows of a world. slots: world_size times stride, which is the largest grid and one more."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.stride = 2
        self.parts = 1
        self.rows: Stamps = np.zeros((_FIRST_ROWS, 1, world_size * self.stride), np.int32)
        self.floor: Stamps = np.zeros((_FIRST_ROWS, 1), np.int32)
        self.extras: dict[int, Extras] = {}
        self.free: list[int] = list(range(_FIRST_ROWS))
        self.roots: Callable[[], list[Numbers]] = list
        """Gives the rows that are in use."""

    # Shape

    def fit(self, grid: int, has_proxies: bool) -> None:
        """Make room for the blocks of a grid, and for the parts of other proxies."""
        if grid + 1 > self.stride:
            old = self.rows.reshape(len(self.rows), self.parts, self.world_size, self.stride)
            new = np.zeros((len(self.rows), self.parts, self.world_size, grid + 1), np.int32)
            new[..., : self.stride - 1] = old[..., :-1]
            # a block that no launch had so far is known as far as the rank's launches are
            new[..., self.stride - 1 :] = old[..., -1:]
            self.stride = grid + 1
            self.rows = new.reshape(len(self.rows), self.parts, -1)
            self.floor = self.rows.min(axis=2)
        if has_proxies and self.parts == 1:
            self.parts = 3
            self.rows = np.repeat(self.rows, 3, axis=1)
            self.floor = np.repeat(self.floor, 3, axis=1)
            for extras in self.extras.values():
                extras |= {(part, key): stamp for (_, key), stamp in list(extras.items()) for part in (ALIAS, ASYNC)}

    def slots_of(self, actors: Numbers) -> Numbers:
        """Return the slot of each actor; of a copy and of a host the last one of the rank."""
        blocks = actors >> BLOCK_SHIFT & BLOCK_MASK
        last = self.stride - 1
        blocks = np.where((actors & CODE_MASK) >= COPY_CODE, last, np.minimum(blocks, last))
        found: Numbers = (actors >> RANK_SHIFT) * self.stride + blocks
        return found

    # Rows

    def new(self, count: int) -> Numbers:
        """Return numbers of unused rows; their content is left over."""
        if len(self.free) < count:
            self._collect(count)
        taken = self.free[-count:]
        del self.free[-count:]
        for row in taken:
            self.extras.pop(row, None)
        return np.array(taken, np.int64)

    def _collect(self, count: int) -> None:
        used = np.zeros(len(self.rows), np.bool_)
        for rows in self.roots():
            used[rows] = True
        self.free = np.flatnonzero(~used).tolist()
        if len(self.free) < max(count, len(self.rows) // 2):
            more = max(len(self.rows), 2 * count)
            self.free += range(len(self.rows), len(self.rows) + more)
            self.rows = np.concatenate([self.rows, np.zeros((more, *self.rows.shape[1:]), np.int32)])
            self.floor = np.concatenate([self.floor, np.zeros((more, self.parts), np.int32)])

    def seal(self, rows: Numbers) -> None:
        """Note that rows have their content."""
        self.floor[rows] = self.rows[rows].min(axis=2)

    def joined(self, rows: list[int]) -> int:
        """Return a new row that knows what any of these knows; not sealed."""
        (made,) = self.new(1).tolist()
        self.rows[made] = self.rows[rows].max(axis=0)
        extras: Extras = {}
        for row in rows:
            merge_extras(extras, self.extras.get(row))
        if extras:
            self.extras[made] = extras
        return int(made)

    def join_pairs(self, first: Numbers, second: Numbers, same_block: npt.NDArray[np.bool_]) -> Numbers:
        """Return a new row for each pair of rows that knows what both know; not sealed.

        same_block: for each pair, whether the second row comes from the own block: fences of the async proxy concern
        their own block alone.
        """
        made = self.new(len(first))
        self.rows[made] = np.maximum(self.rows[first], self.rows[second])
        if self.parts > 1 and not same_block.all():
            other = ~same_block
            self.rows[made[other], ASYNC] = self.rows[first[other], ASYNC]
        if self.extras:
            for row, one, two, own in zip(
                made.tolist(), first.tolist(), second.tolist(), same_block.tolist(), strict=True
            ):
                if one in self.extras or two in self.extras:
                    self._join_extras(row, one, two, own)
        return made

    def _join_extras(self, row: int, one: int, two: int, own: bool) -> None:
        extras: Extras = {}
        merge_extras(extras, self.extras.get(one))
        other = self.extras.get(two)
        if other and not own:
            other = {key: stamp for key, stamp in other.items() if key[0] != ASYNC}
        merge_extras(extras, other)
        if extras:
            self.extras[row] = extras
            if len(extras) > _MOST_EXTRAS:
                self._thin(row)

    def _thin(self, row: int) -> None:
        """Leave out extras that say no more than the slots do."""
        known, stride = self.rows[row], self.stride
        kept = {}
        for key, stamp in self.extras[row].items():
            actor = key[1]
            if actor < MBARRIER_KEY:
                actor &= WARP_KEY - 1
                if known[key[0], (actor >> RANK_SHIFT) * stride + (actor >> BLOCK_SHIFT & BLOCK_MASK)] >= stamp:
                    continue
            kept[key] = stamp
        if kept:
            self.extras[row] = kept
        else:
            del self.extras[row]

    def add_extra(self, row: int, part: int, key: int, stamp: int) -> None:
        """Let a row that is being made know an actor up to a stamp."""
        merge_extras(self.extras.setdefault(row, {}), {(part, key): stamp})


def merge_extras(into: Extras, other: Extras | None) -> None:
    """Add what another row knows."""
    if not into:
        into.update(other or {})
        return
    for key, stamp in (other or {}).items():
        if into.get(key, -1) < stamp:
            into[key] = stamp


def pairs_of(*columns: Any) -> tuple[Numbers, Numbers]:
    """Return positions of the first of each distinct tuple of non-negative numbers, and for each element its tuple."""
    if len(columns[0]) == 1:
        zero = np.zeros(1, np.int64)
        return zero, zero
    keys = np.asarray(columns[0], np.int64)
    for column in columns[1:]:
        _, keys = np.unique(keys, return_inverse=True)
        column = np.asarray(column, np.int64)
        keys = keys.reshape(-1) * (int(column.max()) + 1) + column
    _, first, back = np.unique(keys, return_index=True, return_inverse=True)
    return first, back.reshape(-1)
