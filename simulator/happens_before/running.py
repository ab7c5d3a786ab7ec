"""What the checker keeps of a launch that runs, and of what its threads released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.happens_before.clocks import BLOCK_MASK, BLOCK_SHIFT, RANK_SHIFT
from simulator.happens_before.extras import GENERIC, Numbers
from simulator.happens_before.shadow import Shadow
from simulator.happens_before.spare import Spare
from simulator.observe.lanes import Group, Launched

WARP = 32
NEVER = np.iinfo(np.int64).max >> 1
ROW, SCOPE, STAMP, ACTOR, WHOLE, PREVIOUS, OWN, FENCED, OF_WARP = 0, 1, 2, 3, 4, 5, 6, 9, 12
"""Columns of Links: row of the releasing thread, the scope of its release, when, who, whether all of its block until
then is released, the link of the write that a read-modify-write took its value from (0: none), then by part what it
knew of its block, and its own proxy fences; at last what it knew of its warp."""
COLUMNS = 13


class Links:
    """What strong writes release, by number; number 0 is nothing."""

    def __init__(self) -> None:
        self.table: Numbers = np.zeros((256, COLUMNS), np.int64)
        self.count = 1

    def add(self, entries: Numbers) -> Numbers:
        """Add rows of COLUMNS, return their numbers."""
        end = self.count + len(entries)
        if end > len(self.table):
            more = np.zeros((max(len(self.table), end), COLUMNS), np.int64)
            self.table = np.concatenate([self.table, more])
        self.table[self.count : end] = entries
        made = np.arange(self.count, end)
        self.count = end
        return made


@dataclass(slots=True)
class Released:
    """By lane: the row and what else goes into a link at the lane's last fence that releases; row -1: none."""

    entries: Numbers

    @staticmethod
    def none(lanes: int) -> Released:
        entries = np.zeros((lanes, COLUMNS), np.int64)
        entries[:, ROW] = -1
        return Released(entries)


