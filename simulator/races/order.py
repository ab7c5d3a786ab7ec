"""How knowledge moves: releases and acquires, barriers, mbarriers, proxy fences; and what somebody knows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.observe.lanes import Group
from simulator.races.clocks import (
    ALIAS,
    ASYNC,
    BLOCK_CODE,
    BLOCK_SHIFT,
    CODE_MASK,
    COPY_CODE,
    GENERIC,
    LOW_MASK,
    MBARRIER_KEY,
    RANK_SHIFT,
    STAMP_SHIFT,
    WARP_CODE,
    WARP_KEY,
    Clocks,
    Numbers,
    merge_extras,
    pairs_of,
)
from simulator.races.running import (
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
    Links,
    Mask,
    Running,
    as_ids,
    whole_blocks,
)
from simulator.races.shadow import Epochs

CTA, CLUSTER, GPU, SYS = range(4)
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

    made: the epoch of its mbarrier.init, 0 if every copy may count on it. counts: the actors whose copies were checked.
    """

    number: int
    near: Phases = field(default_factory=Phases)
    far: Phases = field(default_factory=Phases)
    made: int = 0
    counts: set[int] = field(default_factory=set)


class Order:
    """The clocks of a world and how they move on. running: launches; keeps: further rows in use, by what they are."""

    def __init__(self, world_size: int) -> None:
        self.clocks = Clocks(world_size)
        self.clocks.roots = self._roots
        self.links = Links()
        self.running: list[Running] = []
        self.hosts: list[int] = self.clocks.new(world_size).tolist()
        self.streams: list[int] = [-1] * world_size
        self.enqueued: list[list[int]] = [[] for _ in range(world_size)]
        self.mbarriers: dict[tuple[int, int, int], Mbarrier] = {}
        self.made_mbarriers = 0
        self.held: dict[object, Numbers] = {}
        self.copies: dict[int, tuple[int, int]] = {}  # by stamp of a copy's access: its mbarrier's number and phase

    def _roots(self) -> list[Numbers]:
        """The rows that are in use. Links that everybody knows give theirs up."""
        found = [np.array([*self.hosts, *(row for row in self.streams if row >= 0)], np.int64)]
        found += [np.array(rows, np.int64) for rows in self.enqueued if rows]
        for run in self.running:
            found.append(run.rows)
            found += [one.entries[one.entries[:, ROW] >= 0, ROW] for one in run.released.values()]
            found += [np.array(rows, np.int64) for rows in run.arrived.values()]
            found += [np.array(one.rows + one.done, np.int64) for one in run.clusters.values()]
            found += [np.array(near + far, np.int64) for _, near, far in run.waited.values()]
        found += list(self.held.values())
        for barrier in self.mbarriers.values():
            for one in (barrier.near, barrier.far):
                found.append(np.array(sum(one.rows.values(), one.done), np.int64))
        table = self.links.table[: self.links.count]
        known = self.clocks.rows[np.unique(np.concatenate(found)), GENERIC].min(axis=0)
        live = table[:, STAMP] > known[self.clocks.slots_of(table[:, ACTOR])]
        table[~live, STAMP] = 0
        return [*found, table[live, ROW]]

    def settled(self) -> int:
        """Return a stamp up to which everybody knows everything, in every proxy."""
        hosts = [*self.hosts, *(row for rows in self.enqueued for row in rows)]
        rows = np.concatenate([np.array(hosts, np.int64), *(run.rows for run in self.running)])
        return int(self.clocks.floor[rows].min())

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
            same_warp = same_block & (codes < BLOCK_CODE) & (warps == (mine & CODE_MASK) // WARP)
            known |= same_warp & (stamps[left] <= who.warp(at))
        bad[left[known]] = False
        if clocks.extras and not is_rough:
            self._by_extras(bad, rows, stamps, actors, part_here)
        return bad

    def _by_extras(self, bad: Mask, rows: Numbers, stamps: Numbers, actors: Numbers, part: int) -> None:
        """Take out what the extras of rows know."""
        has_extras = np.zeros(len(self.clocks.rows), np.bool_)
        has_extras[list(self.clocks.extras)] = True
        left = np.flatnonzero(bad & has_extras[rows])
        if not len(left):
            return
        columns = [rows[left], actors[left], stamps[left]]
        differ = np.ones(len(left), np.bool_)  # from the one before: pieces of a copy are alike
        differ[1:] = np.logical_or.reduce([one[1:] != one[:-1] for one in columns])
        some = left[differ]
        first, back = pairs_of(*(one[differ] for one in columns))
        known = np.zeros(len(first), np.bool_)
        for number, at in enumerate(some[first].tolist()):
            extras = self.clocks.extras.get(int(rows[at]))
            if extras:
                known[number] = self._in_extras(extras, part, int(actors[at]), int(stamps[at]))
        bad[left[known[back][np.cumsum(differ) - 1]]] = False

    def _in_extras(self, extras: dict[tuple[int, int], int], part: int, actor: int, stamp: int) -> bool:
        code = actor & CODE_MASK
        if code == COPY_CODE:
            barrier, phase = self.copies.get(stamp, (0, NEVER))
            return extras.get((part, MBARRIER_KEY | barrier), -1) > phase
        block = actor & ~CODE_MASK
        warp = code // WARP if code < WARP_CODE else code - WARP_CODE
        if code < BLOCK_CODE and extras.get((part, WARP_KEY | block | warp * WARP), -1) >= stamp:
            return True
        return code < WARP_CODE and extras.get((part, actor), -1) >= stamp

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
            grid = run.launched.grid
            blocks = [
                np.minimum((one >> BLOCK_SHIFT) & (1 << RANK_SHIFT - BLOCK_SHIFT) - 1, grid - 1)
                for one in (actors, mine)
            ]
            numbers = [run.launched.clusters.numbers_of(one) for one in blocks]
            same_cluster = same_rank & (numbers[0] == numbers[1])
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
                self._join_links(run, lanes[go], links[go])
            links = entries[:, PREVIOUS]
            links = np.where(links == run.seen[lanes], 0, links)
        run.seen[first_lanes] = first_links

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
        run.rows[lanes] = made[back]

    def _link_extras(self, made: Numbers, entries: Numbers, same_block: Mask) -> None:
        clocks = self.clocks
        wanted = entries[:, WHOLE] == 0
        if clocks.parts > 1:
            wanted |= (entries[:, FENCED + ALIAS] > entries[:, OWN + ALIAS]) | (
                (entries[:, FENCED + ASYNC] > entries[:, OWN + ASYNC]) & same_block
            )
        for at in np.flatnonzero(wanted).tolist():
            row, entry = int(made[at]), entries[at]
            actor = int(entry[ACTOR])
            if not entry[WHOLE]:
                clocks.add_extra(row, GENERIC, actor, int(entry[STAMP]))
                if entry[OF_WARP] > entry[OWN]:
                    clocks.add_extra(row, GENERIC, _warp_key(actor), int(entry[OF_WARP]))
            for part in range(1, clocks.parts):
                if entry[FENCED + part] > entry[OWN + part] and (part == ALIAS or same_block[at]):
                    clocks.add_extra(row, part, actor, int(entry[FENCED + part]))

    # Groups of lanes

    def gather(self, run: Running, lanes: Numbers, stamp: int) -> int:
        """Return a new row of all that these lanes know and did."""
        clocks = self.clocks
        row = clocks.joined(np.unique(run.rows[lanes]).tolist())
        blocks, counts = np.unique(run.blocks_of(lanes), return_counts=True)
        slots = clocks.slots_of(run.actors[blocks * run.launched.block])
        full = counts == run.launched.block
        for part in range(clocks.parts):
            own = run.own[part][blocks]
            if part == GENERIC:
                own = np.where(full, stamp, own)
            clocks.rows[row, part, slots] = np.maximum(clocks.rows[row, part, slots], own)
        if not full.all():
            self._gather_warps(run, row, lanes[~full[np.searchsorted(blocks, run.blocks_of(lanes))]], stamp)
        for part in range(1, clocks.parts):
            if part in run.fenced:
                self._gather_fences(run, row, lanes, part)
        clocks.seal(np.array([row]))
        return row

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
        row = self.clocks.joined(np.unique(entries[:, ROW]).tolist())
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

    def _gather_warps(self, run: Running, row: int, lanes: Numbers, stamp: int) -> None:
        """Lanes of blocks that are not complete: whole warps, and single lanes."""
        warps, first, counts = np.unique(run.warps_of(lanes), return_index=True, return_counts=True)
        starts = lanes[first] - run.launched.block * run.blocks_of(lanes[first])
        size = np.minimum(WARP, run.launched.block - starts // WARP * WARP)
        for at in np.flatnonzero(counts == size).tolist():
            actor = int(run.actors[lanes[first[at]]])
            self.clocks.add_extra(row, GENERIC, WARP_KEY | actor, stamp)
        for lane in lanes[np.isin(run.warps_of(lanes), warps[counts != size])].tolist():
            self.clocks.add_extra(row, GENERIC, int(run.actors[lane]), stamp)
        if run.warps is not None:
            own = run.own[GENERIC][run.blocks_of(lanes[first])]
            for at in np.flatnonzero((counts != size) & (run.warps[warps] > own)).tolist():
                key = _warp_key(int(run.actors[lanes[first[at]]]))
                self.clocks.add_extra(row, GENERIC, key, int(run.warps[warps[at]]))

    def _gather_fences(self, run: Running, row: int, lanes: Numbers, part: int) -> None:
        """The lanes' own accesses before their own proxy fences."""
        own, fenced = run.own[part][run.blocks_of(lanes)], run.fenced[part][lanes]
        for lane in lanes[fenced > own].tolist():
            self.clocks.add_extra(row, part, int(run.actors[lane]), int(run.fenced[part][lane]))

    def merge(self, run: Running, lanes: Numbers, rows: list[int]) -> None:
        """Lanes come to know what rows know."""
        if not rows or not len(lanes):
            return
        row = self.clocks.joined(rows) if len(rows) > 1 else rows[0]
        known, back = np.unique(run.rows[lanes], return_inverse=True)
        if len(known) == 1 and known[0] == row:
            return
        everywhere = np.ones(len(known), np.bool_)
        made = self.clocks.join_pairs(known, np.full(len(known), row), everywhere)
        self.clocks.seal(made)
        run.rows[lanes] = made[back.reshape(-1)]

    def meet_blocks(self, run: Running, lanes: Group, stamp: int) -> None:
        """Barriers of whole blocks: each thread knows all that its block knows and did."""
        size = run.launched.block
        if not whole_blocks(lanes, size):
            ids = as_ids(lanes)
            for block in np.unique(run.blocks_of(ids)).tolist():
                self.meet(run, ids[run.blocks_of(ids) == block], stamp)
            return
        assert isinstance(lanes, range)
        low, high = lanes.start // size, lanes.stop // size
        self._meet_fences(run, low, high)
        run.own[GENERIC][low:high] = stamp
        view = run.rows[lanes.start : lanes.stop].reshape(-1, size)
        differ = np.flatnonzero((view != view[:, :1]).any(axis=1))
        if not len(differ):
            return
        some = view[differ]
        blocks = np.repeat(np.arange(len(differ)), size)
        first, _ = pairs_of(blocks, some.ravel())
        rows, owners = some.ravel()[first], blocks[first]
        order = np.argsort(owners, kind="stable")
        rows, owners = rows[order], owners[order]
        starts = np.searchsorted(owners, np.arange(len(differ)))
        clocks = self.clocks
        made = clocks.new(len(differ))
        clocks.rows[made] = np.maximum.reduceat(clocks.rows[rows], starts, axis=0)
        if clocks.extras:
            for row, owner in zip(rows.tolist(), owners.tolist(), strict=True):
                if row in clocks.extras:
                    merge_extras(clocks.extras.setdefault(int(made[owner]), {}), clocks.extras[row])
        clocks.seal(made)
        view[differ] = made[:, None]

    def _meet_fences(self, run: Running, low: int, high: int) -> None:
        """What all lanes of blocks [low, high) have fenced, the blocks know; what some of them have, their rows."""
        size = run.launched.block
        for part, fenced in run.fenced.items():
            each = fenced[low * size : high * size].reshape(-1, size)
            least, most = each.min(axis=1), each.max(axis=1)
            own = run.own[part][low:high]
            np.maximum(own, least, out=own)
            for block in np.flatnonzero(most > own).tolist():
                lanes = np.arange((low + block) * size, (low + block + 1) * size)
                some = lanes[fenced[lanes] > own[block]]
                (row,) = self.clocks.new(1).tolist()
                old = int(run.rows[some[0]])
                self.clocks.rows[row] = self.clocks.rows[old]
                merge_extras(self.clocks.extras.setdefault(row, {}), self.clocks.extras.get(old))
                for lane in some.tolist():
                    self.clocks.add_extra(row, part, int(run.actors[lane]), int(fenced[lane]))
                self.clocks.seal(np.array([row]))
                run.rows[some[0]] = row

    def meet(self, run: Running, lanes: Numbers, stamp: int, more: list[int] | None = None) -> None:
        """A barrier of lanes of one block: each knows what all of them knew and did, and what further rows know."""
        self.merge(run, lanes, [self.gather(run, lanes, stamp), *(more or [])])
        if len(lanes) == run.launched.block:
            run.own[GENERIC][run.blocks_of(lanes[:1])] = stamp

    def meet_warps(self, run: Running, lanes: Numbers, stamp: int) -> None:
        """Barriers of lanes of warps."""
        warps = run.warps_of(lanes)
        numbers, first, counts = np.unique(warps, return_index=True, return_counts=True)
        threads = lanes[first] % run.launched.block
        size = np.minimum(WARP, run.launched.block - threads // WARP * WARP)
        full = counts == size
        run.own_warps()[numbers[full]] = stamp
        same = np.minimum.reduceat(run.rows[lanes], first) == np.maximum.reduceat(run.rows[lanes], first)
        fenced = np.zeros(len(numbers), np.bool_)
        for part, stamps in run.fenced.items():
            fenced |= np.maximum.reduceat(stamps[lanes], first) > run.own[part][run.blocks_of(lanes[first])]
        for at in np.flatnonzero(~(full & same & ~fenced)).tolist():
            some = lanes[first[at] : first[at] + counts[at]]
            self.merge(run, some, [self.gather(run, some, stamp)])

    # Proxy fences

    def fence_proxy(self, run: Running, lanes: Numbers, part: int, stamp: int) -> None:
        """What lanes know of generic accesses, and did, they know in another part, too."""
        clocks = self.clocks
        if clocks.parts == 1:
            return
        blocks = run.blocks_of(lanes)
        groups = blocks if run.warps is None else run.warps_of(lanes)
        first, back = pairs_of(run.rows[lanes], groups)
        old = run.rows[lanes[first]]
        made = clocks.new(len(first))
        clocks.rows[made] = clocks.rows[old]
        clocks.rows[made, part] = np.maximum(clocks.rows[old, part], clocks.rows[old, GENERIC])
        slots = clocks.slots_of(run.actors[lanes[first]])
        own = run.own[GENERIC][blocks[first]]
        clocks.rows[made, part, slots] = np.maximum(clocks.rows[made, part, slots], own)
        for row, before in zip(made.tolist(), old.tolist(), strict=True):
            extras = clocks.extras.get(before)
            if extras:
                mine = clocks.extras.setdefault(row, dict(extras))
                merge_extras(mine, {(part, key[1]): known for key, known in extras.items() if key[0] == GENERIC})
        if run.warps is not None:
            for row, lane in zip(made.tolist(), lanes[first].tolist(), strict=True):
                self._fence_warp(run, row, lane, part)
        clocks.seal(made)
        run.rows[lanes] = made[back]
        run.fences(part)[lanes] = stamp

    def _fence_warp(self, run: Running, row: int, lane: int, part: int) -> None:
        assert run.warps is not None
        known = int(run.warps[run.warps_of(np.array([lane]))[0]])
        if known > run.own[GENERIC][lane // run.launched.block]:
            threads = lane % run.launched.block % WARP
            self.clocks.add_extra(row, part, WARP_KEY | int(run.actors[lane - threads]), known)

    # Mbarriers

    def mbarrier(self, run: Running, block: int, address: int) -> Mbarrier:
        """Return the mbarrier at an address of a block's shared memory."""
        key = (id(run), block, address)
        if key not in self.mbarriers:
            self.made_mbarriers += 1
            self.mbarriers[key] = Mbarrier(self.made_mbarriers)
        return self.mbarriers[key]

    def pass_wait(self, run: Running, barrier: Mbarrier, lanes: Numbers, phase: int, scope: int, relaxed: bool) -> None:
        """Lanes go on: all phases before `phase` are over. A relaxed wait leaves it to a fence to acquire them."""
        near, far = barrier.near, barrier.far
        rows = near.before(phase)
        if rows or not near.done or near.phase < phase:
            made = self._joined(rows + near.done)
            for part in range(self.clocks.parts):
                if part != ASYNC:
                    self.clocks.add_extra(made, part, MBARRIER_KEY | barrier.number, phase)
            near.end(phase, made)
        rows = far.before(phase)
        if rows:
            far.end(phase, self._joined(rows + far.done))
        of_others = far.done if scope >= CLUSTER else []
        if relaxed:
            run.waited[barrier.number, lanes.tobytes()] = (lanes, near.done, of_others)
        else:
            self.merge(run, lanes, near.done + of_others)

    def _joined(self, rows: list[int]) -> int:
        """A new row that knows what any of these knows; nothing, if there are none."""
        if rows:
            made = self.clocks.joined(rows)
        else:
            made = int(self.clocks.new(1)[0])
            self.clocks.rows[made] = 0
        self.clocks.seal(np.array([made]))
        return made

    def acquire_waited(self, run: Running, mask: Mask, scope: int) -> None:
        """Lanes acquire by a fence what they waited for at mbarriers by relaxed waits."""
        for key, (lanes, near, far) in list(run.waited.items()):
            at = mask[lanes]
            self.merge(run, lanes[at], near + (far if scope >= CLUSTER else []))
            if at.all() and (scope >= CLUSTER or not far):
                del run.waited[key]


def _warp_key(actor: int) -> int:
    """Return the key in extras of an actor's warp."""
    return WARP_KEY | actor - (actor & CODE_MASK) % WARP
