"""Times the contestants of a size such that one that hangs costs only itself: the others are timed again without it.

Where the ranks' errors name the work that did not end, its contestant is out and the rest is timed again together.
Where they don't, our kernels are timed together and each library alone. Either way a world is lost and a deadline has
passed, so the third hang of a size ends it: libraries that have no time by then get none, and so do our kernels if one
of the measurements that hung was of them alone. Else they are timed once more, without any library.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.record.record import TIMED_APART, TIMED_WITHOUT, Status
from memory.fabric import work_of
from reports.table.text import counted
from runner.world.world import WorldFailure

if TYPE_CHECKING:
    from runner.case.contestant import Contestant
    from runner.custom.running import CompiledJob

    Contestants = Sequence[Contestant | CompiledJob]
    from runner.timing.combine import TimedResult

HANGS = (Status.TIMEOUT, Status.DEADLOCK)

MOST_HANGS = 3
"""Number of measurements of one size that may hang: each costs a deadline and a world."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a contestant: what timing found, or the failure that its measurement ended with. note says what
    happened to an earlier measurement that it was in; "" if there was none."""

    found: TimedResult | WorldFailure
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Group:
    """Contestants to be timed together, by their places, and why not with others."""

    places: tuple[int, ...]
    note: str = ""


def timed_without_hanging(contestants: Contestants, time: Callable[[Contestants], list[TimedResult]]) -> list[Ended]:
    """Return what became of each contestant. time times some together, and raises WorldFailure; each time it is called
    it has a healthy world.

    A failure that is no hang ends all that were timed together: what is broken then is unknown.
    """
    ended: dict[int, Ended] = {}
    groups = deque([_Group(tuple(range(len(contestants))))])
    hangs, own_hangs = 0, 0
    while groups:
        group = groups.popleft()
        if hangs >= MOST_HANGS:
            tried = () if own_hangs else _ours(contestants, group.places)
            left = [place for place in group.places if place not in tried]
            text = f"not timed: {counted(hangs, 'measurement')} of this size hung before; {group.note}"
            ended |= {place: Ended(WorldFailure(Status.TIMEOUT, None, text)) for place in left}
            if not tried:
                continue
            group = _Group(tried, group.note)
        try:
            found = time([contestants[place] for place in group.places])
        except WorldFailure as failure:
            hung, rest = _parted(contestants, group, failure)
            hangs += failure.status in HANGS
            own_hangs += failure.status in HANGS and set(group.places) == set(_ours(contestants, group.places))
            ended |= {place: Ended(failure, group.note) for place in hung}
            groups.extendleft(reversed(rest))
        else:
            results = zip(group.places, found, strict=True)
            ended |= {place: Ended(result, group.note) for place, result in results}
    return [ended[place] for place in range(len(contestants))]


def _parted(contestants: Contestants, group: _Group, failure: WorldFailure) -> tuple[tuple[int, ...], list[_Group]]:
    """Which of a group have failed with it, and the groups in which the others are timed again."""
    places = group.places
    if failure.status not in HANGS or len(places) == 1:
        return places, []
    works = {work_of(error) for error in failure.errors.values()} - {""}
    hung = tuple(place for place in places if contestants[place].case.id in works)
    if len(hung) == 1:
        note = TIMED_WITHOUT.format(contestants[hung[0]].case.name)
        return hung, [_Group(tuple(place for place in places if place not in hung), _joined(group.note, note))]
    note = _joined(group.note, TIMED_APART)
    ours = _ours(contestants, places)
    together = [ours] if 0 < len(ours) < len(places) else [(place,) for place in ours]
    alone = [(place,) for place in places if place not in ours]
    return (), [_Group(one, note) for one in [*together, *alone]]


def _ours(contestants: Contestants, places: Sequence[int]) -> tuple[int, ...]:
    """Those of these places that are kernels and no libraries."""
    return tuple(place for place in places if contestants[place].executable is not None)


def _joined(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second
