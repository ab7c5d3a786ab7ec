"""Ranges of sizes with the algorithm that is predicted to be the fastest, and the sizes at which the choice changes.

Two algorithms tie where each may be the faster one: in a corner of what is assumed (assumptions.py) their times,
each with its own error, overlap. A crossover is the size at which two times are predicted to be equal, on a straight
line between the logarithms of the times of two neighbouring sizes; its interval reaches over the sizes at which
the two tie. Sizes at which a simulation is unfinished or failed are left out: the fastest algorithm there is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.table.sheet import Line, Sheet
from runner.request.sizes import format_bytes
from symlab.speed.predict import shown
from symlab.speed.predict.predicting import Prediction, ranking
from symlab.speed.predict.shown import Series, heading_of


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a range ends and another algorithm takes over.

    at_bytes: where the times are predicted to be equal; None if the algorithm before it is refused from then on.
    from_bytes, to_bytes: where either may be the faster one; None if that reaches beyond the sizes that were asked.
    """

    algorithm: str
    at_bytes: float | None
    from_bytes: float | None
    to_bytes: float | None


@dataclass(frozen=True, slots=True)
class Range:
    """Neighbouring sizes with one choice. ties: by algorithm the sizes of the range at which it may be faster than the
    choice. crossing: to the next range; None for the last one."""

    placement: str
    algorithm: str
    sizes: tuple[int, ...]
    ties: Mapping[str, tuple[int, ...]]
    crossing: Crossing | None


def ranges(series: Series) -> tuple[Range, ...]:
    """Return the ranges of a job, by placement and size."""
    found: list[Range] = []
    for placement in dict.fromkeys(one.case.placement for one in series.predictions):
        without = series.without("unfinished", "failed")
        late = {case.size_bytes for _, case, _ in without if case.placement == placement}
        here = [one for one in series.predictions if one.case.placement == placement]
        table = _by_size([one for one in here if one.case.size_bytes not in late])
        found += _ranges(placement, table)
    return tuple(found)


def ties(one: Prediction, other: Prediction) -> bool:
    """Whether either of two predictions of one size may be the faster one."""
    return _least(one, other) <= 0 <= _most(one, other)


def sheet(series: Series) -> list[Sheet]:
    """Return a job's ranges as a table for each placement."""
    columns = ("sizes", "fastest", "may be as fast", "next", "crossover", "crossover from", "to")
    found = ranges(series)
    sheets = []
    placements = dict.fromkeys(one.placement for one in found)
    for placement in placements:
        lines = tuple(Line(_cells(one)) for one in found if one.placement == placement)
        case = next(one.case for one in series.predictions if one.case.placement == placement)
        heading = f"{heading_of(case, series.known.name, placement if len(placements) > 1 else '')}: ranges of sizes"
        sheets.append(Sheet(heading, columns, (lines,), frozenset({"crossover", "crossover from", "to"})))
    return sheets


CAPTION = (
    "may be as fast: the intervals of both overlap, whatever is assumed; crossover: predicted times are equal, between "
    "two of the sizes that were asked by a line; from, to: where either may be the faster one, - beyond these sizes"
)


_KEYS = (
    "predicted", "gpu", "op", "dtype", "accumulator", "reduction", "world_size", "placement", "from_bytes", "to_bytes",
    "algorithm", "ties", "next", "crossover_bytes", "crossover_from_bytes", "crossover_to_bytes", "assumed",
)  # fmt: skip


def lines(series: Series) -> Iterator[dict[str, Any]]:
    """Yield a job's ranges as plain values, marked as predicted."""
    case = series.predictions[0].case if series.predictions else None
    for one in ranges(series):
        assert case is not None
        crossing = one.crossing
        yield {
            "predicted": True,
            "gpu": series.known.name,
            **{name: getattr(case, name) for name in ("op", "dtype", "accumulator", "reduction", "world_size")},
            "placement": one.placement,
            "from_bytes": one.sizes[0],
            "to_bytes": one.sizes[-1],
            "algorithm": one.algorithm,
            "ties": {name: list(sizes) for name, sizes in one.ties.items()},
            "next": crossing.algorithm if crossing else None,
            "crossover_bytes": _rounded(crossing.at_bytes) if crossing else None,
            "crossover_from_bytes": _rounded(crossing.from_bytes) if crossing else None,
            "crossover_to_bytes": _rounded(crossing.to_bytes) if crossing else None,
            "assumed": ", ".join(series.known.assumed),
        }


def written(found: Sequence[Series], form: str) -> str:
    """Return the ranges of jobs as "csv" or "json". In CSV ties are names, joined by blanks."""
    every = [line for one in found for line in lines(one)]
    if form == "csv":
        every = [{**line, "ties": " ".join(line["ties"])} for line in every]
    return shown.written(every, _KEYS, form)


_Table = Mapping[int, Mapping[str, Prediction]]
"""Predictions of one placement by size, in ascending order, and by algorithm."""


