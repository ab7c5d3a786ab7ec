"""How knowledge moves: releases and acquires, barriers, mbarriers, proxy fences; and what somebody knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simulator.happens_before.clocks import (
    BLOCK_SHIFT,
    CODE_MASK,
    COPY_CODE,
    LOW_MASK,
    MBARRIER_KEY,
    RANK_SHIFT,
    SPAN_CODE,
    STAMP_SHIFT,
    WARP_CODE,
    WARP_KEY,
    Clocks,
    changes_of,
    distinct,
    pairs_of,
    warps_of_codes,
)
from simulator.happens_before.extras import ALIAS, ALL, ASYNC, FAR, GENERIC, SAME, Numbers
from simulator.happens_before.extras import FENCED as FENCED_EDGE
from simulator.happens_before.running import (
    ACTOR,
    COLUMNS,
    FENCED,
    NEVER,
    OF_WARP,
    OWN,
    PREVIOUS,
    ROW,
    SCOPE,
    STAMP,
    WARP,
    WHOLE,
    Actor,
    Lanes,
    Links,
    Mask,
    Running,
    whole_blocks,
)
from simulator.happens_before.shadow import Epochs
from simulator.happens_before.streams import RankStreams
from simulator.observe.lanes import Group, ids_of

CTA, CLUSTER, GPU, SYS = range(4)
_MOST_OWED = 256
"""Lists of links that lanes acquired are brought into rows when there are more."""
_MANY_NODES = 20_000
"""Nodes of extras between two times that those of a rank are made one."""
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "sys": SYS}


@dataclass(slots=True, eq=False)
class Phases:
    """What arrivals at an mbarrier released. rows: by phase; done: of phases before `phase`."""

    phase: int = 0
    rows: dict[int, list[int]] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)

    def before(self, phase: int) -> list[int]:
        """Return the rows of phases before `phase`."""
        return [row for one, rows in self.rows.items() if one < phase for row in rows]

    def end(self, phase: int, row: int) -> None:
        """Let one row stand for all phases before `phase`."""
        self.rows = {one: rows for one, rows in self.rows.items() if one >= phase}
        self.done, self.phase = [row], phase


@dataclass(slots=True, eq=False)
class Mbarrier:
    """An mbarrier object. near: arrivals of its own block, and copies; far: those of other blocks, of scope cluster.

    made: the epoch of its mbarrier.init, 0 if every copy may count on it. counts: the actors whose copies need no
    check. copies: the phase and the stamps of copies that complete it, until a thread passed; over: those stamps of
    which no thread has acquired them at once.
    """

    number: int
    near: Phases = field(default_factory=Phases)
    far: Phases = field(default_factory=Phases)
    made: int = 0
    counts: set[int] = field(default_factory=set)
    copies: list[tuple[int, list[int]]] = field(default_factory=list)
    over: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """Lanes that arrive at mbarriers. owners: by lane, the place of its mbarrier among these; is_far: whether that is
    another block's; phases: by mbarrier."""

    lanes: Numbers
    owners: Numbers
    is_far: Mask
    phases: list[int]


