"""What is searched, and what is then run side by side for the table: points, and the finals at them and between them.

At each searched size its best run beside those of the sizes next to it, the catalogue's own tunings and the libraries.
Half way to the next size both sizes' best run once more beside those of the catalogue's own that were close to them, so
that the table knows what is best between two sizes that are a factor of four apart, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cases.case import Case
from kernels.catalogue import find
from runner.command.plan import PreparedJob
from runner.request.chooser import BEST
from runner.request.sizes import format_bytes

OWN_FINALISTS = 2
"""How many of a size's best are run again for the table, at this size and at those next to it."""

APART = 3
"""Sizes that are further apart than by this factor have a final between them."""

STEP_BYTES = 128
"""Sizes between two others are multiples of it for each rank."""

PART = 48
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
    """Return the finals of searched points and of those half way to the next, in the order of the points."""
    finals = []
    for number, point in enumerate(points):
        near = [at for at in (number - 1, number + 1) if 0 <= at < len(points) and points[at].series == point.series]
        finals.append(Final(point, _names(point.case, [found[at] for at in (number, *near)]), found[number], True))
        if number + 1 in near:
            size = _middle(point.case, points[number + 1].case)
            if size is not None:
                case = dataclasses.replace(point.case, size_bytes=size)
                names = _names(case, [found[number], found[number + 1]], "close")
                finals.append(Final(Point(point.job, case), names, found[number], False))
    return finals


def parts(finals: Sequence[Final]) -> list[range]:
    """Return the places of the finals that one command runs, for each command."""
    return [range(at, min(at + PART, len(finals))) for at in range(0, len(finals), PART)]


def _names(case: Case, found: Sequence[Mapping[str, Any]], which: str = "own") -> tuple[str, ...]:
    """The best of each search, and then the catalogue's own tunings, all ("own") or those close to the best ("close"),
    as far as they take the size."""
    best = [name for one in found for name in one["best"][:OWN_FINALISTS]]
    names = dict.fromkeys([*best, *(name for one in found for name in one[which])])
    most = {name: find(f"{case.op}/{name}").limit_bytes(case.world_size) for name in names}
    return tuple(name for name, limit in most.items() if limit is None or case.size_bytes <= limit)


def _middle(one: Case, other: Case) -> int | None:
    """The size half way between two, by the geometric mean; None if they are not far enough apart."""
    if other.size_bytes < APART * one.size_bytes:
        return None
    unit = STEP_BYTES * one.world_size
    size = math.isqrt(one.size_bytes * other.size_bytes) // unit * unit
    return size if one.size_bytes < size < other.size_bytes else None
