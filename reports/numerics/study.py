"""What an accumulator costs: errors against the number of ranks, a curve for each algorithm, data type and accumulator.

Errors are those of cases.record.record.Check: distances to the exact sum rounded once to the data type, so that a
result that is rounded once has error 0. Near a sum of zero a unit in the last place is tiny, and a largest error in
such units huge, however good the sum was: errors relative to the results' root mean square say what rounding did.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cases.dtypes import SIGNIFICAND_BITS, SUMS
from cases.record.record import Check, Record
from reports.numerics import LEAST_WORLD_SIZES
from reports.table import sheet
from reports.table.compare import is_baseline, is_simulated
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, place_text

_AXES = ("op", "algorithm", "dtype", "accumulator", "reduction", "inputs", "placement")
"""What a curve fixes."""


@dataclass(frozen=True, slots=True)
class Point:
    """One world size of a series, over all sizes and seeds.

    Relative errors are shares of the results' root mean square, in units of u; None where records lack them.
    ranks_agree: all ranks had the same bits. results: number of different results of the ranks, None where that is not
    known.
    """

    world_size: int
    max_ulp_error: float
    rms_ulp_error: float
    max_relative_error: float | None
    rms_relative_error: float | None
    ranks_agree: bool
    results: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: what was summed how, and a point for each world size, in their order.

    where: "simulated" or "on hardware" among curves of both kinds, which share no picture; else "".
    """

    op: str
    algorithm: str
    dtype: str
    accumulator: str
    reduction: str
    inputs: str
    points: tuple[Point, ...] = ()
    where: str = ""
    placement: str = "out_of_place"

    @property
    def in_place(self) -> str:
        """The placement in words where a heading has to say it: "in place"; "" out of place."""
        return place_text(self.placement) if self.placement == "in_place" else ""

    @property
    def picture(self) -> tuple[str, ...]:
        """What the curves of one picture share, for its heading: op and data type, reduction, inputs, placement,
        where."""
        parts = (f"{self.op} {self.dtype}", self.reduction, f"{self.inputs} inputs", self.in_place, self.where)
        return tuple(filter(None, parts))

    @property
    def name(self) -> str:
        name = f"{self.op}/{self.algorithm} {self.dtype}/{self.accumulator} {self.reduction}, {self.inputs} inputs"
        return f"{name}, {self.in_place}" if self.in_place else name

    @property
    def label(self) -> str:
        """Its name in a legend."""
        return f"{self.algorithm}, {self.accumulator}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the worlds of its points."""
        return tuple(point.world_size for point in self.points)


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a point: its name in MLflow, what stands at its axis, and how it is read."""

    key: str
    title: str
    value: Callable[[Point], float | None]


MEASURES = (
    Measure("rms_relative_error", "root-mean-square error, u * results' rms", lambda point: point.rms_relative_error),
    Measure("max_relative_error", "largest error, u * results' rms", lambda point: point.max_relative_error),
    Measure("rms_ulp_error", "root-mean-square error, ulp", lambda point: point.rms_ulp_error),
    Measure("max_ulp_error", "largest error, ulp", lambda point: point.max_ulp_error),
)

PAIRS = (("u * rms of the results", MEASURES[:2]), ("ulp", MEASURES[2:]))
"""The content of one table: a unit, and its two measures."""


def series(records: Sequence[Record]) -> list[Series]:
    """All curves of sums among records: verified ones of floats, by kernels of ours, in order of appearance."""
    found: dict[tuple[str, ...], dict[int, list[Record]]] = {}
    summed = list(filter(_counts, records))
    are_mixed = len(set(map(is_simulated, summed))) > 1
    for record in summed:
        case = record.case
        where = ("simulated" if is_simulated(record) else "on hardware") if are_mixed else ""
        key = (*(getattr(case, name) for name in _AXES), where)
        found.setdefault(key, {}).setdefault(case.world_size, []).append(record)
    return [
        Series(
            **dict(zip(_AXES, key[:-1], strict=True)),
            points=tuple(point(size, one[size]) for size in sorted(one)),
            where=key[-1],
        )
        for key, one in found.items()
    ]


def studied(records: Sequence[Record], least: int = LEAST_WORLD_SIZES) -> list[Series]:
    """Return the curves that have at least the given number of world sizes."""
    return [one for one in series(records) if len(one.points) >= least]


def measures_of(curves: Sequence[Series]) -> list[Measure]:
    """The measures that any point has."""
    return [one for one in MEASURES if any(one.value(point) is not None for line in curves for point in line.points)]


def belongs(record: Record, curves: Sequence[Series]) -> bool:
    """Whether a record's figures are in one of the curves."""
    names = {one.name for one in curves}
    return any(one.name in names for one in series([record]))


def _counts(record: Record) -> bool:
    case = record.case
    return (
        record.verified
        and not is_baseline(record)
        and case.dtype in SIGNIFICAND_BITS
        and case.reduction in SUMS
        and case.inputs != "edge"
        and record.check is not None
        and record.check.elements > 0  # a check of nothing has no error
    )


