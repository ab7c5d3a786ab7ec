"""Where a series stands among those of its command: its section, and its place in the charts.

MLflow draws at most the first 20 runs of a view. The views order runs by their place, so that the fastest of ours and
the baselines of each section are among those that are drawn.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from cases.gathered import gathered
from cases.record.record import Record, Status
from reports.mlflow_values import WORST_FIRST, worst
from reports.table.compare import is_baseline, rows, split
from runner.track.names import Kept

WORST_RATIO = "worst/ours_over_base"
"""Metric of a command: the largest of its ratios, below 1 where ours are faster at all sizes."""

_LONGEST_NAME = 200


def section_of(record: Record) -> str:
    """The section of a record: "all_reduce bfloat16 n4"."""
    case = record.case
    return f"{case.op} {case.dtype} n{case.world_size}"


def standings(series: Mapping[str, Sequence[Kept]]) -> dict[str, int]:
    """Where each series stands, by its key in series_of's answer: from 1, the first are drawn first.

    Sections take turns: the first of each section come before the second of any, so that a view of several sections
    shows the best of each.
    """
    members = {key: [one.record for one in kept] for key, kept in series.items()}
    sections = gathered((section_of(records[0]), key) for key, records in members.items())
    ordered = [_ordered({key: members[key] for key in keys}) for keys in sections.values()]
    turns = sorted(
        ((turn, number, key) for number, keys in enumerate(ordered) for turn, key in enumerate(keys)),
        key=lambda one: one[:2],
    )
    return {key: place for place, (_, _, key) in enumerate(turns, 1)}


def _ordered(members: Mapping[str, Sequence[Record]]) -> list[str]:
    """The series of a section in the order in which they are drawn.

    Ours that are the fastest of ours at a size, those that are at most sizes first, in turns with the baselines; then
    the others by their speed; last those without times, the worst outcome first.
    """
    times = {key: _times(records) for key, records in members.items()}
    ours = [key for key, records in members.items() if not is_baseline(records[0])]
    best, best_of_ours = _best(times.values()), _best(times[key] for key in ours)
    wins = {key: sum(time == best_of_ours[size] for size, time in times[key].items()) for key in ours}
    lag = {
        key: statistics.fmean(math.log(time / best[size]) for size, time in own.items())
        for key, own in times.items()
        if own
    }
    timed = sorted(lag, key=lambda key: lag[key])
    winners = sorted((key for key in timed if wins.get(key)), key=lambda key: -wins[key])
    baselines = [key for key in timed if key not in wins]
    turns = [key for pair in itertools.zip_longest(winners, baselines) for key in pair if key is not None]
    untimed = sorted((key for key in members if key not in lag), key=lambda key: _urgency(members[key]))
    return list(dict.fromkeys([*turns, *timed, *untimed]))


def _best(times: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The shortest time of each size."""
    best: dict[int, float] = {}
    for own in times:
        for size, time in own.items():
            best[size] = min(time, best.get(size, time))
    return best


def _urgency(records: Sequence[Record]) -> int:
    """Failures first, then what passed, then refusals, of which there is nothing to draw."""
    status = worst(records)
    return len(WORST_FIRST) if status is Status.REFUSED else WORST_FIRST.index(status)


def _times(records: Sequence[Record]) -> dict[int, float]:
    """The median time in us, by size; of several worlds, the median over them."""
    found = gathered(
        (record.case.size_bytes, record.timing.median_us)
        for record in records
        if record.timing is not None and record.timing.median_us > 0
    )
    return {size: statistics.median(times) for size, times in found.items()}


def comparisons(records: Sequence[Record]) -> list[tuple[str, float, int]]:
    """What a command's own run has over bytes, as (name, value, step): for each section of the table the best time and
    bus bandwidth of each size, and our best over the best baseline; and over all the worst of these, step 0."""
    found: list[tuple[str, float, int]] = []
    ratios: list[float] = []
    taken: set[str] = set()
    for section in split(records)[0]:
        name = _metric_name(section.heading, taken)
        for row in rows(section):
            figures = {"best_us": row.figure("median_us"), "best_busbw_gbps": row.figure("busbw_gbps")}
            if row.best:
                found += [(f"{key}/{name}", value, row.size_bytes) for key, value in figures.items() if value]
            if row.ratio is not None:
                ratios.append(row.ratio)
                found.append((f"ours_over_base/{name}", row.ratio, row.size_bytes))
    found += [(WORST_RATIO, max(ratios), 0)] if ratios else []
    return list({(key, step): (key, value, step) for key, value, step in found if math.isfinite(value)}.values())


def _metric_name(heading: str, taken: set[str]) -> str:
    """A heading in letters that MLflow takes, other than those that are taken."""
    plain = " ".join(re.sub(r"[^\w.\- ]+", " ", heading).split())[:_LONGEST_NAME]
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain} {number}"
    taken.add(name)
    return name
