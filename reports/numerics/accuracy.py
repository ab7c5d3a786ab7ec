"""How exact sums were: errors over sizes, for each algorithm and accumulator, baselines among them.

A group is what one picture can hold: op, data type, reduction, world size, inputs. Errors are those of
reports.numerics.study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cases.dtypes import SIGNIFICAND_BITS, SUMS
from cases.gathered import gathered
from cases.record.record import Record
from reports.numerics.study import MEASURES, Measure, Point, point
from reports.table.compare import is_baseline, is_simulated
from reports.table.sheet import Line, Sheet, line_of
from reports.table.text import counted, number, place_text

_COLUMNS = (
    *("accumulator", "algorithm", "sizes", "cases", "elements", "wrong", "max abs error", "max ulp", "rms ulp"),
    *("max rel (u)", "rms rel (u)", "of bound", "ranks agree"),
)
_NUMERIC = frozenset(_COLUMNS) - {"accumulator", "algorithm", "ranks agree"}

CAPTIONS = (
    "error: distance from the exact sum rounded once to the data type, over all ranks and launches: 0 is the best",
    "ulp: representable numbers in between; where a sum is near 0 they lie close, and an error counts many of them",
    "rel (u): the error over the root mean square of all results, in units of the data type's unit roundoff "
    "(bfloat16: 2**-8)",
    "of bound: the largest share of its derived error bound that an element used up; beyond 1 is wrong",
)


DRAWN = (MEASURES[3], MEASURES[0])
"""What is drawn over sizes: the largest error in ulps, and the relative one that says what rounding did."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Errors over sizes: points[i] is of sizes[i], in bytes. accumulator: "library" for a baseline's."""

    algorithm: str
    accumulator: str
    is_ours: bool
    sizes: tuple[int, ...]
    points: tuple[Point, ...]
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """Its name in a legend."""
        return f"{self.algorithm}, {self.accumulator}"

    @property
    def is_exact(self) -> bool:
        """No error at any size."""
        return all(one.max_ulp_error == 0 for one in self.points)


@dataclass(frozen=True, slots=True)
class Group:
    """Curves that belong in one picture, under a heading."""

    heading: str
    curves: tuple[Curve, ...]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is drawn of it: those of DRAWN that any point has."""
        points = [one for curve in self.curves for one in curve.points]
        return tuple(measure for measure in DRAWN if any(measure.value(one) is not None for one in points))


def groups(records: Sequence[Record]) -> list[Group]:
    """Sums and averages of floats that were looked at and found right, in order of appearance; simulated ones apart."""
    are_mixed = len({is_simulated(record) for record in records if _counts(record)}) > 1
    placed = {(record.case.name, record.case.placement) for record in records if _counts(record)}
    are_placed = len(placed) > len({name for name, _ in placed})  # an algorithm was run in both placements
    found: dict[str, dict[tuple[str, str], list[Record]]] = {}
    for record in filter(_counts, records):
        case = record.case
        size = case.world_size
        heading = f"{case.op} {case.dtype}, {case.reduction}, {counted(size, 'rank')}"
        heading += f", {case.inputs} inputs"
        heading += (", simulated" if is_simulated(record) else ", on hardware") if are_mixed else ""
        heading += f", {place_text(case.placement)}" if are_placed else ""
        key = (case.algorithm, case.accumulator)
        found.setdefault(heading, {}).setdefault(key, []).append(record)
    return [Group(heading, tuple(_curve(*key, own) for key, own in some.items())) for heading, some in found.items()]


def sheets(records: Sequence[Record]) -> list[Sheet]:
    """A table for each group, a line for each curve: its errors over all sizes."""
    return [Sheet(group.heading, _COLUMNS, (tuple(map(_line, group.curves)),), _NUMERIC) for group in groups(records)]


def _counts(record: Record) -> bool:
    case = record.case
    return (
        record.verified
        and case.dtype in SIGNIFICAND_BITS
        and case.reduction in SUMS
        and case.inputs != "edge"
        and bool(case.size_bytes)
    )


def _curve(algorithm: str, accumulator: str, records: Sequence[Record]) -> Curve:
    by_size = gathered((record.case.size_bytes, record) for record in records)
    sizes = tuple(sorted(by_size))
    world_size = records[0].case.world_size
    points = tuple(point(world_size, by_size[size]) for size in sizes)
    return Curve(algorithm, accumulator, not is_baseline(records[0]), sizes, points, tuple(records))


def _line(curve: Curve) -> Line:
    checks = [record.check for record in curve.records if record.check is not None]
    whole = point(curve.records[0].case.world_size, curve.records)
    used = [check.bound_used for check in checks if check.bound_used is not None]
    values = {
        "accumulator": curve.accumulator,
        "algorithm": curve.algorithm,
        "sizes": len(curve.sizes),
        "cases": len(checks),
        "elements": sum(check.elements for check in checks),
        "wrong": sum(check.wrong for check in checks),
        "max abs error": max(check.max_absolute_error for check in checks),
        "max ulp": whole.max_ulp_error,
        "rms ulp": whole.rms_ulp_error,
        "max rel (u)": whole.max_relative_error,
        "rms rel (u)": whole.rms_relative_error,
        "of bound": max(used, default=None),
        "ranks agree": "yes" if whole.ranks_agree else "no",
    }
    formats = {name: number for name, value in values.items() if isinstance(value, float)}
    return line_of(values, formats, {"algorithm": "bold"} if curve.is_ours else {})
