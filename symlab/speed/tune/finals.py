"""What is searched, and what is then run side by side for the table: points, and the finals at them and between them.

At each searched size its best run beside those of the sizes next to it, the catalogue's own tunings and the libraries,
and between two sizes both sizes' best beside the catalogue's own: a table knows what is best between two sizes that are
a factor of four apart, too. Where two neighbours' choices differ, they and the catalogue's own run between them, three
times at most, so that it knows where one takes over from the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cases.case import Case
from kernels.catalogue import find
from runner.command.plan import PreparedJob
from runner.request.chooser import BEST
from runner.request.sizes import format_bytes
from symlab.speed.predict.evidence import grouped
from symlab.speed.tune.entries import Kept, series_of
from symlab.speed.tune.state import searched_in
from symlab.speed.tuned.table import Entry

OWN_FINALISTS = 2
"""How many of a size's best are run again for the table, at this size and at those next to it."""

APART = 3
"""Sizes that are further apart than by this factor have a final between them."""

STEP_BYTES = 64
"""Sizes between two others are odd multiples of it for each rank: a share then begins off a cache line of 128 bytes,
which costs some tunings 5 % (reduce_scatter's pull on 2 H200, 27 November 2026)."""

BEYOND = 1.3
"""A size between two is this many times their geometric mean: no power of two, which divides into blocks best."""

ROUNDS = 3
"""How many times the sizes between two choices are halved."""

CROSSING = 1.25
"""Where one choice takes over from another is close enough if the sizes about it are no further apart than by this
factor."""

PART = 96
"""Number of finals that one command runs: what was run before an interrupt is not run again."""


@dataclass(frozen=True, slots=True)
class Point:
    """One case to search: the job it is of, and the case with the algorithm "best"."""

    job: PreparedJob
    case: Case

    @property
    def label(self) -> str:
        case = self.case
        placement = " in place" if case.placement == "in_place" else ""
        return f"{case.op} {case.dtype} {format_bytes(case.size_bytes)} n{case.world_size}{placement}"

    @property
    def series(self) -> tuple[object, ...]:
        """Return what cases of one series of sizes have in common."""
        return dataclasses.astuple(dataclasses.replace(self.case, size_bytes=0))


@dataclass(frozen=True, slots=True)
class Final:
    """What runs side by side at a point. found: what the search of the point found, between two sizes what it found at
    the smaller one. is_searched: whether the point was searched; its final has the libraries."""

    point: Point
    names: tuple[str, ...]
    found: Mapping[str, Any]
    is_searched: bool


def points_of(jobs: Sequence[PreparedJob]) -> Iterator[Point]:
    """Yield the cases to search, each once: by job, and by size."""
    seen = set()
    for job in jobs:
        for case in sorted(job.cases, key=lambda one: one.size_bytes):
            wanted = dataclasses.replace(case, algorithm=BEST)
            if wanted not in seen and wanted.size_bytes:
                seen.add(wanted)
                yield Point(job, wanted)


def finals_of(points: Sequence[Point], found: Sequence[Mapping[str, Any]]) -> list[Final]:
    """Return the finals of searched points and of those between them and the next, in the order of the points."""
    finals = []
    for number, point in enumerate(points):
        near = [at for at in (number - 1, number + 1) if 0 <= at < len(points) and points[at].series == point.series]
        finals.append(Final(point, _names(point, [found[at] for at in (number, *near)]), found[number], True))
        if number + 1 in near:
            following = points[number + 1].case
            size = _between(point.case, following, BEYOND)
            if size is not None and following.size_bytes >= APART * point.case.size_bytes:
                between = Point(point.job, dataclasses.replace(point.case, size_bytes=size))
                names = _names(between, [found[number], found[number + 1]])
                finals.append(Final(between, names, found[number], False))
    return finals


def crossings(finals: Sequence[Final], entries: Sequence[Entry | None]) -> list[Final]:
    """Return the finals between neighbours whose choices differ.

    finals: those that ran; entries: theirs, in the same order, None for one without a choice."""
    by_series: dict[tuple[object, ...], list[tuple[Final, str]]] = {}
    for final, entry in sorted(zip(finals, entries, strict=True), key=lambda pair: pair[0].point.case.size_bytes):
        if entry is not None:
            by_series.setdefault(final.point.series, []).append((final, entry.choice.name))
    found, ran = [], {final.point.case for final in finals}
    for (one, name), (other, following) in itertools.chain(*map(itertools.pairwise, by_series.values())):
        low, high = one.point.case, other.point.case
        size = _between(low, high)
        if name == following or size is None or high.size_bytes <= CROSSING * low.size_bytes:
            continue
        case = dataclasses.replace(low, size_bytes=size)
        if case not in ran:  # nothing passed there
            names = dict.fromkeys([name, following, *one.found["own"]])
            point = Point(one.point.job, case)
            found.append(Final(point, _taking(point, names), one.found, False))
    return found


def parts(begin: int, end: int) -> list[range]:
    """Return the places of the finals that one command runs, for each command."""
    return [range(at, min(at + PART, end)) for at in range(begin, end, PART)]


def _names(point: Point, found: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The best of each search, and then the catalogue's own tunings, as far as they take the size."""
    best = [name for one in found for name in one["best"][:OWN_FINALISTS]]
    return _taking(point, dict.fromkeys([*best, *(name for one in found for name in one["own"])]))


def _taking(point: Point, names: Iterable[str]) -> tuple[str, ...]:
    """Those names whose kernels take the size."""
    case, brought = point.case, {one.place: one.spec for one in point.job.brought}
    most = {name: (brought.get(name) or find(f"{case.op}/{name}")).limit_bytes(case.world_size) for name in names}
    return tuple(name for name, limit in most.items() if limit is None or case.size_bytes <= limit)


def _between(one: Case, other: Case, beyond: float = 1.0) -> int | None:
    """The size at beyond times the geometric mean of two; None if there is none between them."""
    unit = STEP_BYTES * one.world_size
    size = (int(beyond * math.isqrt(one.size_bytes * other.size_bytes)) // unit - 1 | 1) * unit
    return size if one.size_bytes < size < other.size_bytes else None


def entries_of(finals: Sequence[Final], kept: Mapping[int, Sequence[Kept]], seconds: float) -> list[Entry | None]:
    """The entry of each final; None for one of which no finalist passed. seconds: what finding took, of each."""
    entries: list[Entry | None] = [None] * len(finals)
    for places in grouped(range(len(finals)), lambda place: finals[place].point.series):
        cases = [finals[place].point.case for place in places]
        found = [searched_in(finals[place].found, seconds) for place in places]
        for place, one in zip(places, series_of(cases, [kept.get(at, ()) for at in places], found), strict=True):
            entries[place] = one
    return entries