def point(world_size: int, records: Sequence[Record]) -> Point:
    """The errors of these checked records together."""
    checks = [record.check for record in records if record.check is not None]
    bits = SIGNIFICAND_BITS[records[0].case.dtype]
    results = [check.results for check in checks if check.results is not None]
    return Point(
        world_size=world_size,
        max_ulp_error=max(check.max_ulp_error for check in checks),
        rms_ulp_error=_mean(checks, lambda check: check.rms_ulp_error) or 0.0,
        max_relative_error=_scaled(_largest([check.max_relative_error for check in checks]), bits),
        rms_relative_error=_scaled(_mean(checks, lambda check: check.rms_relative_error), bits),
        ranks_agree=all(check.ranks_equal for check in checks),
        results=max(results, default=None),
    )


def _mean(checks: Sequence[Check], value: Callable[[Check], float | None]) -> float | None:
    """The root mean square over all elements; None where a check does not have it."""
    pairs = [(value(check), check.elements) for check in checks]
    known = [(one, elements) for one, elements in pairs if one is not None]
    if len(known) < len(pairs):
        return None
    return math.sqrt(sum(one * one * elements for one, elements in known) / sum(elements for _, elements in known))


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _scaled(value: float | None, bits: int) -> float | None:
    return None if value is None else math.ldexp(value, bits)


def why_no_study(records: Sequence[Record], folder: str = "") -> str:
    """Why an experiment that calls itself a study gives none; "" for other experiments, and where it gives one."""
    named = {record.request.experiment for record in records if record.request.experiment.endswith("_study")}
    curves = series(records)
    if not named or any(len(one.points) >= LEAST_WORLD_SIZES for one in curves):
        return ""
    sizes = sorted({size for one in curves for size in one.sizes})
    has = f"{counted(len(sizes), 'world size')} ({', '.join(map(str, sizes))})" if sizes else "no world size"
    shown = f"; symlab study {shlex.quote(folder)} takes two" if folder and len(sizes) == 2 else ""
    return (
        f"no study of {' and '.join(sorted(named))}: a curve takes {LEAST_WORLD_SIZES} world sizes or more, and there "
        f"are checked sums of floats on {has}{shown}"
    )


def here(curves: Sequence[Series]) -> str:
    """The tables as text to be printed here, no wider than a line is."""
    return sheet.text(sheets_of(curves), captions(curves), sheet.room_here())


def markdown(curves: Sequence[Series]) -> str:
    """The tables as Markdown, ending in a newline."""
    return sheet.markdown(sheets_of(curves), captions(curves)) + "\n"


def sheets_of(curves: Sequence[Series]) -> list[Sheet]:
    """Two tables for each op, reduction and kind of inputs: errors in u, and in ulps; a line for each curve."""
    sizes = sorted({size for one in curves for size in one.sizes})
    columns = ("dtype", "accumulator", "algorithm", *(f"n={size}" for size in sizes), "ranks agree")
    kinds = dict.fromkeys((one.op, one.reduction, one.inputs, one.in_place, one.where) for one in curves)
    sheets = []
    for kind in kinds:
        own = [one for one in curves if (one.op, one.reduction, one.inputs, one.in_place, one.where) == kind]
        op, reduction, inputs = kind[:3]
        where = "".join(f", {one}" for one in kind[3:] if one)
        for unit, pair in PAIRS:
            if all(pair[0].value(point) is None for one in own for point in one.points):
                continue
            groups = tuple(
                tuple(Line(_cells(one, pair, columns)) for one in own if one.dtype == dtype)
                for dtype in dict.fromkeys(one.dtype for one in own)
            )
            heading = (
                f"{op} {reduction}, {inputs} inputs{where}, n ranks: root-mean-square error / largest error, in {unit}"
            )
            sheets.append(Sheet(heading, columns, groups, frozenset(f"n={size}" for size in sizes)))
    return sheets


def _cells(one: Series, pair: Sequence[Measure], columns: Sequence[str]) -> dict[str, str]:
    errors = {
        f"n={point.world_size}": " / ".join(_number(measure.value(point)) for measure in pair) for point in one.points
    }
    cells = {
        "dtype": one.dtype,
        "accumulator": one.accumulator,
        "algorithm": one.algorithm,
        **errors,
        "ranks agree": agreement(one),
    }
    return {column: cells.get(column, "-") for column in columns}


def agreement(one: Series) -> str:
    """Whether all ranks had the same bits, at every world size: "yes", or "no: up to 8 results"."""
    if all(point.ranks_agree for point in one.points):
        return "yes"
    most = max((point.results or 0 for point in one.points), default=0)
    return f"no: up to {most} results" if most > 1 else "no"


def _number(value: float | None) -> str:
    """Two or three digits."""
    if value is None:
        return "-"
    if value >= 1e5:
        return f"{value:.1e}".replace("e+0", "e")
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"


def captions(curves: Sequence[Series]) -> list[str]:
    """What the errors are, and what it means that ranks agree."""
    lines = [
        "error: distance from the exact sum rounded once to the dtype, over all ranks, sizes and launches: 0 is the "
        "best there is",
        "ulp: representable numbers of the dtype in between; where a sum is near 0 they lie close, and an error counts "
        "many of them",
    ]
    if any(point.max_relative_error is not None for one in curves for point in one.points):
        lines.append(
            "u * rms of the results: the error over the root mean square of all results, in units of the dtype's unit "
            "roundoff u (bfloat16: 2**-8)"
        )
    lines.append(
        "ranks agree: with one owner an element, or one order on all ranks, all get the same bits; where each rank "
        "adds in an order of its own, they don't"
    )
    return lines
