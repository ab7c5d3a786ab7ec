"""Fewer switches: parts of a failing run's choices that fail in the same way.

Candidates are beginnings of the choices with parts left out, moved together or made larger; the order of replayed.py
lets who runs last run on after them. Of late accesses of weak memory some are left out: they then take the newest
store. What fails in the same way with fewer switches and late accesses is taken, until nothing helps or the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from simulator.memory.chance import Late
from simulator.observe.lanes import ids_of
from simulator.run.choices import Began, Choice, Moved, Turn, Until
from simulator.run.decode import WHOLE
from simulator.run.groups import compact

Choices = tuple[Choice, ...]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a candidate: whether it fails in the same way, the choices of the whole run, its switches, of each
    launch its number and its threads on a rank and in a block, and the number of each turn's launch."""

    fails: bool
    choices: Choices = ()
    switches: int = 0
    shapes: frozenset[tuple[int, int, int]] = frozenset()
    launches: tuple[int, ...] = ()

    @property
    def late(self) -> int:
        """Number of late accesses."""
        return sum(isinstance(one, Late) for one in self.choices)

    def block_of(self, one: Turn) -> int:
        """Return how many threads a block of a turn's launch has; 0 if ranks launch others under its number."""
        blocks = {block for number, threads, block in self.shapes if (number, threads) == (one.launch, one.threads)}
        return blocks.pop() if len(blocks) == 1 else 0


