"""The check of each access against the shadow of what it accesses, and its entry there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from simulator.happens_before.clocks import (
    BLOCK_SHIFT,
    CODE_MASK,
    COPY_CODE,
    LOW_MASK,
    RANK_SHIFT,
    STAMP_SHIFT,
    changes_of,
    distinct,
    pairs_of,
    span_code,
    warps_of_codes,
)
from simulator.happens_before.extras import ALIAS, ASYNC, GENERIC, Numbers
from simulator.happens_before.order import CLUSTER, SYS, Order
from simulator.happens_before.running import NEVER, WARP, Actor, Held, Lanes, Many, Mask, Running
from simulator.happens_before.shadow import READ, WRITE, Epochs, Ids, Kept, Shadow, Tiles, put, taken
from symlab.checks.races.kernel_end import KernelEnds
from symlab.checks.races.report import ALIAS_PROXY, ASYNC_PROXY, GENERIC_PROXY, HOST, TENSOR_MAP, Findings, Info, Pair
from symlab.checks.races.tensor_fences import TensorFences

_MOST_OTHERS = 32
"""Lists of further reads are made short when they are longer."""
_MOST_HIDDEN = 8
"""Likewise lists of strong accesses that others took the place of."""
_PARTS = {
    (GENERIC_PROXY, ALIAS_PROXY): ALIAS,
    (ALIAS_PROXY, GENERIC_PROXY): ALIAS,
    (ASYNC_PROXY, ALIAS_PROXY): ALIAS,
    (GENERIC_PROXY, ASYNC_PROXY): ASYNC,
    (ALIAS_PROXY, ASYNC_PROXY): ASYNC,
    (HOST, ASYNC_PROXY): ASYNC,
}
"""What has to know an earlier access of the first proxy before one of the second; otherwise GENERIC."""


@dataclass(frozen=True, slots=True)
class Unordered:
    """Pairs of accesses that nothing orders: old epochs, and by position in who and unit of the shadow what comes to
    them now, which info says. part: of the order that lacks; is_proxy_only: only a proxy fence is missing."""

    shadow: Shadow
    kept: Kept
    old: Epochs
    who: Actor
    positions: Numbers
    units: Numbers
    info: Info
    part: int = GENERIC
    is_proxy_only: bool = False

    @property
    def actors(self) -> Numbers:
        return self.who.actors(self.positions)

    @property
    def pairs(self) -> tuple[Shadow, Kept, Epochs, Actor, Numbers, Numbers, Info]:
        return self.shadow, self.kept, self.old, self.who, self.positions, self.units, self.info

    def where(self, mask: Mask) -> Unordered:
        """Return some of the pairs."""
        return replace(self, old=self.old[mask], positions=self.positions[mask], units=self.units[mask])


class Some(NamedTuple):
    """Some accesses of units: their positions among all of an event, the units, and their epochs."""

    at: Numbers
    places: Any
    mine: Epochs


class Accesses:
    """The accesses of a world: infos by number, and by stamp the number of the info."""

    def __init__(self, order: Order, findings: Findings) -> None:
        self.order, self.findings = order, findings
        order.block_sizes = self._block_sizes
        self.ends = KernelEnds()
        self.infos: list[Info] = []
        self.info_of: Numbers = np.zeros(1024, np.int64)
        self.turn_of: Numbers = np.zeros(1024, np.int64)  # by stamp, see take_turn
        self.proxies: Numbers = np.zeros(64, np.int64)
        self.paired: Numbers = np.zeros(64, np.int64)  # whether a pair of blocks works together
        self.stamp = 0
        self.unsure: list[Unordered] = []  # see settle_alike
        self.fences = TensorFences(order, lambda stamp: self.infos[int(self.info_of[stamp])], findings)
        self.map_fences: dict[tuple[int, int], list[int]] = {}  # by shadow and byte, epochs: see fence_maps
        self._floors: tuple[Actor, int, int, int, int] | None = None  # actors, stamp, info, count and floor: see _floor

    def note(self, info: Info) -> None:
        """Add an info, whose number is the next one."""
        assert info.number == len(self.infos)
        self.infos.append(info)
        if info.number >= len(self.proxies):
            self.proxies = np.concatenate([self.proxies, np.zeros_like(self.proxies)])
            self.paired = np.concatenate([self.paired, np.zeros_like(self.paired)])
        self.proxies[info.number], self.paired[info.number] = info.proxy, info.is_paired

    def _block_sizes(self, stamps: Numbers) -> Numbers:
        runs = [self.infos[number].launched for number in self.info_of[stamps].tolist()]
        return np.array([0 if run is None else run.launched.block for run in runs], np.int64)

    def tick(self, info: Info | None = None) -> int:
        """Begin an event; return its stamp."""
        self.settle_alike()
        self.stamp += 1
        if self.stamp >= len(self.info_of):
            self.info_of = np.concatenate([self.info_of, np.zeros_like(self.info_of)])
            self.turn_of = np.concatenate([self.turn_of, np.zeros_like(self.turn_of)])
        if info is not None:
            self.info_of[self.stamp] = info.number
        return self.stamp

    def take_turn(self, run: Running, lanes: Numbers, info: Info) -> None:
        """Count how often lanes have carried out a weak store; note it of the event, 0 if it is not the same of all."""
        if info.is_strong:
            return
        turns = run.turns.get(info.number)
        if turns is None:
            turns = run.turns[info.number] = np.zeros(len(run.actors), np.int64)
        mine = turns[lanes] + 1
        turns[lanes] = mine
        self.turn_of[self.stamp] = mine[0] if (mine == mine[0]).all() else 0

    def touch(
        self, shadow: Shadow, who: Actor, offsets: Numbers, width: int, is_affine: bool, info: Info, actors: Numbers,
        stamps: Numbers | None = None,
    ) -> tuple[Any, Epochs, int]:  # fmt: skip
        """Check accesses of width bytes at offsets, one an actor, and enter them. stamps: if not of this event.

        Returns their units, their epochs and how many units each access has.
        """
        places, each = shadow.places(offsets, width, is_affine), width // shadow.unit
        mine = (self.stamp if stamps is None else stamps) << STAMP_SHIFT | actors
        return places, self.enter(shadow, who, places, mine, each, info, is_affine), each

    def enter(
        self, shadow: Shadow, who: Actor, places: Any, mine: Epochs, each: int, info: Info, is_affine: bool
    ) -> Epochs:
        """Check accesses of `each` units, at places, and enter them. mine: epochs, one an actor. Returns those of the
        units."""
        count = len(mine)
        if each > 1:
            mine = np.repeat(mine, each)
        shadow.proxies |= 1 << info.proxy
        is_harmless = self._is_harmless(shadow, info)
        for kept, epochs in list(shadow.kept.items()):
            if (kept.kind == READ and not info.is_write) or (is_harmless and kept.is_strong):
                continue
            if not self._is_known(shadow, shadow.latest.get(kept, 0), who, count):
                self._check(shadow, kept, taken(epochs, places), who, each, places, info)
        hidden = [one for one in shadow.hidden if not (is_harmless and one[0].is_strong)]
        if hidden:
            self._check_beside(shadow, hidden, who, count, each, places, info)
        if info.is_write:
            if shadow.others:
                self._check_beside(shadow, shadow.others, who, count, each, places, info)
            self._write(shadow, who, each, places, mine, info, is_affine)
        else:
            self._read(shadow, who, each, places, mine, info, is_affine)
        return mine

    def _is_harmless(self, shadow: Shadow, info: Info) -> bool:
        """Return whether an access, which is noted so, races with no strong one so far."""
        if info.is_strong:
            shadow.narrowest = min(shadow.narrowest, info.scope)
            shadow.widest = max(shadow.widest, info.scope)
            shadow.elements |= info.element
        has_copies = bool(shadow.proxies >> ASYNC_PROXY & 1)
        return info.is_strong and shadow.narrowest == SYS and shadow.is_uniform and not has_copies

    def touch_pieces(
        self, shadow: Shadow, held: Held, starts: Numbers, size_bytes: int, info: Info, actors: Numbers, stamps: Numbers
    ) -> bool:
        """Check weak accesses of copies, each of the same number of bytes, and enter them, a piece as a whole.

        Returns False, with nothing done, if pieces overlap, other than reads of one block, or need a look unit by unit.
        """
        tiles = Tiles.of(starts // shadow.unit, size_bytes // shadow.unit, shadow.units)
        last = _last_of_each(tiles, actors) if tiles is not None and not info.is_write else None
        if tiles is None or info.is_strong or not (tiles.are_apart or last is not None):
            return False
        if size_bytes % shadow.unit or (starts % shadow.unit).any():
            return False
        proxies, shadow.proxies = shadow.proxies, shadow.proxies | 1 << info.proxy
        every, ranks = np.arange(len(starts)), shadow.readers(actors >> RANK_SHIFT, starts // shadow.unit)
        who = Many(held, every)
        mine = stamps << STAMP_SHIFT | actors
        entries = [(Kept(WRITE, False), every)]
        if not info.is_write:
            entries = [(Kept(READ, False, rank), np.flatnonzero(ranks == rank)) for rank in distinct(ranks).tolist()]
        beside = [*shadow.hidden, *(shadow.others if info.is_write else [])]
        is_plain = all(self._is_known(shadow, shadow.latest.get(kept, 0), who, len(every)) for kept, _, _ in beside)
        is_plain = is_plain and (info.is_write or all(self._is_read_over(shadow, who, tiles, *one) for one in entries))
        if not is_plain:
            shadow.proxies = proxies
            return False
        for kept, epochs in list(shadow.kept.items()):
            if kept.kind == READ and not info.is_write:
                continue
            if not self._is_known(shadow, shadow.latest.get(kept, 0), who, len(every)):
                self._check_pieces(shadow, kept, tiles.matrix(epochs)[tiles.numbers], held, tiles, info)
        for kept, some in entries:
            at = some if last is None else some[last[some]]
            tiles.matrix(shadow.epochs(kept))[tiles.numbers[at]] = mine[at][:, None]
            shadow.note(kept, self.stamp)
        return True

    def _is_read_over(self, shadow: Shadow, who: Many, tiles: Tiles, kept: Kept, some: Numbers) -> bool:
        """Return whether reads by one rank take the place of former ones that are known to them."""
        if self._is_known(shadow, shadow.latest.get(kept, 0), who, len(who.index)):
            return True
        old = tiles.matrix(shadow.epochs(kept))[tiles.numbers[some]]
        if (old != old[:, :1]).any():
            return False
        at = np.flatnonzero(old[:, 0])
        bad = self.order.unknown(who, some[at], old[at, 0], GENERIC, is_rough=True)
        return not (bad & (old[at, 0] & LOW_MASK != who.actors(some[at]) & ~CODE_MASK | COPY_CODE)).any()

    def _check_pieces(self, shadow: Shadow, kept: Kept, old: Epochs, held: Held, tiles: Tiles, info: Info) -> None:
        """Check pieces against the former accesses to each, a row of old."""
        first = old[:, 0]
        some = np.flatnonzero(first)
        if (old == first[:, None]).all() and (
            not len(some) or self._are_known(shadow, kept, first[some], Many(held, some), np.arange(len(some)), info)
        ):
            return
        who = Many(held, np.repeat(np.arange(len(old)), tiles.each))
        self._check(shadow, kept, old.ravel(), who, 1, tiles, info)

    # Checks

    def _check(self, shadow: Shadow, kept: Kept, old: Epochs, who: Actor, each: int, places: Any, info: Info) -> None:
        latest = int(old.max())
        if not latest:
            return
        every = self._floor(shadow, who, len(old) // each)
        if latest >> STAMP_SHIFT <= every:
            return
        some = np.flatnonzero(old >> STAMP_SHIFT > every)
        if isinstance(who, Many) and self._are_known(shadow, kept, old[some], who, some // each, info):
            return
        self._compare(shadow, kept, old[some], who, some // each, _units(places, some), info)

    def _is_known(self, shadow: Shadow, stamp: int, who: Actor, count: int) -> bool:
        """Return whether all these actors know everything up to a stamp, in all proxies that came to the shadow."""
        if not stamp:
            return True
        if isinstance(who, Lanes) and stamp <= self.order.floor(who.run, _proxies(shadow)):
            return True
        return stamp <= self._floor(shadow, who, count)

    def _floor(self, shadow: Shadow, who: Actor, count: int) -> int:
        """A stamp up to which all these actors know everything. Kept for the further replicas of an event."""
        known, parts = self._floors, _proxies(shadow)
        if known is not None and known[0] is who and known[1:3] == (self.stamp, parts) and known[3] >= count:
            return known[4]
        if isinstance(who, Lanes):
            found = self.order.floor_of(who, count, parts)
        else:
            found = int(self.order.clocks.floor[changes_of(who.held.row), :parts].min())
        self._floors = (who, self.stamp, parts, count, found)
        return found

    def _are_known(self, shadow: Shadow, kept: Kept, old: Epochs, who: Many, positions: Numbers, info: Info) -> bool:
        """Return whether old epochs are known to copies, or a host. Pieces of a copy are alike: one is looked at."""
        differ, index = np.ones(len(old), np.bool_), who.index[positions]
        differ[1:] = (old[1:] != old[:-1]) | (index[1:] != index[:-1])
        old, positions = old[differ], positions[differ]
        if kept.is_strong and info.is_strong:
            return False
        parts = np.full(len(old), GENERIC)
        if _proxies(shadow) > 1:
            parts = self._parts(old, who, positions, info)
        chosen = [(part, parts == part) for part in (GENERIC, ALIAS, ASYNC)]
        return not any(at.any() and self.order.unknown(who, positions[at], old[at], part).any() for part, at in chosen)

    def _compare(
        self, shadow: Shadow, kept: Kept, old: Epochs, who: Actor, positions: Numbers, units: Numbers, info: Info
    ) -> None:
        """Find which old epochs are not known to who accesses now, each by the actor at its position."""
        if kept.is_strong and info.is_strong:  # strong accesses that see each other's scope do not race
            numbers = self.info_of[old >> STAMP_SHIFT]
            racing = ~self.morally_strong(numbers, old & LOW_MASK, who.actors(positions), info)
            old, positions, units = old[racing], positions[racing], units[racing]
        if not len(old):
            return
        parts = self._parts(old, who, positions, info) if shadow.proxies & ~(1 << GENERIC_PROXY | 1 << HOST) else None
        if parts is None:
            bad = self.order.unknown(who, positions, old, GENERIC)
            self._report(Unordered(shadow, kept, old, who, positions, units, info).where(bad))
            return
        for part in (GENERIC, ALIAS, ASYNC):
            at = np.flatnonzero(parts == part)
            if not len(at):
                continue
            bad = self.order.unknown(who, positions[at], old[at], part)
            some = at[bad]
            if not len(some):
                continue
            is_race = self.order.unknown(who, positions[some], old[some], GENERIC)
            for is_proxy_only in (False, True):
                chosen = some[~is_race] if is_proxy_only else some[is_race]
                what = (old[chosen], who, positions[chosen], units[chosen], info, part, is_proxy_only)
                self._report(Unordered(shadow, kept, *what))

    def _parts(self, old: Epochs, who: Actor, positions: Numbers, info: Info) -> Numbers:
        proxies = self.proxies[self.info_of[old >> STAMP_SHIFT]]
        table = np.array([_PARTS.get((one, info.proxy), GENERIC) for one in range(4)])
        parts: Numbers = table[proxies]
        if info.proxy == ASYNC_PROXY:
            own_block = who.actors(positions) >> BLOCK_SHIFT == (old & LOW_MASK) >> BLOCK_SHIFT
            if info.is_paired:
                own_block |= self.paired[self.info_of[old >> STAMP_SHIFT]] > 0
            parts = np.where((proxies == ASYNC_PROXY) & ~own_block, ASYNC, parts)
        return parts

    def fence_maps(self, shadow: Shadow, run: Running, lanes: Numbers, offsets: Numbers, width: int) -> None:
        """Lanes fence the proxy of tensor maps, of width bytes each: it counts if they know the latest stores there."""
        old = self._map_writes(shadow, offsets, width)[1]
        positions = np.repeat(np.arange(len(lanes)), len(old) // len(lanes))
        known = old == 0
        some = np.flatnonzero(~known)
        known[some] = ~self.order.unknown(Lanes(run, lanes), positions[some], old[some], GENERIC)
        for at, is_known in enumerate(known.reshape(len(lanes), -1).all(axis=1).tolist()):
            if is_known:
                epoch = self.stamp << STAMP_SHIFT | int(run.actors[lanes[at]])
                self.map_fences.setdefault((id(shadow), int(offsets[at])), []).append(epoch)

    def _map_writes(
        self, shadow: Shadow, offsets: Numbers, width: int
    ) -> tuple[list[tuple[Kept, Epochs]], Epochs, Any]:
        """The stores to maps by kind, the latest ones, and the units."""
        places = shadow.places(offsets, width, False)
        writes = [(kept, taken(epochs, places)) for kept, epochs in shadow.kept.items() if kept.kind == WRITE]
        latest = np.max([old for _, old in writes], axis=0, initial=0)
        return writes, np.broadcast_to(latest, len(offsets) * (width // shadow.unit)), places

    def read_maps(self, shadow: Shadow, run: Running, lanes: Numbers, offsets: Numbers, info: Info) -> None:
        """Pass tensor maps that a kernel wrote, and no host since, to the findings: whatever orders the stores, the
        copy reads them by a proxy of its own, which a fence behind them has to join."""
        writes, latest, places = self._map_writes(shadow, offsets, info.width)
        who, each = Lanes(run, lanes), info.width // shadow.unit
        for kept, old in writes:
            some = np.flatnonzero((old > 0) & (old == latest))
            some = some[self.proxies[self.info_of[old[some] >> STAMP_SHIFT]] != HOST]
            some = some[[not self._is_fenced(shadow, who, at // each, offsets[at // each], old[at]) for at in some]]
            self._add(Unordered(shadow, kept, old[some], who, some // each, places[some], info, TENSOR_MAP, True))

    def _is_fenced(self, shadow: Shadow, who: Lanes, position: int, offset: int, old: int) -> bool:
        found = np.array(self.map_fences.get((id(shadow), int(offset)), []), np.int64)
        found = found[found >> STAMP_SHIFT > old >> STAMP_SHIFT]
        return bool(len(found)) and not self.order.unknown(who, np.full(len(found), position), found, GENERIC).all()

    def _report(self, what: Unordered) -> None:
        """Pass what is not ordered to the findings; stores that may be alike wait for their values."""
        if not len(what.old):
            return
        alike = self._may_be_alike(what)
        if alike.any():
            self.unsure.append(what.where(alike))
            what = what.where(~alike)
        self._add(what)

    def _may_be_alike(self, what: Unordered) -> Mask:
        """Return which stores are by one instruction of lanes of one warp, of a loop in the same round: of one value
        they are one write. In random orders the lanes of a warp run one by one."""
        turn, kept, info = int(self.turn_of[self.stamp]), what.kept, what.info
        is_weak = kept.kind == WRITE and not kept.is_strong and info.is_write and not info.is_strong
        if not (turn and is_weak and info.proxy == GENERIC_PROXY):
            return np.zeros(len(what.old), np.bool_)
        stamps = what.old >> STAMP_SHIFT
        is_same = (self.info_of[stamps] == info.number) & (self.turn_of[stamps] == turn)
        found: Mask = is_same & ~_are_apart(what.old & LOW_MASK, what.actors)
        return found

    def settle_alike(self, actors: Numbers | None = None, same: Mask | None = None) -> None:
        """Pass to the findings what waits for its values. actors, same: whose value is the one that was there, which
        makes it no race; None: unknown."""
        unsure, self.unsure = self.unsure, []
        for what in unsure:
            is_one = np.isin(what.actors, [] if actors is None else actors[same])
            self._add(what.where(~is_one))
            one = what.where(is_one)
            self._hide(one.shadow, one.kept, one.units, one.old)

    def _add(self, what: Unordered) -> None:
        """Add what is not ordered to the findings."""
        if not len(what.old):
            return
        shadow, kept, old, who, positions, units, info = what.pairs
        numbers = self.info_of[old >> STAMP_SHIFT]
        actors = what.actors
        before, after = (old & LOW_MASK) >> RANK_SHIFT, actors >> RANK_SHIFT
        alike = (before, after) if info.assumptions else (before == after,)
        coherent = self._are_read(shadow, kept, old, actors, units, info)
        behind, is_asked = np.zeros(len(old), np.bool_), "kernel_end" not in info.assumptions
        if not is_asked:
            for columns in ((after,), (actors,)):  # launches alone; then reads by the later one's block, too
                left = np.flatnonzero(~behind & ~coherent)
                if not len(left):
                    break
                first, back = pairs_of(numbers[left], before[left], *(one[left] for one in columns))
                looks = columns[0] is actors
                some = [self._is_behind(old, who, positions, one, info, looks) for one in left[first].tolist()]
                behind[left] = np.array(some, np.bool_)[back]
        first, back = pairs_of(numbers, coherent, behind, *alike)
        counts = np.bincount(back)
        for at, count in zip(first.tolist(), counts.tolist(), strict=True):
            earlier = self.infos[int(numbers[at])]
            byte = shadow.byte_of(int(units[at]))
            is_size_only = False
            if earlier.is_strong and info.is_strong:
                where = (numbers[at : at + 1], old[at : at + 1] & LOW_MASK, actors[at : at + 1])
                is_size_only = bool(self.morally_strong(*where, info, is_of_one_size=True)[0])
            issued = int(who.itself(GENERIC, positions[at : at + 1])[0]) if isinstance(who, Many) else NEVER
            is_fenced_here = info.is_by_wgmma and self._is_fenced_here(who, positions[at : at + 1], int(old[at]))
            pair = Pair(
                int(old[at]), earlier, int(actors[at]), info, shadow.name, byte, what.part, what.is_proxy_only,
                kept.kind == READ, is_size_only, kept.takes, issued < int(old[at]) >> STAMP_SHIFT, bool(coherent[at]),
                is_fenced_here,
                bool(behind[at]) or (is_asked and not coherent[at] and self._is_behind(old, who, positions, at, info)),
            )  # fmt: skip
            self.findings.add(pair, count)

    def _is_fenced_here(self, who: Actor, position: Numbers, epoch: int) -> bool:
        """Return whether an actor fenced the async proxy behind a barrier of its block that came after an access."""
        met, fenced = int(who.own(GENERIC, position)[0]), int(who.itself(ASYNC, position)[0])
        return epoch >> STAMP_SHIFT <= met < fenced

    def _is_behind(self, old: Epochs, who: Actor, positions: Numbers, at: int, info: Info, looks: bool = True) -> bool:
        """Return whether the launch of an earlier access was over, as kernel_end has it, before the later one. looks:
        at what the later one's block has read."""
        earlier, seen = self.info(int(old[at]) >> STAMP_SHIFT), self.findings.watched.values() if looks else ()
        return self.ends.are_before(earlier, int(old[at]), info, who, int(positions[at]), seen, self.order, self.info)

    def info(self, stamp: int) -> Info:
        """Return the facts about an access by its stamp."""
        return self.infos[int(self.info_of[stamp])]

    def _are_read(self, shadow: Shadow, kept: Kept, old: Epochs, actors: Numbers, units: Numbers, info: Info) -> Mask:
        """Return which strong writes the very threads have read by strong loads that now store there: coherence of one
        location orders these stores after what was read."""
        found = np.zeros(len(old), np.bool_)
        if kept.kind == READ or not kept.is_strong or not info.is_write or info.proxy != GENERIC_PROXY:
            return found
        strong = [(kept, None, epochs) for kept, epochs in shadow.kept.items()] + list(shadow.others)
        for one, places, epochs in strong:
            if one.kind != READ or not one.is_strong:
                continue
            read = epochs[units] if places is None else _epochs_at(places, epochs, units)
            is_own = (read & LOW_MASK == actors) & (read >> STAMP_SHIFT > old >> STAMP_SHIFT)
            for number in distinct(self.info_of[read[is_own] >> STAMP_SHIFT]).tolist():
                at = np.flatnonzero(is_own & (self.info_of[read >> STAMP_SHIFT] == number))
                written = self.info_of[old[at] >> STAMP_SHIFT]
                found[at] |= self.morally_strong(written, old[at] & LOW_MASK, actors[at], self.infos[number])
        return found

    def morally_strong(
        self, numbers: Numbers, old: Numbers, actors: Numbers, info: Info, is_of_one_size: bool = False
    ) -> Mask:
        """Return for each pair of strong accesses whether each one's scope includes the other's thread, and both are
        the same bytes. is_of_one_size: take for granted that they are."""
        found = np.zeros(len(numbers), np.bool_)
        for number in distinct(numbers).tolist():
            at = numbers == number
            other = self.infos[number]
            scope = min(other.scope, info.scope)
            if other.element != info.element and other.element and info.element and not is_of_one_size:
                continue
            if (other.is_atomic and info.is_atomic and ASYNC_PROXY in (other.proxy, info.proxy)) or scope == SYS:
                found[at] = True
            elif scope > CLUSTER:
                found[at] = old[at] >> RANK_SHIFT == actors[at] >> RANK_SHIFT
            elif scope == CLUSTER and info.launched is not None:
                clusters = info.launched.launched.clusters
                blocks = [info.launched.grid_blocks(one[at]) for one in (old, actors)]
                same = (clusters.numbers_of(blocks[0]) == clusters.numbers_of(blocks[1])) & (blocks[0] >= 0)
                found[at] = same & (old[at] >> RANK_SHIFT == actors[at] >> RANK_SHIFT)
            else:
                found[at] = old[at] >> BLOCK_SHIFT == actors[at] >> BLOCK_SHIFT
        return found

    def _check_beside(
        self, shadow: Shadow, beside: list[tuple[Kept, Ids, Epochs]], who: Actor, count: int, each: int, places: Any,
        info: Info,
    ) -> None:  # fmt: skip
        """The accesses beside: those that touch these units."""
        low = -1
        for kept, units, epochs in beside:
            if kept.kind == READ and not info.is_write:
                continue
            if self._is_known(shadow, shadow.latest.get(kept, 0), who, count):
                continue
            if low < 0:
                places = _listed(places)
                is_slice = isinstance(places, slice)
                low, high = (places.start, places.stop) if is_slice else (int(places.min()), int(places.max()) + 1)
            near = np.flatnonzero((units >= low) & (units < high))
            if not len(near):
                continue
            if isinstance(places, slice):
                positions, hit = (units[near] - low) // each, near
            else:
                order = np.argsort(places, kind="stable")
                found = np.searchsorted(places[order], units[near])
                same = places[order][np.minimum(found, len(places) - 1)] == units[near]
                positions, hit = order[found[same]] // each, near[same]
            if len(hit):
                self._compare(shadow, kept, epochs[hit], who, positions, units[hit], info)

    # Entries

    def _write(
        self, shadow: Shadow, who: Actor, each: int, places: Any, mine: Epochs, info: Info, is_affine: bool
    ) -> None:
        kept = Kept(WRITE, info.is_strong)
        epochs = shadow.epochs(kept)
        if info.is_strong and not self.order.is_settled(shadow.latest.get(kept, 0)):
            self._keep_hidden(shadow, kept, taken(epochs, places), places, mine, info)
        put(epochs, places, mine)
        shadow.note(kept, self.stamp)
        is_harmless = info.is_strong and info.scope == SYS
        if is_affine or is_harmless or (isinstance(places, Tiles) and places.are_apart):
            return
        last = taken(epochs, places)
        lost = np.flatnonzero(last != mine)
        if not len(lost):
            return
        # lanes of one warp are compared by value, see Races.stored
        old, new = last[lost] & LOW_MASK, mine[lost] & LOW_MASK
        are_apart = _are_apart(old, new)
        if not info.is_strong:
            self._hide(shadow, kept, _units(places, lost[~are_apart]), mine[lost[~are_apart]])
        lost = lost[are_apart]
        if len(lost):
            self._compare(shadow, kept, last[lost], who, lost // each, _units(places, lost), info)

    def _read(
        self, shadow: Shadow, who: Actor, each: int, places: Any, mine: Epochs, info: Info, is_affine: bool
    ) -> None:
        if isinstance(places, Tiles):
            if isinstance(who, Lanes) and not info.may_take and self._read_tiles(shadow, who, each, places, mine, info):
                return
            places = _listed(places)
        ranks = (mine & LOW_MASK) >> RANK_SHIFT
        if shadow.ranks > 1:
            ranks = self._readers(shadow, who, places, ranks)
        first = int(ranks[0])
        is_sorted = _is_sorted(who) and shadow.ranks == 1  # lanes are in the order of their ranks
        if first == int(ranks[-1]) and (is_sorted or bool((ranks == first).all())):
            self._read_of(shadow, who, Some(np.arange(len(mine)), places, mine), each, info, first, is_affine)
            return
        places = _units(places, np.arange(len(mine)))
        for rank in distinct(ranks).tolist():
            at = np.flatnonzero(ranks == rank)
            self._read_of(shadow, who, Some(at, places[at], mine[at]), each, info, rank, False)

    def _read_tiles(self, shadow: Shadow, who: Lanes, each: int, tiles: Tiles, mine: Epochs, info: Info) -> bool:
        """Enter reads of pieces, each by one block's lanes. Returns False, with nothing entered, if some need a look
        unit by unit."""
        matrix = mine.reshape(-1, tiles.each)
        blocks = matrix[:, 0] >> BLOCK_SHIFT
        if (blocks != matrix[:, -1] >> BLOCK_SHIFT).any():
            return False
        ranks = shadow.readers((matrix[:, 0] & LOW_MASK) >> RANK_SHIFT, tiles.firsts)
        todo = []
        for rank in distinct(ranks).tolist():
            at = np.flatnonzero(ranks == rank)
            kept, rest = Kept(READ, info.is_strong, rank), at[:0]
            if not tiles.are_apart:
                _, first, back = np.unique(tiles.numbers[at], return_index=True, return_inverse=True)
                if len(first) < len(at):
                    same = at[first[back.reshape(-1)]]
                    rest = at[same != at]
                    if (blocks[rest] == blocks[same[same != at]]).any():
                        return False
                    at = at[first]
            old = self._old_readers(shadow, who, each, kept, tiles, at, matrix, info)
            if old is None:
                return False
            todo.append((kept, at, rest, old))
        for kept, at, rest, old in todo:
            tiles.matrix(shadow.epochs(kept))[tiles.numbers[at]] = matrix if len(at) == len(matrix) else matrix[at]
            shadow.note(kept, self.stamp)
            beside = [(at[old[0]], old[1]), (rest, matrix[rest])]
            for some, epochs in beside:
                if len(some):
                    units, epochs = (tiles.firsts[some][:, None] + np.arange(tiles.each)).ravel(), epochs.ravel()
                    shadow.others.append((kept, units[epochs > 0], epochs[epochs > 0]))
        if len(shadow.others) > _MOST_OTHERS:
            self._shorten(shadow.others)
        return True

    def _old_readers(
        self, shadow: Shadow, who: Lanes, each: int, kept: Kept, tiles: Tiles, at: Numbers, matrix: Epochs, info: Info
    ) -> tuple[Numbers, Epochs] | None:
        """Return which of the pieces `at` were read before by another block of the rank, and those epochs; None if some
        need a look unit by unit."""
        none = (at[:0], matrix[:0])
        latest, count = shadow.latest.get(kept, 0), matrix.size // each
        is_known = self._is_known(shadow, latest, who, count)
        if info.is_strong and not shadow.is_uniform and not self.order.is_settled(latest):
            return None
        if is_known:
            return none
        old = tiles.matrix(shadow.epochs(kept))[tiles.numbers[at]]
        if self._is_known(shadow, int(old.max()) >> STAMP_SHIFT, who, count):
            return none
        some = np.flatnonzero(old.max(axis=1) >> STAMP_SHIFT > self._floor(shadow, who, count))
        old, new = old[some], matrix[at[some]]
        differ = ((old & LOW_MASK != new & LOW_MASK) & (old > 0)).any(axis=1)
        if not differ.any():  # each lane's own former reads
            return none
        old, new = old[differ], new[differ]
        is_other = (old ^ new) & LOW_MASK >> BLOCK_SHIFT << BLOCK_SHIFT != 0
        return (some[differ], old) if (is_other | (old == 0)).all() else None

    def _readers(self, shadow: Shadow, who: Actor, places: Any, ranks: Numbers) -> Numbers:
        """Shadow.readers of each unit, or one for all."""
        if isinstance(places, slice) and _is_sorted(who) and int(ranks[0]) == int(ranks[-1]):
            each = shadow.row_bytes // shadow.unit
            if places.start // each == (places.stop - 1) // each:
                return np.array([shadow.readers(int(ranks[0]), places.start)])
        found: Numbers = shadow.readers(ranks, _units(places, np.arange(len(ranks))))
        return found

    def _read_of(
        self, shadow: Shadow, who: Actor, some: Some, each: int, info: Info, rank: int, is_affine: bool
    ) -> None:
        """Enter the reads of one rank."""
        at, places, mine = some
        if not is_affine and len(mine) > 1:
            at, places, mine = some = _grouped(at, _units(places, np.arange(len(mine))), mine)
        kept = Kept(READ, info.is_strong, rank)
        if not info.may_take:
            self._enter(shadow, who, some, each, kept, info, is_affine)
            return
        places = _units(places, np.arange(len(mine)))
        takes = self._takes(shadow, who, at // each, places, rank)
        for is_taken in (False, True):
            these = np.flatnonzero(takes == is_taken)
            if len(these):
                kept = Kept(READ, info.is_strong, rank, is_taken)
                self._enter(shadow, who, Some(at[these], places[these], mine[these]), each, kept, info, False)

    def _takes(self, shadow: Shadow, who: Actor, positions: Numbers, units: Numbers, rank: int) -> Mask:
        """Return which strong reads of units by a rank take data that only an assumption brings them: the last write is
        one that nothing orders before them, and no read of the rank has seen it. All others are polls: they see
        nothing, or what was taken there before."""

        def latest(some: Iterable[Kept]) -> Epochs:
            found = np.zeros(len(units), np.int64)
            for kept in some:
                if kept in shadow.kept:
                    np.maximum(found, shadow.kept[kept][units], out=found)
            return found

        written = latest(Kept(WRITE, is_strong) for is_strong in (False, True))
        read = latest(Kept(READ, True, rank, takes) for takes in (False, True))
        found = written >> STAMP_SHIFT > read >> STAMP_SHIFT
        at = np.flatnonzero(found)
        if len(at):
            found[at] = self.order.unknown(who, positions[at], written[at], GENERIC)
        return found

    def _enter(
        self, shadow: Shadow, who: Actor, some: Some, each: int, kept: Kept, info: Info, is_affine: bool
    ) -> None:
        at, places, mine = some
        epochs = shadow.epochs(kept)
        latest = shadow.latest.get(kept, 0)
        if not is_affine and (places[1:] <= places[:-1]).any():
            order = np.argsort(places, kind="stable")
            if (places[order[1:]] == places[order[:-1]]).any():  # lanes that are no neighbours read one unit
                at, places, mine = _grouped(at[order], places[order], mine[order])
        count = int(at.max()) // each + 1
        is_known = self._is_known(shadow, latest, who, count)
        is_hidden = info.is_strong and not shadow.is_uniform and not self.order.is_settled(latest)
        if not is_known or is_hidden:
            old = epochs[places]
            if is_hidden:
                self._keep_hidden(shadow, kept, old, places, mine, info)
            latest = 0 if is_known else int(old.max())
            if latest and not self._is_known(shadow, latest >> STAMP_SHIFT, who, count):
                there = np.flatnonzero(old)
                bad = self.order.unknown(who, at[there] // each, old[there], GENERIC, is_rough=True)
                if bad.any():
                    mine = mine.copy()
                    self._keep_both(shadow, kept, there[bad], old, places, mine, info)
        epochs[places] = mine
        shadow.note(kept, self.stamp)
        if is_affine:
            return
        last = epochs[places]
        lost = np.flatnonzero(last != mine)
        if len(lost):
            both = last.copy()
            self._keep_both(shadow, kept, lost, mine, places, both, info)
            epochs[_units(places, lost)] = both[lost]

    def _keep_both(
        self, shadow: Shadow, kept: Kept, some: Numbers, old: Epochs, places: Any, mine: Epochs, info: Info
    ) -> None:
        """Make entries of `mine` stand for both readers where they can; else keep the old ones beside.

        They can't where threads have released on their own since the old one: of it, they would seem not to know."""
        before, now = old[some] & LOW_MASK, mine[some] & LOW_MASK
        firsts, lasts = zip(*(warps_of_codes(one & CODE_MASK) for one in (before, now)), strict=True)
        can_join = (before >> BLOCK_SHIFT == now >> BLOCK_SHIFT) & (firsts[0] >= 0) & (firsts[1] >= 0)
        if info.launched is not None:
            can_join &= old[some] >> STAMP_SHIFT >= info.launched.parted
        same = before == now
        block = now & ~CODE_MASK
        joined = block | span_code(np.minimum(firsts[0], firsts[1]), np.maximum(lasts[0], lasts[1]))
        mine[some] = mine[some] & ~LOW_MASK | np.where(same | ~can_join, now, joined)
        apart = some[~same & ~can_join]
        if len(apart):
            shadow.others.append((kept, _units(places, apart), old[apart]))
            if len(shadow.others) > _MOST_OTHERS:
                self._shorten(shadow.others)

    def _keep_hidden(self, shadow: Shadow, kept: Kept, old: Epochs, places: Any, mine: Epochs, info: Info) -> None:
        """Keep the strong accesses that others take the place of, where a third may race with the former alone: by
        another block, of another scope or size."""
        if not int(old.max()):
            return
        differ = (old ^ mine) & LOW_MASK >> BLOCK_SHIFT << BLOCK_SHIFT != 0
        if not shadow.is_uniform:
            differ |= self.info_of[old >> STAMP_SHIFT] != info.number
        some = np.flatnonzero(differ & (old > 0))
        self._hide(shadow, kept, _units(places, some), old[some])

    def _hide(self, shadow: Shadow, kept: Kept, units: Numbers, epochs: Epochs) -> None:
        """Keep accesses beside the later ones that took their place."""
        if len(units):
            shadow.hidden.append((kept, units, epochs))
            if len(shadow.hidden) > _MOST_HIDDEN:
                self._shorten(shadow.hidden)

    def _shorten(self, beside: list[tuple[Kept, Ids, Epochs]]) -> None:
        """Of the accesses to one unit by one instruction of one actor keep the last, unless all know it."""
        settled = self.order.settled()
        lists: dict[Kept, list[tuple[Numbers, Epochs]]] = {}
        for kept, units, epochs in beside:
            late = epochs >> STAMP_SHIFT > settled
            if late.any():
                lists.setdefault(kept, []).append((units[late], epochs[late]))
        beside.clear()
        for kept, parts in lists.items():
            units, epochs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            order = np.argsort(-epochs, kind="stable")
            units, epochs = units[order], epochs[order]
            first, _ = pairs_of(units, epochs & LOW_MASK, self.info_of[epochs >> STAMP_SHIFT])
            beside.append((kept, units[first], epochs[first]))


def _is_sorted(who: Actor) -> bool:
    """Return whether actors come in the order of their ranks: lanes, or one for all accesses."""
    return isinstance(who, Lanes) or len(who.held.row) == 1


def _are_apart(old: Numbers, new: Numbers) -> Mask:
    """Return of which pairs of actors not both are lanes of one warp."""
    apart: Mask = (old >> BLOCK_SHIFT != new >> BLOCK_SHIFT) | ((old & CODE_MASK) // WARP != (new & CODE_MASK) // WARP)
    apart |= old & CODE_MASK == COPY_CODE
    return apart


def _last_of_each(tiles: Tiles, actors: Numbers) -> Mask | None:
    """Return which pieces are the last of those at one place; None if all are apart, or if several actors are there."""
    if tiles.are_apart:
        return None
    order = np.argsort(tiles.numbers, kind="stable")
    same = tiles.numbers[order[1:]] == tiles.numbers[order[:-1]]
    if (same & (actors[order[1:]] != actors[order[:-1]])).any():
        return None
    found = np.ones(len(order), np.bool_)
    found[order[:-1][same]] = False
    return found


def _grouped(at: Numbers, units: Numbers, mine: Epochs) -> Some:
    """Make neighbours of one block that read the same unit one reader: a warp's or several warps'."""
    blocks = mine >> BLOCK_SHIFT
    differ = (units[1:] != units[:-1]) | (blocks[1:] != blocks[:-1]) | (mine[1:] & CODE_MASK == COPY_CODE)
    starts = np.flatnonzero(np.concatenate([[True], differ]))
    if len(starts) == len(units):
        return Some(at, units, mine)
    ends = np.concatenate([starts[1:], [len(units)]]) - 1
    return Some(at[starts], units[starts], _joined(mine[starts], mine[ends], starts == ends))


def _epochs_at(units: Numbers, epochs: Epochs, wanted: Numbers) -> Epochs:
    """Return the latest of the epochs kept of some units for each wanted one; 0 if there is none."""
    found = np.zeros(len(wanted), np.int64)
    order = np.argsort(wanted, kind="stable")
    low, high = (np.searchsorted(wanted[order], units, side=side) for side in ("left", "right"))
    for at in np.flatnonzero(low < high).tolist():
        some = order[low[at] : high[at]]
        found[some] = np.maximum(found[some], epochs[at])
    return found


def _joined(first: Epochs, last: Epochs, is_one: Mask) -> Epochs:
    """Return the epochs of neighbours from the first to the last: a thread's, a warp's or several warps'."""
    joined = span_code(warps_of_codes(first & CODE_MASK)[0], warps_of_codes(last & CODE_MASK)[1])
    found: Epochs = np.where(is_one, first, first & ~CODE_MASK | joined)
    return found


def _listed(places: Any) -> Any:
    """Return a slice as it is, and other places as the numbers of units."""
    return places.units(np.arange(len(places.firsts) * places.each)) if isinstance(places, Tiles) else places


def _proxies(shadow: Shadow) -> int:
    """Return how many parts of clocks, from GENERIC on, matter for what accessed a shadow so far."""
    if shadow.proxies >> ASYNC_PROXY & 1:
        return ASYNC + 1
    return ALIAS + 1 if shadow.proxies >> ALIAS_PROXY & 1 else GENERIC + 1


def _units(places: Any, positions: Numbers) -> Numbers:
    """The numbers of units at positions of places."""
    if isinstance(places, slice):
        first: int = places.start
        return first + positions
    if isinstance(places, Tiles):
        return places.units(positions)
    found: Numbers = places[positions]
    return found
