"""The comparison of two sets of records: did data or speed change, and what differs in their environments.

The result names every case of either set: compared, or with the reason why it can't be. Findings are different or
wrong data, other findings of the race checker, times that are FASTER, SLOWER or OUTSIDE the band, and cases that passed
before and are missing after.
INCONCLUSIVE and a case that was wrong before are no findings; the verdict counts them. Exit codes: 1 with a finding;
0 without one, if of data and of speed, each where it could be compared, something was verified; else 2: nothing could
be compared, or all speeds were INCONCLUSIVE. Sheets and captions show the result as tables.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from reports.audit.data import Data, Finding, data_of
from reports.audit.differences import Difference, differences, sheet_of
from reports.audit.pairing import Pair, paired, why_times_differ_in_kind
from reports.audit.races import Finding as FoundRaces
from reports.audit.races import Races, races_of
from reports.audit.statistics import BAND, Judgement, Speed, checked_band, judge, not_comparable, world_medians
from reports.record.record import Record, Status
from reports.table.compare import heading
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text

VERIFIED, FINDING, NOT_AUDITABLE = 0, 1, 2
"""Exit codes."""

CHANGES = (Speed.FASTER, Speed.SLOWER, Speed.OUTSIDE)


_COLUMNS = (
    *("algorithm", "size", "data", "races", "speed", "before (us)", "after (us)", "ratio", "95 % interval"),
    *("p", "p (Holm)", "worlds", "notes"),
)
_NUMERIC = frozenset({"size", "before (us)", "after (us)", "ratio", "p", "p (Holm)"})
_TIMED = frozenset(_COLUMNS[5:-1])
"""Columns shown only if some times could be compared."""
_TESTED = frozenset({"95 % interval", "p", "p (Holm)"})
"""Columns shown only if some case had enough worlds for a verdict."""

_GOOD, _BAD, _OPEN = "green", "bold red", "yellow"


@dataclass(frozen=True, slots=True)
class Compared:
    """One case that both sets have."""

    pair: Pair
    data: Finding
    speed: Judgement
    races: FoundRaces

    @property
    def is_finding(self) -> bool:
        has_other_races = self.races.races is Races.DIFFERENT
        return self.data.data is Data.DIFFERENT or self.speed.speed in CHANGES or has_other_races

    @property
    def has_same_data(self) -> bool:
        return self.data.data in (Data.BIT_EQUAL, Data.WITHIN_BOUND)

    @property
    def has_same_speed(self) -> bool:
        return self.speed.speed in (Speed.SAME, Speed.INSIDE)


@dataclass(frozen=True)
class Comparison:
    """The result. counts: number of records before and after. band: a share, such as 0.02. not_run: of a replay, the
    ids of the cases that could not be run again, each with the reason."""

    cases: tuple[Compared, ...]
    only_before: tuple[Pair, ...]
    only_after: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    band: float
    counts: tuple[int, int]
    not_run: tuple[tuple[str, str], ...] = ()

    @property
    def missing(self) -> tuple[Pair, ...]:
        """Cases that passed their check before and are missing after."""
        return tuple(pair for pair in self.only_before if any(record.verified for record in pair.before))

    @property
    def wrong_before(self) -> int:
        """Number of cases that some world before computed wrong: no finding, for the later set may correct it."""
        return sum(any(one.status is Status.WRONG for one in case.pair.before) for case in self.cases)

    @property
    def exit_code(self) -> int:
        if not self.cases:
            return NOT_AUDITABLE
        if self.missing or any(case.is_finding for case in self.cases):
            return FINDING
        data = [case.has_same_data for case in self.cases if case.data.data is not Data.NOT_COMPARABLE]
        speed = [case.has_same_speed for case in self.cases if case.speed.speed is not Speed.NOT_COMPARABLE]
        compared = [one for one in (data, speed) if one]
        return VERIFIED if compared and all(map(any, compared)) else NOT_AUDITABLE

    @cached_property
    def verdict(self) -> str:
        """The result in one line."""
        head = {VERIFIED: "VERIFIED", FINDING: "FINDING", NOT_AUDITABLE: "NOT AUDITABLE"}[self.exit_code]
        parts = [f"data: {_counted(case.data.data for case in self.cases)}"] if self.cases else []
        parts += [f"speed: {_counted(case.speed.speed for case in self.cases)}"] if self.cases else []
        if any(case.races.races is not Races.NOT_CHECKED for case in self.cases):
            parts += [f"races: {_counted(case.races.races for case in self.cases)}"]
        parts += [f"wrong before: {counted(self.wrong_before, 'case')}"] if self.wrong_before else []
        parts += [f"missing after: {counted(len(self.missing), 'case')} that passed before"] if self.missing else []
        others = len(self.only_before) - len(self.missing)
        parts += [f"only before: {counted(others, 'other case')}"] if others else []
        parts += [f"only after: {counted(len(self.only_after), 'case')}"] if self.only_after else []
        parts += [f"not run again: {counted(len(self.not_run), 'case')}"] if self.not_run else []
        parts += [] if self.cases else ["the two sets have no case in common"]
        return f"{head}: {'; '.join(parts)}"

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        return _sheets(self)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        return _captions(self)

    def document(self) -> dict[str, Any]:
        """The whole result as plain JSON values."""
        return {
            "kind": "comparison",
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "band": self.band,
            "records": {"before": self.counts[0], "after": self.counts[1]},
            "cases": [_case_document(case) for case in self.cases],
            "only_before": [_only(pair) for pair in self.only_before],
            "only_after": [_only(pair) for pair in self.only_after],
            "not_run": [{"id": case, "reason": reason} for case, reason in self.not_run],
            "differences": [asdict(one) for one in self.differences],
        }


def compare(
    before: Sequence[Record],
    after: Sequence[Record],
    band: float = BAND,
    not_run: Sequence[tuple[str, str]] = (),
) -> Comparison:
    """Compare two sets of records. band is a share: changes within it do not matter. not_run names the cases that are
    in neither set because they could not be run again, each with the reason. Raises ValueError for an invalid band."""
    checked_band(band)
    pairs = paired(before, after)
    both = [pair for pair in pairs if pair.before and pair.after]
    reasons = [why_times_differ_in_kind(pair) for pair in both]
    times = [
        tuple(tuple(world_medians(side).values()) for side in (pair.before, pair.after))
        for pair, reason in zip(both, reasons, strict=True)
        if not reason
    ]
    judged = iter(judge([(one, other) for one, other in times], band))
    cases = tuple(
        Compared(
            pair,
            data_of(pair.before, pair.after),
            not_comparable(reason) if reason else next(judged),
            races_of(pair.before, pair.after),
        )
        for pair, reason in zip(both, reasons, strict=True)
    )
    return Comparison(
        cases=cases,
        only_before=tuple(pair for pair in pairs if not pair.after),
        only_after=tuple(pair for pair in pairs if not pair.before),
        differences=differences(before, after),
        band=band,
        counts=(len(before), len(after)),
        not_run=tuple(not_run),
    )


def _counted(values: Iterable[Data | Speed | Races]) -> str:
    """ "12 BIT-EQUAL, 3 NOT COMPARABLE", in the order of their definition."""
    counts = Counter(values)
    order = {name: index for index, name in enumerate((*Data, *Speed, *Races))}
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts, key=order.__getitem__))


def _case_document(case: Compared) -> dict[str, Any]:
    speed = asdict(case.speed)
    return {
        "id": case.pair.first.id,
        "case": case.pair.first.case.document(),
        "data": str(case.data.data),
        "remark": case.data.remark,
        "speed": str(speed.pop("speed")),
        **speed,
        "races": str(case.races.races),
        "races_remark": case.races.remark,
        "before_us": world_medians(case.pair.before),
        "after_us": world_medians(case.pair.after),
        "finding": case.is_finding,
    }


def _only(pair: Pair) -> dict[str, Any]:
    return {"id": pair.first.id, "statuses": sorted({str(record.status) for record in (*pair.before, *pair.after)})}


def _sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """Return a sheet of cases for each job, one of what differs, and one of the cases that only one set has."""
    numbers = _numbers(comparison.cases)
    judged = any(case.speed.ratio is not None for case in comparison.cases)
    tested = any(case.speed.p is not None for case in comparison.cases)
    checked = any(case.races.races is not Races.NOT_CHECKED for case in comparison.cases)
    absent = frozenset() if checked else frozenset({"races"})
    absent |= (frozenset() if judged else _TIMED) | (frozenset() if tested else _TESTED)
    columns = tuple(column for column in _COLUMNS if column not in absent)
    found: dict[str, list[Line]] = {}
    for case in sorted(comparison.cases, key=lambda one: one.pair.first.case.size_bytes):
        line = Line({name: cell for name, cell in _cells(case, numbers).items() if name in columns}, _styles(case))
        found.setdefault(heading(case.pair.first), []).append(line)
    sheets = [Sheet(name, columns, (tuple(lines),), _NUMERIC & frozenset(columns)) for name, lines in found.items()]
    if comparison.differences:
        sheets.append(sheet_of(comparison.differences))
    for side, pairs in (("before", comparison.only_before), ("after", comparison.only_after)):
        if pairs:
            sheets.append(_lone(f"only {side}", pairs, comparison.missing))
    return tuple(sheets)


def _captions(comparison: Comparison) -> tuple[str, ...]:
    """Return the numbered notes, how verdicts are reached, and the cases that were not run again."""
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
        "races": str(case.races.races),
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
    notes += [f"races: {case.races.remark}"] if case.races.remark else []
    return notes + ([f"speed: {case.speed.advice}"] if case.speed.advice else [])


def _numbers(cases: Iterable[Compared]) -> dict[str, int]:
    """Return each distinct note with its number, from 1."""
    found = dict.fromkeys(note for case in cases for note in _notes(case))
    return {note: number for number, note in enumerate(found, start=1)}


def _styles(case: Compared) -> dict[str, str]:
    data = {Data.DIFFERENT: _BAD, Data.NOT_COMPARABLE: _OPEN}.get(case.data.data, _GOOD)
    speed = {Speed.SAME: _GOOD, Speed.INSIDE: _GOOD, Speed.INCONCLUSIVE: _OPEN, Speed.NOT_COMPARABLE: _OPEN}
    races = {Races.SAME: _GOOD, Races.DIFFERENT: _BAD}.get(case.races.races, _OPEN)
    return {"data": data, "races": races, "speed": speed.get(case.speed.speed, _BAD)}


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