class Order:
    """The clocks of a world and how they move on. running: launches; keeps: further rows in use, by what they are."""

    def __init__(self, world_size: int) -> None:
        self.clocks = Clocks(world_size)
        self.clocks.roots = self._roots
        self.links = Links()
        self.running: list[Running] = []
        self.hosts: list[int] = self.clocks.new(world_size).tolist()
        self.ranks = [RankStreams() for _ in range(world_size)]
        self.mbarriers: dict[tuple[int, int, int], Mbarrier] = {}
        self.held: dict[object, Numbers] = {}
        self.homes: list[int] = [0]  # by number of an mbarrier: an actor of its block
        # by stamp of a copy's access: its mbarrier's number, when a thread of its block was the first to pass the wait
        # for it, and when one acquired it by the wait
        self.barrier_of: Numbers = np.zeros(64, np.int64)
        self.passed_at: Numbers = np.full(64, NEVER)
        self.waited_at: Numbers = np.full(64, NEVER)
        self.flattened = [0] * world_size
        self.block_sizes: Callable[[Numbers], Numbers] = np.zeros_like
        """Gives the number of threads of a block of the launches that made accesses, by their stamps."""

    def _roots(self) -> list[Numbers]:
        """The rows that are in use. Links that everybody knows give theirs up."""
        found = [np.array([*self.hosts, *(row for one in self.ranks for row in one.rows())], np.int64)]
        for run in self.running:
            found.append(run.rows)
            found += [one.entries[one.entries[:, ROW] >= 0, ROW] for one in run.released.values()]
            found += [np.array(rows, np.int64) for rows in run.arrived.values()]
            found += [self.links.table[links, ROW] for _, links in run.owed]
            found += [np.array(near + far, np.int64) for _, near, far in run.waited.values()]
        found += list(self.held.values())
        for barrier in self.mbarriers.values():
            for one in (barrier.near, barrier.far):
                found.append(np.array(sum(one.rows.values(), one.done), np.int64))
        table = self.links.table[: self.links.count]
        known = self.clocks.rows[distinct(np.concatenate(found)), GENERIC].min(axis=0)
        live = table[:, STAMP] > known[self.clocks.slots_of(table[:, ACTOR])]
        table[~live, STAMP] = 0
        return [*found, table[live, ROW]]

    def settled(self) -> int:
        """Return a stamp up to which everybody knows everything, in every proxy."""
        hosts = [*self.hosts, *(row for one in self.ranks for row, _ in one.enqueued.values())]
        least = min(int(self.clocks.floor[hosts].min()), *(self.floor(run, ASYNC + 1) for run in self.running), NEVER)
        if not self.held:  # copies under way know what their lanes did when they began them
            return least
        return min(least, int(self.clocks.floor[np.concatenate(list(self.held.values()))].min()))

    def is_settled(self, stamp: int) -> bool:
        """Return whether everybody knows everything up to a stamp."""
        if any(stamp > self.floor(run, ASYNC + 1) for run in self.running):
            return False
        return stamp <= self.settled()

    def floor(self, run: Running, parts: int) -> int:
        """Return a stamp up to which all threads of a launch know everything, in the first parts."""
        if parts not in run.floors:
            run.floors[parts] = int(self.clocks.floor[changes_of(run.rows), :parts].min())
        return run.floors[parts]

    def floor_of(self, who: Lanes, count: int, parts: int) -> int:
        """Return a stamp up to which the first `count` of some lanes know everything, in the first parts."""
        first, last = int(who.ids[0]), int(who.ids[count - 1])
        if last - first + 1 != count:
            return int(self.clocks.floor[changes_of(who.run.rows[who.ids[:count]]), :parts].min())
        key = (first, last, parts)
        found = who.run.floors_of.get(key)
        if found is None:
            rows = changes_of(who.run.rows[first : last + 1])
            found = who.run.floors_of[key] = int(self.clocks.floor[rows, :parts].min())
        return found

    # What somebody knows

    def unknown(self, who: Actor, positions: Numbers, epochs: Epochs, part: int, is_rough: bool = False) -> Mask:
        """Return which of the epochs, not 0, do not happen before what the actor at each position does now.

        is_rough: leave out what is known of single warps, lanes and copies, which takes time.
        """
        stamps, actors = epochs >> STAMP_SHIFT, epochs & LOW_MASK
        rows = who.rows(positions)
        clocks = self.clocks
        part_here = part if clocks.parts > 1 else GENERIC
        bad: Mask = clocks.rows[rows, part_here, clocks.slots_of(actors)] < stamps
        left = np.flatnonzero(bad)
        if not len(left):
            return bad
        codes, mine, at = actors[left] & CODE_MASK, who.actors(positions[left]), positions[left]
        known = (actors[left] == mine) & (stamps[left] <= who.itself(part_here, at))
        same_block = (actors[left] >> BLOCK_SHIFT == mine >> BLOCK_SHIFT) & (codes != COPY_CODE)
        known |= same_block & (stamps[left] <= who.own(part_here, at))
        if part_here == GENERIC:
            warps = np.where(codes < WARP_CODE, codes // WARP, codes - WARP_CODE)
            same_warp = same_block & (codes < SPAN_CODE) & (warps == (mine & CODE_MASK) // WARP)
            known |= same_warp & (stamps[left] <= who.warp(at))
        bad[left[known]] = False
        if isinstance(who, Lanes) and who.run.owed and bad.any() and self.settle(who.run, who.ids[positions[bad]]):
            return self.unknown(who, positions, epochs, part, is_rough)
        if not is_rough:
            self._by_copies(bad, who, positions, rows, stamps, actors, part_here)
            self._by_extras(bad, who, positions, rows, stamps, actors, part_here)
            self._by_parts(bad, who, positions, rows, epochs, part)
        return bad

    def _by_parts(self, bad: Mask, who: Actor, positions: Numbers, rows: Numbers, epochs: Epochs, part: int) -> None:
        """Take out what is of several warps each of which is known, or of a warp each of whose lanes is."""
        codes, stamps = epochs & CODE_MASK, epochs >> STAMP_SHIFT
        left = np.flatnonzero(bad & (codes >= WARP_CODE) & (codes < COPY_CODE))
        until = self.clocks.extras.until[self.clocks.extras.of_row[rows[left]]]
        left = left[np.maximum(until, who.warp(positions[left])) >= stamps[left]]
        if not len(left):
            return
        is_span = codes[left] >= SPAN_CODE
        first, last = warps_of_codes(codes[left])
        size = self.block_sizes(stamps[left])
        low = np.where(is_span, WARP_CODE + first, first * WARP)
        high = np.where(is_span, WARP_CODE + last + 1, np.minimum(first * WARP + WARP, size))
        counts = high - low
        starts = np.cumsum(counts) - counts
        index = np.repeat(np.arange(len(left)), counts)
        parts = low[index] + np.arange(int(counts.sum())) - starts[index]
        at = left[index]
        unknown = self.unknown(who, positions[at], epochs[at] & ~CODE_MASK | parts, part)
        bad[left] = np.logical_or.reduceat(unknown, starts)

    def _by_copies(
        self, bad: Mask, who: Actor, positions: Numbers, rows: Numbers, stamps: Numbers, actors: Numbers, part: int
    ) -> None:
        """Take out the copies that a thread has waited for, by an mbarrier, before something that is known."""
        left = np.flatnonzero(bad & (actors & CODE_MASK == COPY_CODE))
        left = left[self.waited_at[np.minimum(stamps[left], len(self.waited_at) - 1)] < NEVER]
        if not len(left):
            return
        waited = self.waited_at[stamps[left]]
        homes = np.array(self.homes)[self.barrier_of[stamps[left]]]
        clocks, of_wait = self.clocks, ASYNC if part == ASYNC else GENERIC  # a wait is its own alias fence
        known = clocks.rows[rows[left], of_wait, clocks.slots_of(homes)] >= waited
        mine = who.actors(positions[left])
        own_block = mine >> BLOCK_SHIFT == homes >> BLOCK_SHIFT
        known |= own_block & (who.own(of_wait, positions[left]) >= waited)
        bad[left[known]] = False

    def _by_extras(
        self, bad: Mask, who: Actor, positions: Numbers, rows: Numbers, stamps: Numbers, actors: Numbers, part: int
    ) -> None:
        """Take out what the extras of rows know."""
        left = np.flatnonzero(bad)
        left = left[self.clocks.extras.of_row[rows[left]] > 0]
        if part == ASYNC:
            is_own = actors[left] >> BLOCK_SHIFT == who.actors(positions[left]) >> BLOCK_SHIFT
            for some, of_part in ((left[is_own], ASYNC), (left[~is_own], FAR)):
                self._in_extras_of(bad, some, rows, stamps, actors, of_part)
            return
        self._in_extras_of(bad, left, rows, stamps, actors, part)

    def _in_extras_of(
        self, bad: Mask, left: Numbers, rows: Numbers, stamps: Numbers, actors: Numbers, part: int
    ) -> None:
        """Take out which of `left` the extras of rows know in a part."""
        if not len(left):
            return
        columns = [rows[left], actors[left], stamps[left]]
        differ = np.ones(len(left), np.bool_)  # from the one before: pieces of a copy are alike
        differ[1:] = np.logical_or.reduce([one[1:] != one[:-1] for one in columns])
        some = left[differ]
        first, back = pairs_of(*(one[differ] for one in columns))
        at = some[first]
        known = self._in_extras(rows[at], part, actors[at], stamps[at])
        bad[left[known[back][np.cumsum(differ) - 1]]] = False

    def _in_extras(self, rows: Numbers, part: int, actors: Numbers, stamps: Numbers) -> Mask:
        codes, keys, least = actors & CODE_MASK, actors.copy(), stamps.copy()
        warps = np.where(codes < WARP_CODE, codes // WARP, codes - WARP_CODE)
        others = np.where(codes < SPAN_CODE, WARP_KEY | actors - codes | warps * WARP, actors)
        copies = np.flatnonzero(codes == COPY_CODE)
        if len(copies):
            at = np.minimum(stamps[copies], len(self.waited_at) - 1)
            least[copies] = self.passed_at[at]
            keys[copies] = others[copies] = MBARRIER_KEY | self.barrier_of[at]
        keys[codes >= WARP_CODE] = others[codes >= WARP_CODE]
        return self.clocks.extras.known(rows, part, keys, others, least)

    def note_copies(self, stamps: list[int], barrier: Mbarrier, phase: int) -> None:
        """Note the accesses of a copy that completes a phase of an mbarrier."""
        if stamps[-1] >= len(self.waited_at):
            more = max(len(self.waited_at), stamps[-1] + 1)
            self.waited_at = np.concatenate([self.waited_at, np.full(more, NEVER)])
            self.passed_at = np.concatenate([self.passed_at, np.full(more, NEVER)])
            self.barrier_of = np.concatenate([self.barrier_of, np.zeros(more, np.int64)])
        self.barrier_of[stamps] = barrier.number
        barrier.copies.append((phase, list(stamps)))

    def after(self, queue: Mbarrier, rows: list[int], stamp: int) -> int:
        """Return a row that knows what some rows do, and all that a thread's tensor cores have done, which its queue's
        copies are."""
        self._pass_copies(queue, 1, True, stamp)
        queue.over = []
        made = self._joined([rows], is_new=True)
        key, stamps = np.array([MBARRIER_KEY | queue.number]), np.array([stamp])
        for part in (*range(min(self.clocks.parts, FAR)), FAR):
            self.clocks.extras.add(made, part, key, stamps)
        self.clocks.seal(made)
        return int(made[0])

    # Releases and acquires

    def covers(self, run: Running, lanes: Numbers, scope: int, actors: Numbers, scopes: Numbers) -> Mask:
        """Return for each pair whether the scope of a lane's operation includes the other actor, and the other way."""
        narrow = np.minimum(scopes, scope)
        if int(narrow.min()) == SYS:
            return np.ones(len(lanes), np.bool_)
        mine = run.actors[lanes]
        same_rank = actors >> RANK_SHIFT == mine >> RANK_SHIFT
        same_block = actors >> BLOCK_SHIFT == mine >> BLOCK_SHIFT
        same_cluster = same_block
        if run.launched.clusters.size > 1:
            blocks = [run.grid_blocks(one) for one in (actors, mine)]
            numbers = [run.launched.clusters.numbers_of(one) for one in blocks]
            same_cluster = same_rank & (numbers[0] == numbers[1]) & (blocks[0] >= 0)
        choices = [same_block, same_cluster, same_rank, np.ones(len(lanes), np.bool_)]
        found: Mask = np.choose(narrow, choices)
        return found

    def acquire(self, run: Running, lanes: Numbers, links: Numbers, scope: int) -> None:
        """Lanes acquire what the links that they read, and those before them, release; 0: nothing."""
        table = self.links.table
        first_links, first_lanes = links, lanes
        fresh = links != run.seen[lanes]
        lanes, links = lanes[fresh], links[fresh]
        while True:
            some = links > 0
            if not some.any():
                break
            lanes, links = lanes[some], links[some]
            entries = table[links]
            go = entries[:, STAMP] > 0
            go &= self.covers(run, lanes, scope, entries[:, ACTOR], entries[:, SCOPE])
            if go.any():
                run.owed.append((lanes[go], links[go]))
            links = entries[:, PREVIOUS]
            links = np.where(links == run.seen[lanes], 0, links)
        run.seen[first_lanes] = first_links
        if len(run.owed) > _MOST_OWED:
            self.settle(run)

    def settle(self, run: Running, lanes: Numbers | None = None) -> bool:
        """Bring what lanes (None: all) acquired into their rows; return whether there was anything.

        Most acquires are followed by a barrier or the end of the launch, which bring all of a block's or of a rank's in
        at once."""
        if not run.owed:
            return False
        is_chosen = np.ones(run.launched.lanes, np.bool_) if lanes is None else np.zeros(run.launched.lanes, np.bool_)
        if lanes is not None:
            is_chosen[lanes] = True
        left, is_any = [], False
        for some, links in run.owed:
            at = is_chosen[some]
            if at.any():
                is_any = True
                self._join_links(run, some[at], links[at])
            if not at.all():
                left.append((some[~at], links[~at]))
        run.owed = left
        return is_any

    def take_owed(self, run: Running, low: int, high: int) -> tuple[Numbers, Numbers]:
        """Return lanes from low to high, whole blocks, and the links that they acquired of other blocks, for the caller
        to join. Links of the own block add nothing: all of its threads meet."""
        taken: list[tuple[Numbers, Numbers]] = []
        left = []
        for some, links in run.owed:
            at = (some >= low) & (some < high)
            here = some[at]
            foreign = self.links.table[links[at], ACTOR] >> BLOCK_SHIFT != run.actors[here] >> BLOCK_SHIFT
            taken.append((here[foreign], links[at][foreign]))
            if not at.all():
                left.append((some[~at], links[~at]))
        run.owed = left
        if not taken:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        lanes, found = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        return lanes, found

    def join_entries(self, rows: Numbers, entries: Numbers) -> None:
        """Let rows that are being made know what releases of other blocks say beyond the releasing threads' rows."""
        clocks = self.clocks
        slots = clocks.slots_of(entries[:, ACTOR])
        for part in range(min(clocks.parts, ASYNC)):
            at = (rows * clocks.parts + part) * clocks.rows.shape[2] + slots
            np.maximum.at(clocks.rows.reshape(-1), at, entries[:, OWN + part].astype(np.int32))
        self._link_extras(rows, entries, np.zeros(len(rows), np.bool_))

    def entries(self, run: Running, lanes: Numbers, scope: int, stamp: int) -> Numbers:
        """Return what lanes would release now (Running.entries)."""
        self.settle(run, lanes)
        return run.entries(lanes, scope, stamp)

    def _join_links(self, run: Running, lanes: Numbers, links: Numbers) -> None:
        clocks, table = self.clocks, self.links.table
        blocks = run.blocks_of(lanes)
        first, back = pairs_of(run.rows[lanes], links, blocks)
        entries = table[links[first]]
        mine = run.actors[lanes[first]]
        same_block = entries[:, ACTOR] >> BLOCK_SHIFT == mine >> BLOCK_SHIFT
        made = clocks.join_pairs(run.rows[lanes[first]], entries[:, ROW], same_block)
        slots = clocks.slots_of(entries[:, ACTOR])
        for part in range(clocks.parts):
            own = entries[:, OWN + part]
            if part == ASYNC:
                own = np.where(same_block, own, 0)
            clocks.rows[made, part, slots] = np.maximum(clocks.rows[made, part, slots], own)
        self._link_extras(made, entries, same_block)
        clocks.seal(made)
        run.set_rows(lanes, made[back])

    def _link_extras(self, made: Numbers, entries: Numbers, same_block: Mask) -> None:
        extras = self.clocks.extras
        loose = np.flatnonzero(entries[:, WHOLE] == 0)
        if len(loose):
            some = entries[loose]
            extras.add(made[loose], GENERIC, some[:, ACTOR], some[:, STAMP])
            met = some[:, OF_WARP] > some[:, OWN]
            extras.add(made[loose[met]], GENERIC, _warp_keys(some[met, ACTOR]), some[met, OF_WARP])
        for part in range(1, self.clocks.parts):
            fenced = (entries[:, FENCED + part] > entries[:, OWN + part]) & (same_block | (part == ALIAS))
            extras.add(made[fenced], part, entries[fenced, ACTOR], entries[fenced, FENCED + part])

    def flatten(self, row: int, rank: int) -> None:
        """Make one node of what a row of a launch's end or beginning knows beyond its slots, now and then."""
        extras, clocks = self.clocks.extras, self.clocks
        since = extras.count - self.flattened[rank]
        if not extras.of_row[row] or 0 <= since < _MANY_NODES:
            return
        self.flattened[rank] = extras.count
        keys, stamps = extras.facts_of(row)
        homes = np.array(self.homes)
        of_barrier = keys >= MBARRIER_KEY
        actors = np.where(
            of_barrier, homes[np.where(of_barrier, keys - MBARRIER_KEY, 0)] | COPY_CODE, keys & WARP_KEY - 1
        )
        wanted = np.flatnonzero(clocks.rows[row, GENERIC, clocks.slots_of(actors)] < stamps)
        wanted = wanted[np.lexsort((-stamps[wanted], keys[wanted]))]
        keys, first = np.unique(keys[wanted], return_index=True)
        one = np.array([row])
        extras.of_row[row] = 0
        extras.add(np.full(len(keys), row), GENERIC, keys, stamps[wanted[first]])
        extras.derive(one, np.zeros(1, np.int64), extras.of_row[one], ALL)

    # Groups of lanes

    def gather(self, run: Running, lanes: Numbers, stamp: int) -> int:
        """Return a new row of all that these lanes know and did."""
        return int(self.gather_each(run, lanes, np.zeros(len(lanes), np.int64), stamp)[0])

    def gather_each(self, run: Running, lanes: Numbers, groups: Numbers, stamp: int) -> Numbers:
        """Return a new row for each group of lanes. groups: of each lane its group, ascending, all from 0."""
        self.settle(run, lanes)
        clocks = self.clocks
        first, _ = pairs_of(groups, run.rows[lanes])
        first = np.sort(first)
        made = clocks.join_groups(run.rows[lanes[first]], groups[first])
        blocks = run.blocks_of(lanes)
        keys = groups * run.blocks + blocks
        keys, first, back, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        rows, blocks = made[keys // run.blocks], blocks[first]
        slots = clocks.slots_of(run.actors[blocks * run.launched.block])
        full = counts == run.launched.block
        for part in range(clocks.parts):
            own = run.own[part][blocks]
            if part == GENERIC:
                own = np.where(full, stamp, own)
            clocks.rows[rows, part, slots] = np.maximum(clocks.rows[rows, part, slots], own)
        if not full.all():
            run.parted = stamp
            some = ~full[back.reshape(-1)]
            self._gather_warps(run, made[groups[some]], groups[some], lanes[some], stamp)
        for part in range(1, clocks.parts):
            if part in run.fenced:
                fenced = run.fenced[part][lanes]
                some = fenced > run.own[part][run.blocks_of(lanes)]
                clocks.extras.add(made[groups[some]], part, run.actors[lanes[some]], fenced[some])
        clocks.seal(made)
        return made

    def gather_released(self, run: Running, lanes: Numbers, scope: int) -> list[int]:
        """Return new rows of what these lanes released by fences of at least a scope: a relaxed arrival hands it on."""
        last = np.zeros((len(lanes), COLUMNS), np.int64)
        for wide, one in run.released.items():
            mine = one.entries[lanes]
            last = np.where(((wide >= scope) & (mine[:, STAMP] > last[:, STAMP]))[:, None], mine, last)
        has_any = last[:, STAMP] > 0
        entries = last[has_any]
        if not len(entries):
            return []
        row = self.clocks.joined(distinct(entries[:, ROW]).tolist())
        blocks, back, counts = np.unique(run.blocks_of(lanes[has_any]), return_inverse=True, return_counts=True)
        earliest = np.full(len(blocks), NEVER)
        np.minimum.at(earliest, back, entries[:, STAMP])
        full = (counts == run.launched.block)[back]
        entries[full, OWN] = np.maximum(entries[full, OWN], earliest[back][full])
        entries[:, WHOLE] |= entries[:, OWN] >= entries[:, STAMP]
        slots = self.clocks.slots_of(entries[:, ACTOR])
        for part in range(self.clocks.parts):
            np.maximum.at(self.clocks.rows[row, part], slots, entries[:, OWN + part].astype(np.int32))
        self._link_extras(np.full(len(entries), row), entries, np.ones(len(entries), np.bool_))
        self.clocks.seal(np.array([row]))
        return [row]

    def _gather_warps(self, run: Running, rows: Numbers, groups: Numbers, lanes: Numbers, stamp: int) -> None:
        """Lanes of blocks that are not complete, with their groups' rows: whole warps, and single lanes."""
        extras, count = self.clocks.extras, run.blocks * run.warps_per_block
        keys = groups * count + run.warps_of(lanes)
        keys, first, back, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        starts = lanes[first] - run.launched.block * run.blocks_of(lanes[first])
        size = np.minimum(WARP, run.launched.block - starts // WARP * WARP)
        whole = counts == size
        warp_keys = WARP_KEY | run.actors[lanes[first]]
        extras.add(rows[first[whole]], GENERIC, warp_keys[whole], np.full(int(whole.sum()), stamp))
        single = ~whole[back.reshape(-1)]
        extras.add(rows[single], GENERIC, run.actors[lanes[single]], np.full(int(single.sum()), stamp))
        if run.warps is not None:
            own, warps = run.own[GENERIC][run.blocks_of(lanes[first])], run.warps[keys % count]
            met = ~whole & (warps > own)
            extras.add(rows[first[met]], GENERIC, _warp_keys(run.actors[lanes[first[met]]]), warps[met])

    def merge(self, run: Running, lanes: Numbers, rows: list[int]) -> None:
        """Lanes come to know what rows know."""
        if not rows or not len(lanes):
            return
        row = self.clocks.joined(rows) if len(rows) > 1 else rows[0]
        self.merge_each(run, lanes, np.full(len(lanes), row))

    def merge_each(self, run: Running, lanes: Numbers, rows: Numbers) -> None:
        """Lanes, each once, come to know what a row knows, one a lane."""
        self.settle(run, lanes)
        first, back = pairs_of(run.rows[lanes], rows)
        known, more = run.rows[lanes[first]], rows[first]
        if (known == more).all():
            return
        made = self.clocks.join_pairs(known, more, np.ones(len(first), np.bool_))
        self.clocks.seal(made)
        run.set_rows(lanes, made[back])

    def meet_blocks(self, run: Running, lanes: Group, stamp: int) -> None:
        """Barriers of whole blocks: each thread knows all that its block knows and did."""
        size = run.launched.block
        if not whole_blocks(lanes, size):
            ids = ids_of(lanes)
            blocks, groups, counts = np.unique(run.blocks_of(ids), return_inverse=True, return_counts=True)
            groups = groups.reshape(-1)
            self.merge_each(run, ids, self.gather_each(run, ids, groups, stamp)[groups])
            run.own[GENERIC][blocks[counts == size]] = stamp
            return
        assert isinstance(lanes, range)
        low, high = lanes.start // size, lanes.stop // size
        self._meet_fences(run, low, high)
        run.own[GENERIC][low:high] = stamp
        owing, links = self.take_owed(run, lanes.start, lanes.stop)
        view = run.rows[lanes.start : lanes.stop].reshape(-1, size)
        differ = (view != view[:, :1]).any(axis=1)
        differ[owing // size - low] = True
        if not differ.any():
            return
        numbers = np.cumsum(differ) - 1  # by block, its place among those that differ
        entries, places = self.links.table[links], numbers[owing // size - low]
        rows, owners, is_other = self._sources(view[differ], entries[:, ROW], places)
        made = self.clocks.join_groups(rows, owners, is_other)
        self.join_entries(made[places], entries)
        self.clocks.seal(made)
        view[differ] = made[:, None]
        run.forget_floors()

    def _sources(self, view: Numbers, others: Numbers, places: Numbers) -> tuple[Numbers, Numbers, Mask]:
        """The rows of blocks' threads and others' rows, each once a block: rows, blocks, and which are others'."""
        own = distinct(changes_of((np.arange(len(view))[:, None] << 32 | view << 1).ravel()))
        foreign = distinct(places << 32 | others << 1 | 1)
        keys = np.sort(np.concatenate([own, foreign]))
        return keys >> 1 & (1 << 31) - 1, keys >> 32, keys & 1 == 1

    def _meet_fences(self, run: Running, low: int, high: int) -> None:
        """What all lanes of blocks [low, high) have fenced, the blocks know; what some of them have, their rows."""
        size = run.launched.block
        for part, fenced in run.fenced.items():
            each = fenced[low * size : high * size].reshape(-1, size)
            own = run.own[part][low:high]
            np.maximum(own, each.min(axis=1), out=own)
            fenced_more = fenced[low * size : high * size] > np.repeat(own, size)
            if not fenced_more.any():
                continue
            lanes = low * size + np.flatnonzero(fenced_more)
            blocks = run.blocks_of(lanes)
            first = np.flatnonzero(np.concatenate([[True], blocks[1:] != blocks[:-1]]))
            made = self._copied(run.rows[lanes[first]])
            owners = np.repeat(made, np.diff(np.append(first, len(lanes))))
            self.clocks.extras.add(owners, part, run.actors[lanes], fenced[lanes])
            self.clocks.seal(made)
            run.set_rows(lanes[first], made)

    def _copied(self, rows: Numbers) -> Numbers:
        """Return new rows that know what rows do, not sealed."""
        made = self.clocks.new(len(rows), rows)
        self.clocks.rows[made] = self.clocks.rows[rows]
        self.clocks.extras.derive(made, np.arange(len(made)), self.clocks.extras.of_row[rows], SAME)
        return made

    def meet(self, run: Running, lanes: Numbers, stamp: int, more: list[int] | None = None) -> None:
        """A barrier of lanes of one block: each knows what all of them knew and did, and what further rows know."""
        self.merge(run, lanes, [self.gather(run, lanes, stamp), *(more or [])])
        if len(lanes) == run.launched.block:
            run.own[GENERIC][run.blocks_of(lanes[:1])] = stamp

    def meet_warps(self, run: Running, lanes: Numbers, stamp: int) -> None:
        """Barriers of lanes of warps."""
        self.settle(run, lanes)
        warps = run.warps_of(lanes)
        numbers, first, counts = np.unique(warps, return_index=True, return_counts=True)
        threads = lanes[first] % run.launched.block
        size = np.minimum(WARP, run.launched.block - threads // WARP * WARP)
        full = counts == size
        run.own_warps()[numbers[full]] = run.parted = stamp
        same = np.minimum.reduceat(run.rows[lanes], first) == np.maximum.reduceat(run.rows[lanes], first)
        fenced = np.zeros(len(numbers), np.bool_)
        for part, stamps in run.fenced.items():
            fenced |= np.maximum.reduceat(stamps[lanes], first) > run.own[part][run.blocks_of(lanes[first])]
        for at in np.flatnonzero(~(full & same & ~fenced)).tolist():
            some = lanes[first[at] : first[at] + counts[at]]
            self.merge(run, some, [self.gather(run, some, stamp)])

    # Proxy fences

    def fence_proxy(self, run: Running, lanes: Numbers, part: int, stamp: int) -> None:
        """What lanes know of generic accesses, and did, they know in another part, too.

        In ASYNC this leaves out what other threads of their own block did: a proxy fence takes effect within a single
        thread, so each of these fences for itself, before it hands on (README.md, "The async proxy")."""
        clocks = self.clocks
        if clocks.parts == 1:
            return
        self.settle(run, lanes)
        low, high = int(lanes[0]), int(lanes[-1]) + 1
        are_neighbours = high - low == len(lanes)
        run.parted = stamp
        run.fences(part)[slice(low, high) if are_neighbours else lanes] = stamp
        key, latest = (low, high, part), int(run.own[GENERIC].max())
        if run.met.get(key) == latest and run.warps is None and are_neighbours:
            return
        blocks = run.blocks_of(lanes)
        groups = blocks if run.warps is None else run.warps_of(lanes)
        first, back = pairs_of(run.rows[lanes], groups)
        old, own = run.rows[lanes[first]], run.own[GENERIC][blocks[first]]
        slots = clocks.slots_of(run.actors[lanes[first]])
        if run.warps is not None or self._is_news(old, part, slots, own):
            made = clocks.new(len(first), old)
            fenced_edge = FENCED_EDGE + (FAR if part == ASYNC else part)
            clocks.rows[made] = clocks.rows[old]
            clocks.rows[made, part] = np.maximum(clocks.rows[old, part], clocks.rows[old, GENERIC])
            if part == ASYNC:
                clocks.rows[made, part, slots] = clocks.rows[old, part, slots]
            else:
                clocks.rows[made, part, slots] = np.maximum(clocks.rows[made, part, slots], own)
            clocks.extras.derive(made, np.arange(len(made)), clocks.extras.of_row[old], fenced_edge)
            if run.warps is not None and part != ASYNC:
                warps = run.warps[run.warps_of(lanes[first])]
                met = warps > own
                clocks.extras.add(made[met], part, _warp_keys(run.actors[lanes[first[met]]]), warps[met])
            clocks.seal(made)
            run.set_rows(lanes, made[back])
        if are_neighbours:
            run.met[key] = latest

    def _is_news(self, rows: Numbers, part: int, slots: Numbers, own: Numbers) -> bool:
        """Return whether some rows, of threads that know their blocks up to `own`, do not know all of it in a part; of
        ASYNC, all of other blocks."""
        clocks = self.clocks
        if clocks.extras.of_row[rows].any():
            return True
        less = clocks.rows[rows, part] < clocks.rows[rows, GENERIC]
        if part == ASYNC:
            less[np.arange(len(rows)), slots] = False
        elif (clocks.rows[rows, part, slots] < own).any():
            return True
        return bool(less.any())

    # Mbarriers

    def mbarrier(self, run: Running, block: int, address: int) -> Mbarrier:
        """Return the mbarrier at an address of a block's shared memory."""
        key = (id(run), block, address)
        if key not in self.mbarriers:
            self.mbarriers[key] = Mbarrier(len(self.homes))
            self.homes.append(int(run.actors[block * run.launched.block]))
        return self.mbarriers[key]

    def arrive(
        self, run: Running, barriers: list[Mbarrier], arrived: Arrived, scope: int, relaxed: bool, stamp: int
    ) -> None:
        """Lanes release at mbarriers what they know; a relaxed arrival, what their fences before it did."""
        groups = arrived.owners * 2 + arrived.is_far
        some = np.argsort(groups, kind="stable")
        some = some if scope >= CLUSTER else some[~arrived.is_far[some]]
        if not len(some):
            return
        names, back = np.unique(groups[some], return_inverse=True)
        back, lanes = back.reshape(-1), arrived.lanes[some]
        made = None if relaxed else self.gather_each(run, lanes, back, stamp).tolist()
        for at, name in enumerate(names.tolist()):
            barrier = barriers[name >> 1]
            rows = (barrier.far if name & 1 else barrier.near).rows.setdefault(arrived.phases[name >> 1], [])
            if made is None:
                rows += self.gather_released(run, lanes[back == at], CLUSTER if name & 1 else CTA)
            else:
                rows.append(made[at])

    def pass_waits(
        self, run: Running, ends: list[tuple[Mbarrier, int]], lanes: Numbers, owners: Numbers, scope: int,
        relaxed: bool, stamp: int,
    ) -> None:  # fmt: skip
        """Lanes go on: of each mbarrier, all phases before one are over. owners: by lane, the place of its mbarrier.

        A relaxed wait leaves it to a fence to acquire them."""
        for barrier, phase in ends:
            self._pass_copies(barrier, phase, relaxed, stamp)
        near = [
            (one, phase) for one, phase in ends if not one.near.done or one.near.phase < phase or one.near.before(phase)
        ]
        if near:
            made = self._end_phases([(one.near, phase) for one, phase in near])
            keys, stamps = np.array([MBARRIER_KEY | one.number for one, _ in near]), np.full(len(near), stamp)
            for part in range(self.clocks.parts):
                if part != ASYNC:
                    self.clocks.extras.add(made, part, keys, stamps)
        far = [(one.far, phase) for one, phase in ends if one.far.before(phase)]
        if far:
            self._end_phases(far)
        rows = [one.near.done + (one.far.done if scope >= CLUSTER else []) for one, _ in ends]
        if relaxed:
            for at, (one, _) in enumerate(ends):
                some = lanes[owners == at]
                run.waited[one.number, some.tobytes()] = (some, one.near.done, rows[at][len(one.near.done) :])
        else:
            self.merge_each(run, lanes, self._joined(rows)[owners])

    def _end_phases(self, ends: list[tuple[Phases, int]]) -> Numbers:
        """Let one new row each stand for all phases before one; return the rows."""
        made = self._joined([part.before(phase) + part.done for part, phase in ends], is_new=True)
        self.clocks.seal(made)
        for (part, phase), row in zip(ends, made.tolist(), strict=True):
            part.end(phase, row)
        return made

    def _pass_copies(self, barrier: Mbarrier, phase: int, relaxed: bool, stamp: int) -> None:
        """A thread has waited for the copies of all phases before this one."""
        passed = [stamps for one, stamps in barrier.copies if one < phase]
        if passed:
            self.passed_at[np.concatenate(passed)] = stamp
            barrier.copies = [one for one in barrier.copies if one[0] >= phase]
            barrier.over += [one for stamps in passed for one in stamps]
        if barrier.over and not relaxed:
            self.waited_at[barrier.over] = stamp
            barrier.over = []

    def _joined(self, groups: list[list[int]], is_new: bool = False) -> Numbers:
        """Return a row for each group of rows that knows what any of them knows; nothing, if there are none.

        is_new: even if a group is of one row; then the rows are not sealed."""
        counts = np.array([len(rows) for rows in groups])
        found = np.array([rows[0] if rows else -1 for rows in groups], np.int64)
        some = np.flatnonzero(counts > (0 if is_new else 1))
        if len(some):
            rows = np.concatenate([np.array(groups[at], np.int64) for at in some.tolist()])
            found[some] = self.clocks.join_groups(rows, np.repeat(np.arange(len(some)), counts[some]))
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            found[empty] = self.clocks.new(len(empty), found[counts > 0])
            self.clocks.rows[found[empty]] = 0
        return found

    def acquire_waited(self, run: Running, mask: Mask, scope: int) -> None:
        """Lanes acquire by a fence what they waited for at mbarriers by relaxed waits."""
        for key, (lanes, near, far) in list(run.waited.items()):
            at = mask[lanes]
            self.merge(run, lanes[at], near + (far if scope >= CLUSTER else []))
            if at.all() and (scope >= CLUSTER or not far):
                del run.waited[key]


def _warp_keys(actors: Numbers) -> Numbers:
    """Return the keys in extras of actors' warps."""
    found: Numbers = WARP_KEY | actors - (actors & CODE_MASK) % WARP
    return found