class Running:
    """A launched kernel: what its threads know.

    rows: by lane. actors: by lane, see clocks.py. own: by part and block, the stamp up to which each thread of the
    block knows all of the block. warps: by warp likewise, None as long as no warp met. last: by block, the stamp of
    the last access. parted: when some threads of a block last released or fenced what the others need not have.
    fenced: by part of other proxies, each lane's last proxy fence. released: by scope, fences that release.
    pending: links that lanes read without an acquire, for a fence after it. owed: links that lanes acquired and
    that are not in their rows yet (Order.settle). waited: by an mbarrier's number and lanes, the lanes after a
    relaxed wait there, and rows of what arrivals of their block and of others released. seen: by lane the link that
    it acquired last. acquired: by lane the last fence that acquires, and its scope, None if there was none. firsts:
    of each of its ranks, the number of its first block there (Clocks.rooms). calls_nvshmem: whether the module has
    NVSHMEM's device code in it (promised.py). deciding: its loads that decide where threads go on, by line and text.
    turns: by a store's number, how often each lane carried it out.
    """

    def __init__(
        self, launched: Launched, parts: int, stamp: int, shared_bytes: int, firsts: list[int],
        spare: Spare | None = None, former: Running | None = None,
    ) -> None:  # fmt: skip
        """former: a launch whose lanes may be the same."""
        self.launched = launched
        lanes, block = launched.lanes, launched.block
        self.spare = spare if spare is not None else Spare()
        self.blocks = len(launched.ranks) * launched.grid
        self.firsts: Numbers = np.zeros(max(launched.ranks) + 1, np.int64)
        self.firsts[list(launched.ranks)] = firsts
        if former is not None and self._shape == former._shape and np.array_equal(self.firsts, former.firsts):
            self.actors: Numbers = former.actors
        else:
            ranks = np.repeat(np.array(launched.ranks, np.int64), launched.grid)
            numbers = np.tile(np.arange(launched.grid), len(launched.ranks)) + np.repeat(firsts, launched.grid)
            blocks = ranks << RANK_SHIFT | numbers << BLOCK_SHIFT
            self.actors = (blocks[:, None] | np.arange(block)).ravel()
        self.rows: Numbers = self.spare.zeros(lanes)
        self.own: Numbers = np.full((parts, self.blocks), stamp, np.int64)
        self.warps: Numbers | None = None
        self.last: Numbers = np.full(self.blocks, stamp, np.int64)
        self.parted = stamp
        self.fenced: dict[int, Numbers] = {}
        self.released: dict[int, Released] = {}
        self.pending: list[tuple[Numbers, Numbers, int]] = []
        self.owed: list[tuple[Numbers, Numbers]] = []
        self.waited: dict[tuple[int, bytes], tuple[Numbers, list[int], list[int]]] = {}
        self.seen: Numbers = self.spare.zeros(lanes)
        self.acquired: Numbers | None = None
        self.acquired_scope: Numbers | None = None
        self.shared: Shadow | None = None
        self.tensor: Shadow | None = None  # of tensor memory
        # of a block in the shadow of shared memory: pieces of copies are rows of one matrix then
        self.row_bytes = 1 << max(shared_bytes - 1, 15).bit_length()
        self.ranks_left = len(launched.ranks)
        self.floors: dict[int, int] = {}  # what all lanes know, by the number of parts, until rows change
        self.floors_of: dict[tuple[int, int, int], int] = {}  # likewise, lanes from the first to the last, by parts
        self.met: dict[tuple[int, int, int], int] = {}  # see Order.fence_proxy, until rows change
        self.arrived: dict[tuple[str, int, int], list[int]] = {}  # rows, by block and barrier, or cluster and phase
        self.turns: dict[int, Numbers] = {}
        self.calls_nvshmem = False
        self.deciding: frozenset[tuple[int, str]] = frozenset()

    @property
    def _shape(self) -> tuple[object, ...]:
        return self.launched.ranks, self.launched.grid, self.launched.block

    def close(self) -> None:
        """Give up what only the accesses of a launch need, which is over."""
        for array in (self.rows, self.seen, *self.fenced.values()):
            self.spare.give(array)
        self.rows = self.seen = np.zeros(0, np.int64)
        self.fenced, self.released, self.owed, self.pending, self.turns = {}, {}, [], [], {}
        if self.shared is not None:
            self.shared.close(0)
        if self.tensor is not None:
            self.tensor.close(0)

    def note_acquire(self, lanes: Numbers, stamp: int, scope: int) -> None:
        """Note a fence that acquires."""
        if self.acquired is None or self.acquired_scope is None:
            self.acquired = np.zeros(self.launched.lanes, np.int64)
            self.acquired_scope = np.full(self.launched.lanes, 3)
        self.acquired[lanes], self.acquired_scope[lanes] = stamp, scope

    def acquires_of(self, lanes: Numbers) -> tuple[Numbers, Numbers]:
        """Return when lanes acquired by a fence last (0: never), and in which scope."""
        if self.acquired is None or self.acquired_scope is None:
            return np.zeros(len(lanes), np.int64), np.full(len(lanes), 3)
        return self.acquired[lanes], self.acquired_scope[lanes]

    @property
    def warps_per_block(self) -> int:
        return -(-self.launched.block // WARP)

    def actors_of(self, lanes: Numbers) -> Numbers:
        """Return the actors of lanes; of neighbours without a copy."""
        first, last = int(lanes[0]), int(lanes[-1])
        found: Numbers = self.actors[first : last + 1] if last - first + 1 == len(lanes) else self.actors[lanes]
        return found

    def blocks_of(self, lanes: Numbers) -> Numbers:
        """Return the number of each lane's block within the launch."""
        found: Numbers = lanes // self.launched.block
        return found

    def grid_blocks(self, actors: Numbers) -> Numbers:
        """Return for each actor the number of its block in the grid of the launch there; -1 if it has none."""
        ranks = np.minimum(actors >> RANK_SHIFT, len(self.firsts) - 1)
        blocks = (actors >> BLOCK_SHIFT & BLOCK_MASK) - self.firsts[ranks]
        found: Numbers = np.where((blocks >= 0) & (blocks < self.launched.grid), blocks, -1)
        return found

    def warps_of(self, lanes: Numbers) -> Numbers:
        """Return the number of each lane's warp within the launch."""
        blocks, threads = np.divmod(lanes, self.launched.block)
        found: Numbers = blocks * self.warps_per_block + threads // WARP
        return found

    def own_warps(self) -> Numbers:
        """Return by warp what its threads know of it."""
        if self.warps is None:
            self.warps = np.zeros(self.blocks * self.warps_per_block, np.int64)
        return self.warps

    def set_rows(self, lanes: Any, rows: Numbers | int) -> None:
        """Let lanes have other rows."""
        self.rows[lanes] = rows
        self.forget_floors()

    def forget_floors(self) -> None:
        """Note that rows have changed."""
        self.floors.clear()
        self.floors_of.clear()
        self.met.clear()

    def fences(self, part: int) -> Numbers:
        """Return by lane its last fence of a proxy."""
        if part not in self.fenced:
            self.fenced[part] = self.spare.zeros(self.launched.lanes)
        return self.fenced[part]

    def note_access(self, lanes: Group, stamp: int) -> None:
        """Note when blocks accessed memory last."""
        block = self.launched.block
        if isinstance(lanes, range):
            self.last[lanes.start // block : (lanes.stop - 1) // block + 1] = stamp
        else:
            self.last[lanes // block] = stamp

    def entries(self, lanes: Numbers, scope: int, stamp: int) -> Numbers:
        """Return what lanes would release now, as rows of Links."""
        made = np.zeros((len(lanes), COLUMNS), np.int64)
        blocks = self.blocks_of(lanes)
        made[:, ROW], made[:, SCOPE], made[:, STAMP] = self.rows[lanes], scope, stamp
        made[:, ACTOR] = self.actors[lanes]
        made[:, WHOLE] = self.last[blocks] <= self.own[GENERIC][blocks]
        if not made[:, WHOLE].all():
            self.parted = stamp
        made[:, OWN] = np.where(made[:, WHOLE] == 1, stamp, self.own[GENERIC][blocks])
        if self.warps is not None:
            made[:, OF_WARP] = self.warps[self.warps_of(lanes)]
        for part in range(1, len(self.own)):
            made[:, OWN + part] = self.own[part][blocks]
            if part in self.fenced:
                made[:, FENCED + part] = self.fenced[part][lanes]
        return made


@dataclass(slots=True)
class Lanes:
    """Lanes that access memory now."""

    run: Running
    ids: Numbers

    def rows(self, positions: Numbers) -> Numbers:
        found: Numbers = self.run.rows[self.ids[positions]]
        return found

    def actors(self, positions: Numbers) -> Numbers:
        found: Numbers = self.run.actors[self.ids[positions]]
        return found

    def own(self, part: int, positions: Numbers) -> Numbers:
        found: Numbers = self.run.own[part][self.run.blocks_of(self.ids[positions])]
        return found

    def warp(self, positions: Numbers) -> Numbers:
        if self.run.warps is None:
            return np.zeros(len(positions), np.int64)
        found: Numbers = self.run.warps[self.run.warps_of(self.ids[positions])]
        return found

    def itself(self, part: int, positions: Numbers) -> Numbers:
        if part == GENERIC:
            return np.full(len(positions), NEVER)
        if part not in self.run.fenced:
            return np.zeros(len(positions), np.int64)
        found: Numbers = self.run.fenced[part][self.ids[positions]]
        return found


@dataclass(slots=True)
class Held:
    """What actors knew at an earlier moment: the issue of a copy; or a host. One element each."""

    row: Numbers
    actor: Numbers
    own_parts: Numbers
    own_warp: Numbers
    itself_parts: Numbers

    @staticmethod
    def of(run: Running, lanes: Numbers, stamp: int | Numbers) -> Held:
        """Return what lanes know now. stamp: of all, or one a lane."""
        who, every = Lanes(run, lanes), np.arange(len(lanes))
        parts = range(len(run.own))
        itself = [np.full(len(lanes), stamp, np.int64), *(who.itself(part, every) for part in parts[1:])]
        own = np.stack([who.own(part, every) for part in parts])
        return Held(who.rows(every), who.actors(every), own, who.warp(every), np.stack(itself))

    @staticmethod
    def all_of(parts: list[Held]) -> Held:
        """Return what several know, one after another."""
        if len(parts) == 1:
            return parts[0]
        row, actor, warp = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("row", "actor", "own_warp")
        )
        own, itself = (
            np.concatenate([getattr(one, name) for one in parts], axis=1) for name in ("own_parts", "itself_parts")
        )
        return Held(row, actor, own, warp, itself)

    def some(self, at: Any) -> Held:
        """Return some of them."""
        return Held(self.row[at], self.actor[at], self.own_parts[:, at], self.own_warp[at], self.itself_parts[:, at])


@dataclass(slots=True)
class Many:
    """Actors that make many accesses each, such as copies, or a host. index: by access, whose it is."""

    held: Held
    index: Numbers

    def rows(self, positions: Numbers) -> Numbers:
        return self.held.row[self.index[positions]]

    def actors(self, positions: Numbers) -> Numbers:
        return self.held.actor[self.index[positions]]

    def own(self, part: int, positions: Numbers) -> Numbers:
        found: Numbers = self.held.own_parts[part][self.index[positions]]
        return found

    def warp(self, positions: Numbers) -> Numbers:
        return self.held.own_warp[self.index[positions]]

    def itself(self, part: int, positions: Numbers) -> Numbers:
        found: Numbers = self.held.itself_parts[part][self.index[positions]]
        return found


Actor = Lanes | Many
"""Who accesses memory, for some of its accesses (positions): rows, actors, what each knows of its own block and warp,
and the stamps up to which each knows its own accesses."""


def whole_blocks(lanes: Group, block: int) -> bool:
    """Return whether lanes are all threads of neighbouring blocks."""
    return isinstance(lanes, range) and lanes.start % block == 0 and lanes.stop % block == 0


Mask = npt.NDArray[np.bool_]