def _by_size(predictions: Sequence[Prediction]) -> _Table:
    sizes = sorted({one.case.size_bytes for one in predictions})
    return {size: {one.case.algorithm: one for one in predictions if one.case.size_bytes == size} for size in sizes}


def _ranges(placement: str, table: _Table) -> Iterator[Range]:
    chosen = {size: ranking(list(members.values()))[0].case.algorithm for size, members in table.items()}
    groups: list[list[int]] = []
    for size, algorithm in chosen.items():
        if groups and chosen[groups[-1][0]] == algorithm:
            groups[-1].append(size)
        else:
            groups.append([size])
    for number, sizes in enumerate(groups):
        algorithm = chosen[sizes[0]]
        tied: dict[str, list[int]] = {}
        for size in sizes:
            for name, one in table[size].items():
                if name != algorithm and ties(table[size][algorithm], one):
                    tied.setdefault(name, []).append(size)
        last = number + 1 == len(groups)
        crossing = None if last else _crossing(table, algorithm, chosen[groups[number + 1][0]], sizes[-1])
        yield Range(placement, algorithm, tuple(sizes), {name: tuple(one) for name, one in tied.items()}, crossing)


def _crossing(table: _Table, before: str, after: str, last: int) -> Crossing:
    """The crossing from one algorithm to the next one; last: the last size at which the first is chosen."""
    both = [size for size, members in table.items() if before in members and after in members]
    pairs = {size: (table[size][before], table[size][after]) for size in both}
    following = [size for size in both if size > last]
    is_refused = not following or last not in pairs
    at = None if is_refused else _zero({size: _middle(*pairs[size]) for size in both}, last, following[0])
    early = [size for size in both if size <= last and _most(*pairs[size]) < 0]
    late = [size for size in following if _least(*pairs[size]) > 0]
    if is_refused:
        later = next(size for size in table if size > last)
        return Crossing(after, None, float(last), float(later))
    start = stop = None
    if early:
        start = _zero({size: _most(*pairs[size]) for size in both}, early[-1], both[both.index(early[-1]) + 1])
    if late:
        stop = _zero({size: _least(*pairs[size]) for size in both}, both[both.index(late[0]) - 1], late[0])
    return Crossing(after, at, start, stop)


def _zero(values: Mapping[int, float], low: int, high: int) -> float:
    """The size between two neighbouring ones at which a value, at most 0 at the first and above 0 at the second, is 0,
    on a line over the size's logarithm."""
    share = -values[low] / (values[high] - values[low])
    return float(low * (high / max(low, 1)) ** min(max(share, 0.0), 1.0))


def _middle(one: Prediction, other: Prediction) -> float:
    """By how much the first takes longer than the second: the logarithm of the ratio of their times."""
    return math.log(one.time_us / other.time_us)


def _ratios(one: Prediction, other: Prediction) -> list[float]:
    return [first / second for first, second in zip(one.corners_us, other.corners_us, strict=True)]


def _least(one: Prediction, other: Prediction) -> float:
    """The same at least: in the corner where the first is best off, and by the errors of both."""
    return math.log(min(_ratios(one, other)) * one.error[0] / other.error[1])


def _most(one: Prediction, other: Prediction) -> float:
    """The same at most."""
    return math.log(max(_ratios(one, other)) * one.error[1] / other.error[0])


def _cells(one: Range) -> dict[str, str]:
    crossing = one.crossing
    cells = {"sizes": _span(one.sizes), "fastest": one.algorithm, "may be as fast": _tied(one)}
    if crossing is None:
        return cells | {"next": "", "crossover": "", "crossover from": "", "to": ""}
    cells["next"] = crossing.algorithm
    cells["crossover"] = "refused" if crossing.at_bytes is None else about(crossing.at_bytes)
    cells["crossover from"] = "-" if crossing.from_bytes is None else about(crossing.from_bytes)
    cells["to"] = "-" if crossing.to_bytes is None else about(crossing.to_bytes)
    return cells


def about(size_bytes: float) -> str:
    """Return a size with two digits: 93206.0 is "91K"."""
    for unit, bytes_ in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size_bytes >= bytes_:
            return f"{size_bytes / bytes_:.{0 if size_bytes >= 10 * bytes_ else 1}f}{unit}".replace(".0", "")
    return f"{size_bytes:.0f}"


def _span(sizes: Sequence[int]) -> str:
    first, last = format_bytes(sizes[0]), format_bytes(sizes[-1])
    return first if first == last else f"{first} to {last}"


def _tied(one: Range) -> str:
    """The ties of a range: at all of its sizes, or with those at which they are."""
    said = [name if sizes == one.sizes else f"{name} ({_span(sizes)})" for name, sizes in one.ties.items()]
    return ", ".join(said) or "none"


def _rounded(size_bytes: float | None) -> int | None:
    return None if size_bytes is None else round(size_bytes)