@dataclass(slots=True)
class Shrinker:
    """attempt runs a candidate. ends_s: time (clock) when the search ends with what it has."""

    attempt: Callable[[Choices], Tried]
    ends_s: float
    clock: Callable[[], float] = time.monotonic
    tries: int = 0
    best: Tried = field(default_factory=lambda: Tried(False))
    kept: Choices = ()
    late: tuple[Late, ...] = ()

    def shrink(self, first: Tried) -> Tried:
        """Return the best of all that fails in the same way as the first, which does.

        kept and late are its choices: those of the schedule, and late accesses.
        """
        self.late = tuple(one for one in first.choices if isinstance(one, Late))
        self.kept = tuple(one for one in first.choices if not isinstance(one, Late))
        self.best = first
        if self._takes((), ()):
            return self.best
        if self.late and not self._takes(self.kept, ()):
            self._takes(())
        self._skip_launches(first)
        self._begin_together()
        self._leave_out_late()
        self._shorten()
        self._simplify()
        self._leave_out_units()
        while not self.is_over:
            before = self._measure(self.best, self.kept, self.late)
            self._leave_out_late()
            self._leave_out(parts_of)
            self._widen()
            self._gather()
            self._leave_out(lambda choices: [(one,) for one in choices])
            self._leave_out_units()
            self._shorten()
            if self._measure(self.best, self.kept, self.late) == before:
                break
        return self.best

    @property
    def is_over(self) -> bool:
        return self.clock() >= self.ends_s

    def _measure(self, tried: Tried, kept: Choices, late: Choices) -> tuple[int, int, int, int]:
        torn = sum(isinstance(one, (Turn, Moved)) and one.tear > 0 for one in kept)
        return tried.switches + tried.late, len(parts_of(kept)), len(kept) + len(late), torn

    def _takes(self, candidate: Choices, late: tuple[Late, ...] | None = None) -> bool:
        """Try a candidate; take it if it fails in the same way and is better. late: None for those kept until now."""
        if self.is_over:
            return False
        self.tries += 1
        late = self.late if late is None else late
        tried = self.attempt((*late, *candidate))
        if not tried.fails or self._measure(tried, candidate, late) >= self._measure(self.best, self.kept, self.late):
            return False
        self.best, self.kept, self.late = tried, candidate, late
        return True

    def _skip_launches(self, first: Tried) -> None:
        """Choose nothing before the latest launch that it takes."""
        choices = [one for one in first.choices if not isinstance(one, Late)]
        turns = [number for number, one in enumerate(choices) if isinstance(one, Turn)]
        begins: dict[int, int] = {}
        for number, launch in zip(turns, first.launches, strict=False):
            begins.setdefault(launch, number)
        for launch in sorted(begins, reverse=True):
            if launch and self._takes((Until(launch), *choices[begins[launch] :])):
                return

    def _begin_together(self) -> None:
        """Let all ranks' launches begin together, when nothing else can happen; else those of one number after another.

        Turns name ranks and launches, so that they mean the same in both cases.
        """
        without = tuple(one for one in self.kept if not isinstance(one, Began))
        numbers = {number for one in self.kept if isinstance(one, Began) for _, number in one.launches}
        if not numbers or self._takes(without):
            return
        for number in sorted(numbers):
            self._takes(tuple(one for one in self.kept if not _begins(one, number)))

    def _shorten(self) -> None:
        """Find a beginning that is long enough, by halves."""
        whole, low, high = self.kept, 0, len(self.kept)
        while high - low > 1 and not self.is_over:
            middle = (low + high) // 2
            if self._takes(whole[:middle]):
                high = middle
            else:
                low = middle

    def _simplify(self) -> None:
        """Whole vectors, lanes in their order, longer runs."""
        self._takes(tuple(replace(one, tear=0) if isinstance(one, (Turn, Moved)) else one for one in self.kept))
        self._takes(tuple(replace(one, shuffle=0) if isinstance(one, Turn) else one for one in self.kept))
        self._takes(tuple(replace(one, accesses=WHOLE) if isinstance(one, Turn) else one for one in self.kept))

    def _widen(self) -> None:
        """Let all threads of a rank or a block run where some did: in all turns, in half of them, and so on."""
        for is_block in (False, True):
            span = len(self.kept)
            while span >= 1 and not self.is_over:
                for start in range(0, len(self.kept), span):
                    chosen = self.kept[start : start + span]
                    wide = tuple(self._widened(one, is_block) for one in chosen)
                    if wide != chosen:
                        self._takes((*self.kept[:start], *wide, *self.kept[start + span :]))
                span //= 2

    def _leave_out_units(self) -> None:
        """Leave out all turns of some ranks, blocks or warps, but not of all: they run later."""
        for unit in ("rank", "block", "warp"):
            turns = [one for one in self.kept if isinstance(one, Turn)]
            units = {each for one in turns for each in _unit_of(one, self.best.block_of(one), unit)}
            self._halved(sorted(units), partial(self._takes_units, unit, units))

    def _takes_units(self, unit: str, units: set[Unit], left: list[Unit]) -> bool:
        parts = (self._without(one, unit, units - set(left)) for one in self.kept)
        return bool(left) and self._takes(tuple(one for one in parts if one is not None))

    def _widened(self, one: Choice, is_block: bool) -> Choice:
        """A turn of all threads of the rank or block that its lanes lie in, if it is one."""
        size = 0 if not isinstance(one, Turn) else self.best.block_of(one) if is_block else one.threads
        if not isinstance(one, Turn) or not size:
            return one
        low = int(one.lanes[0]) // size * size
        if int(one.lanes[-1]) >= low + size or len(one.lanes) == size:
            return one
        return replace(one, lanes=range(low, low + size))

    def _without(self, one: Choice, unit: str, out: set[Unit]) -> Choice | None:
        """The choice without the lanes of some units; None if it has no others."""
        if not isinstance(one, Turn):
            return one
        lanes, units = ids_of(one.lanes), _unit_of(one, self.best.block_of(one), unit)
        kept = lanes[[each not in out for each in units]]
        if len(kept) == len(lanes):
            return one
        return replace(one, lanes=compact(kept)) if len(kept) else None

    def _leave_out_late(self) -> None:
        """Let accesses take the newest store."""
        happened = {_access(one) for one in self.best.choices if isinstance(one, Late)}
        self._takes(self.kept, tuple(one for one in self.late if _access(one) in happened))
        self._halved(self.late, lambda left: self._takes(self.kept, tuple(left)))

    def _leave_out(self, cut: Callable[[Choices], list[Choices]]) -> None:
        """Leave parts out."""
        self._halved(cut(self.kept), lambda left: self._takes(_joined(left)))

    def _halved(self, parts: Sequence[T], takes: Callable[[list[T]], bool]) -> None:
        """Leave out halves of parts, then quarters, and so on down to single ones (delta debugging). takes: whether
        what is left is taken."""
        there = list(parts)
        size = max(len(there) // 2, 1)
        while not self.is_over:
            start = 0
            while start < len(there) and not self.is_over:
                left = there[:start] + there[start + size :]
                if takes(left):
                    there = left
                else:
                    start += size
            if size == 1:
                return
            size = max(size // 2, 1)

    def _gather(self) -> None:
        """Move the parts of one actor together."""
        has_moved = True
        while has_moved and not self.is_over:
            has_moved = any(self._takes(candidate) for candidate in _gathered(parts_of(self.kept)))


def parts_of(choices: Choices) -> list[Choices]:
    """The choices, cut where another actor runs."""
    found: list[list[Choice]] = []
    actor: object = None
    for one in choices:
        mine = actor_of(one)
        if mine != actor or not found:
            found.append([])
        found[-1].append(one)
        actor = mine
    return [tuple(part) for part in found]


def actor_of(one: Choice) -> object:
    """Who a choice lets run, in a form that can be compared."""
    if isinstance(one, Turn):
        return one.launch, ids_of(one.lanes).tobytes()
    return (one.launch, one.copies) if isinstance(one, Moved) else one


def _begins(one: Choice, number: int) -> bool:
    """Return whether launches of this number begin by a choice."""
    return isinstance(one, Began) and any(launch == number for _, launch in one.launches)


def _access(one: Late) -> tuple[int, ...]:
    """Which access it is, whatever was drawn for it."""
    return one.launch, one.threads, one.lane, one.line, one.nth


def _gathered(parts: list[Choices]) -> Iterator[Choices]:
    """Each part behind the one before it of the same actor, and that one before it."""
    latest: dict[object, int] = {}
    for number, part in enumerate(parts):
        actor = actor_of(part[0])
        before = latest.get(actor)
        latest[actor] = number
        if before is None:
            continue
        between = parts[before + 1 : number]
        yield _joined([*parts[: before + 1], part, *between, *parts[number + 1 :]])
        yield _joined([*parts[:before], *between, parts[before], part, *parts[number + 1 :]])


def _joined(parts: Sequence[Choices]) -> Choices:
    return tuple(one for part in parts for one in part)


Unit = tuple[int, int, int]
"""Threads of a launch on a rank and in a block, 0 and 0 of ranks, which all launches have; and the unit's number."""


def _unit_of(one: Turn, block: int, unit: str) -> list[Unit]:
    """The unit of each lane: its "rank", "block" or "warp". Nothing is known of blocks of 0 threads."""
    lanes = ids_of(one.lanes)
    if unit == "rank" or not block:
        return [(0, 0, number) for number in (lanes // one.threads).tolist()]
    numbers = lanes // block if unit == "block" else lanes // block * -(-block // 32) + lanes % block // 32
    return [(one.threads, block, number) for number in numbers.tolist()]
