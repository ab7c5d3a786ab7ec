"""How far samples lie apart: percentiles of every contestant at every size, over the samples of all its worlds."""

from __future__ import annotations

from itertools import chain

from cases.gathered import gathered
from cases.record.timing import percentile
from reports.table.compare import Row, Section, contestant_text, rows
from reports.table.sheet import Formats, Line, Sheet, line_of
from reports.table.text import size_text
from reports.table.timed_table import time_text

PERCENTS = (5, 25, 50, 75, 95, 99)

_COLUMNS = ("size", "algorithm", "samples", "min", *(f"p{percent}" for percent in PERCENTS), "max", "p95/p50")
_NUMERIC = frozenset(_COLUMNS) - {"algorithm"}

CAPTION = (
    "microseconds a call, of each sample the maximum over ranks; percentiles by nearest rank, over the samples of all "
    "worlds together (the table above has the median over worlds of each world's own)"
)


def samples_us(row: Row) -> tuple[float, ...]:
    """The samples of all worlds of a row, in ascending order: microseconds a call, the maximum over ranks."""
    return tuple(sorted(chain.from_iterable(timing.ordered_us for timing in row.timings)))


def sheet(section: Section) -> Sheet:
    """A line for each row that was timed."""
    timed = [row for row in rows(section) if row.timings]
    groups = gathered((row.size_bytes, _line(row, contestant_text(row, timed))) for row in timed)
    return Sheet(section.heading, _COLUMNS, tuple(map(tuple, groups.values())), _NUMERIC)


def _line(row: Row, name: str) -> Line:
    ordered = samples_us(row)
    percents = {f"p{percent}": percentile(ordered, percent, is_sorted=True) for percent in PERCENTS}
    times = {"min": ordered[0], **percents, "max": ordered[-1]}
    values = {"size": row.size_bytes, "algorithm": name, "samples": len(ordered), **times}
    values["p95/p50"] = percents["p95"] / percents["p50"]
    formats: Formats = {
        "size": size_text,
        "samples": str,
        "p95/p50": "{:.3f}".format,
        **dict.fromkeys(times, time_text),
    }
    return line_of(values, formats, {"algorithm": "bold"} if row.is_ours else {})
