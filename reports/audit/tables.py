"""A comparison as tables: a line a case, what differs, the cases that only one set has, what has to be said below."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from reports.audit import differences
from reports.audit.data import Data
from reports.audit.pairing import Pair
from reports.audit.statistics import Speed, world_medians
from reports.table.compare import heading
from reports.table.sheet import Line, Sheet
from reports.table.text import size_text

if TYPE_CHECKING:
    from reports.audit.comparison import Compared, Comparison

_COLUMNS = (
    *("algorithm", "size", "data", "speed", "before (us)", "after (us)", "ratio", "95 % interval"),
    *("p", "p (Holm)", "worlds", "notes"),
)
_NUMERIC = frozenset({"size", "before (us)", "after (us)", "ratio", "p", "p (Holm)"})
_TIMED = frozenset(_COLUMNS[4:-1])
"""Columns that are there only where some times could be compared."""
_TESTED = frozenset({"95 % interval", "p", "p (Holm)"})
"""Columns that are there only where there were worlds enough for a verdict."""

_GOOD, _BAD, _OPEN = "green", "bold red", "yellow"


def sheets_of(comparison: Comparison) -> tuple[Sheet, ...]:
    """A sheet for each job's cases, then what differs, then what only one set has."""
    numbers = _numbers(comparison.cases)
    judged = any(case.speed.ratio is not None for case in comparison.cases)
    tested = any(case.speed.p is not None for case in comparison.cases)
    absent = (frozenset() if judged else _TIMED) | (frozenset() if tested else _TESTED)
    columns = tuple(column for column in _COLUMNS if column not in absent)
    found: dict[str, list[Line]] = {}
    for case in sorted(comparison.cases, key=lambda one: one.pair.first.case.size_bytes):
        line = Line({name: cell for name, cell in _cells(case, numbers).items() if name in columns}, _styles(case))
        found.setdefault(heading(case.pair.first), []).append(line)
    sheets = [Sheet(name, columns, (tuple(lines),), _NUMERIC & frozenset(columns)) for name, lines in found.items()]
    if comparison.differences:
        sheets.append(differences.sheet_of(comparison.differences))
    for side, pairs in (("before", comparison.only_before), ("after", comparison.only_after)):
        if pairs:
            sheets.append(_lone(f"only {side}", pairs, comparison.missing))
    return tuple(sheets)


def captions_of(comparison: Comparison) -> tuple[str, ...]:
    """The notes, and how verdicts are come by."""
    lines = [f"[{number}] {note}" for note, number in _numbers(comparison.cases).items()]
    if any(case.speed.ratio is not None for case in comparison.cases):
        lines += [
            "before, after: the median over worlds of each world's median time a call; ratio: Hodges-Lehmann, after "
            "over before, above 1 is slower; where there is a verdict it has a bootstrap interval (expanded "
            "percentile), the p-value of the exact two-sided Mann-Whitney test over worlds, and that corrected by Holm "
            "for all cases here",
            f"SAME: the interval lies within {comparison.band * 100:.3g} % of 1; FASTER, SLOWER: it does not, lies on "
            "one side of 1, and p (Holm) < 0.05; INCONCLUSIVE: neither; INSIDE, OUTSIDE: the ratio of medians against "
            "the band, where there are too few worlds for more",
        ]
    reasons: dict[str, list[str]] = {}
    for case, reason in comparison.not_run:
        reasons.setdefault(reason, []).append(case)
    for reason, some in reasons.items():
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        lines.append(f"not run again, NOT COMPARABLE: {some[0]}{more}: {reason}")
    if not comparison.differences:
        lines.append("what they were made with: nothing differs of what the records say")
    return tuple(lines)


def _cells(case: Compared, numbers: dict[str, int]) -> dict[str, str]:
    speed = case.speed
    before, after = (world_medians(side).values() for side in (case.pair.before, case.pair.after))
    show_times = speed.ratio is not None
    return {
        "algorithm": _name(case.pair),
        "size": size_text(case.pair.first.case.size_bytes),
        "data": str(case.data.data),
        "speed": str(speed.speed),
        "before (us)": f"{statistics.median(before):.4g}" if show_times else "-",
        "after (us)": f"{statistics.median(after):.4g}" if show_times else "-",
        "ratio": f"{speed.ratio:.4f}" if speed.ratio is not None else "-",
        "95 % interval": f"{speed.low:.4f} .. {speed.high:.4f}" if speed.low and speed.high else "-",
        "p": f"{speed.p:.2g}" if speed.p is not None else "-",
        "p (Holm)": f"{speed.corrected:.2g}" if speed.corrected is not None else "-",
        "worlds": f"{speed.worlds[0]} and {speed.worlds[1]}" if show_times else "-",
        "notes": " ".join(f"[{numbers[note]}]" for note in _notes(case)),
    }


def _notes(case: Compared) -> list[str]:
    notes = [f"data: {case.data.remark}"] if case.data.remark else []
    return notes + ([f"speed: {case.speed.advice}"] if case.speed.advice else [])


def _numbers(cases: Iterable[Compared]) -> dict[str, int]:
    """All notes, each once, numbered from 1."""
    found = dict.fromkeys(note for case in cases for note in _notes(case))
    return {note: number for number, note in enumerate(found, start=1)}


def _styles(case: Compared) -> dict[str, str]:
    data = {Data.DIFFERENT: _BAD, Data.NOT_COMPARABLE: _OPEN}.get(case.data.data, _GOOD)
    speed = {Speed.SAME: _GOOD, Speed.INSIDE: _GOOD, Speed.INCONCLUSIVE: _OPEN, Speed.NOT_COMPARABLE: _OPEN}
    return {"data": data, "speed": speed.get(case.speed.speed, _BAD)}


def _lone(name: str, pairs: Sequence[Pair], missing: Sequence[Pair]) -> Sheet:
    columns = ("case", "status", "finding")
    lines = []
    for pair in pairs:
        statuses = sorted({str(record.status) for record in (*pair.before, *pair.after)})
        says = "passed before, missing after" if pair in missing else "-"
        cells = dict(zip(columns, (pair.first.id, " ".join(statuses), says), strict=True))
        lines.append(Line(cells, {"finding": _BAD} if pair in missing else {}))
    return Sheet(name, columns, (tuple(lines),))


def _name(pair: Pair) -> str:
    placement = pair.first.case.placement
    return f"{pair.first.case.algorithm}{' (in place)' if placement == 'in_place' else ''}"
