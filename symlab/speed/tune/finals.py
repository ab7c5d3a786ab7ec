"""What is searched, and what is then run side by side for the table: points, and the finals at them and between them.

At each searched size its best run beside those of the sizes next to it, the catalogue's own tunings and the libraries,
and between two sizes both sizes' best beside the catalogue's own: a table knows what is best between two sizes that are
a factor of four apart, too. Where two neighbours' choices differ, they and the catalogue's own run between them, three
times at most, so that it knows where one takes over from the other; so they do where neighbours agree on another tuning
than the catalogue's own and are far apart.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cases.case import Case
from kernels.catalogue import find
from runner.command.plan import PreparedJob
from runner.request.chooser import BEST
from symlab.speed.predict.evidence import grouped
from symlab.speed.tune.entries import Kept, best_own, is_own, series_of
from symlab.speed.tune.state import PointFound
from symlab.speed.tuned.table import Entry, size_text

OWN_FINALISTS = 2
"""How many of a size's best are run again for the table, at this size and at those next to it."""

APART = 3
"""Sizes that are further apart than by this factor have a final between them."""

AGREED = 2
"""So have those that are further apart than by this factor, and agree on another tuning than the catalogue's own: it
was 5.6 % slower than another one between 1 and 2.6 MiB (broadcast/ll128 on 2 H200, 27 November 2026)."""

STEP_BYTES = 64
"""Sizes between two others are odd multiples of it for each rank: a share then begins off a cache line of 128 bytes,
which costs some tunings 5 % (reduce_scatter's pull on 2 H200, 27 November 2026)."""

BEYOND = 1.3
"""A size between two is this many times their geometric mean: no power of two, which divides into blocks best."""

ROUNDS = 3
"""How many times sizes between two choices are added: each command of finals takes 17 s beside its cases (2 H200)."""

FAR = 1.5
"""Of the catalogue's own, what takes longer than the quickest of them by this factor at two sizes is not tried between
them: a third of what ran there before (2 H200, 2 and 4 H100, 27 November 2026)."""

CROSSING = 1.12
"""Where one choice takes over from another is close enough if the sizes about it are no further apart than by this
factor: between two that were 1.25 apart the wrong one of the catalogue's own took 1.9 % longer."""

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
        return f"{case.op} {case.dtype} {size_text(case)} n{case.world_size}{placement}"

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
    found: PointFound
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


def finals_of(points: Sequence[Point], found: Sequence[PointFound]) -> list[Final]:
    """Return the finals of searched points and of those between them and the next, in the order of the points."""
    finals = []
    for number, point in enumerate(points):
        near = [at for at in (number - 1, number + 1) if 0 <= at < len(points) and points[at].series == point.series]
        finals.append(Final(point, _names(point, [found[at] for at in (number, *near)]), found[number], True))
        if number + 1 in near:
            following = points[number + 1].case
            far = following.size_bytes >= APART * point.case.size_bytes
            for size in _between(point.case, following, int(far), BEYOND):
                between = Point(point.job, dataclasses.replace(point.case, size_bytes=size))
                names = _names(between, [found[number], found[number + 1]])
                finals.append(Final(between, names, found[number], False))
    return finals


def crossings(
    finals: Sequence[Final], entries: Sequence[Entry | None], kept: Mapping[int, Sequence[Kept]]
) -> list[Final]:
    """Return the finals between neighbours whose choices differ, one or two, and one between neighbours that are far
    apart and agree on another tuning than the catalogue's own.

    finals: those that ran; entries: theirs, in the same order, None for one without a choice; kept: their records, by
    their place. Of the catalogue's own those run that were not FAR behind at both sizes."""
    by_series: dict[tuple[object, ...], list[tuple[Final, str, set[str]]]] = {}
    for place in sorted(range(len(finals)), key=lambda place: finals[place].point.case.size_bytes):
        entry = entries[place]
        if entry is not None:
            point = finals[place].point
            near = best_own(point.case, kept.get(place, ()), FAR)
            by_series.setdefault(point.series, []).append((finals[place], entry.choice.name, near))
    found, ran = [], {final.point.case for final in finals}
    for (one, name, near), (other, following, beside) in itertools.chain(*map(itertools.pairwise, by_series.values())):
        low, high = one.point.case, other.point.case
        factor = high.size_bytes / low.size_bytes
        if name != following:
            number = (factor > CROSSING) + (factor > CROSSING**2)
        else:
            number = int(factor > AGREED and not is_own(name))
        own = [its for its in one.found.own if its in near | beside]
        names = dict.fromkeys([name, following, *own])
        for size in _between(low, high, number):
            case = dataclasses.replace(low, size_bytes=size)
            if case not in ran:  # nothing passed there
                point = Point(one.point.job, case)
                found.append(Final(point, _taking(point, names), one.found, False))
    return found


def parts(begin: int, end: int) -> list[range]:
    """Return the places of the finals that one command runs, for each command."""
    return [range(at, min(at + PART, end)) for at in range(begin, end, PART)]


def _names(point: Point, found: Sequence[PointFound]) -> tuple[str, ...]:
    """The best of each search, and then the catalogue's own tunings, as far as they take the size."""
    best = [name for one in found for name in one.best[:OWN_FINALISTS]]
    return _taking(point, dict.fromkeys([*best, *(name for one in found for name in one.own)]))


def _taking(point: Point, names: Iterable[str]) -> tuple[str, ...]:
    """Those names whose kernels take the size."""
    case, brought = point.case, {one.place: one.spec for one in point.job.brought}
    most = {name: (brought.get(name) or find(f"{case.op}/{name}")).limit_bytes(case.world_size) for name in names}
    return tuple(name for name, limit in most.items() if limit is None or case.size_bytes <= limit)


def _between(one: Case, other: Case, number: int, beyond: float = 1.0) -> list[int]:
    """A number of sizes at equal ratios between two, times beyond; fewer where they are too close."""
    low, high, unit = one.size_bytes, other.size_bytes, STEP_BYTES * one.world_size
    ratios = (beyond * (high / low) ** (part / (number + 1)) for part in range(1, number + 1))
    sizes = ((int(low * ratio) // unit - 1 | 1) * unit for ratio in ratios)
    return [size for size in dict.fromkeys(sizes) if low < size < high]


def entries_of(finals: Sequence[Final], kept: Mapping[int, Sequence[Kept]], seconds: float) -> list[Entry | None]:
    """The entry of each final; None for one of which no finalist passed. seconds: what finding took, of each."""
    entries: list[Entry | None] = [None] * len(finals)
    for places in grouped(range(len(finals)), lambda place: finals[place].point.series):
        cases = [finals[place].point.case for place in places]
        found = [replace(finals[place].found.searched, seconds=seconds) for place in places]
        between = [not finals[place].is_searched for place in places]
        made = series_of(cases, [kept.get(at, ()) for at in places], found, between)
        for place, one in zip(places, made, strict=True):
            entries[place] = one
    return entries
