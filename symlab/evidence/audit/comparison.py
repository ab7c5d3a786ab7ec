"""The comparison of two sets of records: did data or speed change, and what differs in their environments.

The result names every case of either set: compared, or with the reason why it can't be. Findings are different or
wrong data, other findings of the race checker, times that are FASTER, SLOWER or OUTSIDE the band, and cases that
passed before and are missing after.
INCONCLUSIVE and a case that was wrong before are no findings; the verdict counts them, and the cases of which nothing
was compared. Exit codes: 1 with a finding; 0 without one, if of data and of speed, each where it could be compared,
something was verified; else 2: nothing could be compared, or all speeds were INCONCLUSIVE. A Gate lets one kind of
finding alone decide the exit code. Sheets and captions show the result as tables.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from cases.gathered import gathered
from cases.record.record import Record, Status
from reports.table.compare import heading
from reports.table.sheet import Line, Sheet, line_of
from reports.table.text import counted, size_text
from symlab.evidence.audit.data import Data, Finding, data_of
from symlab.evidence.audit.differences import Difference, differences, sheet_of
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.items import listed
from symlab.evidence.audit.pairing import Pair, paired, why_times_differ_in_kind
from symlab.evidence.audit.races import FoundRaces, Races, races_of
from symlab.evidence.audit.statistics import (
    BAND,
    Judgement,
    Speed,
    checked_band,
    judge,
    not_comparable,
    sides_of,
    world_medians,
    world_of,
)

VERIFIED, FINDING, NOT_AUDITABLE = 0, 1, 2
"""Exit codes."""

STATED = "both sides as their records state, nothing recomputed"
RUN_HERE = "before as recorded, after as run here"

CHANGES = (Speed.FASTER, Speed.SLOWER, Speed.OUTSIDE)


_COLUMNS = (
    *("algorithm", "size", "data", "races", "speed", "before (us)", "after (us)", "ratio", "95 % interval"),
    *("p", "p (Holm)", "worlds", "notes"),
)
_NUMERIC = frozenset({"size", "before (us)", "after (us)", "ratio", "p", "p (Holm)"})
_FORMATS = {
    **dict.fromkeys(("before (us)", "after (us)"), "{:.4g}".format),
    **dict.fromkeys(("p", "p (Holm)"), "{:.2g}".format),
    **{"ratio": "{:.4f}".format, "size": size_text},
}
_TIMED = frozenset(_COLUMNS[5:-1])
"""Columns shown only if some times could be compared."""
_TESTED = frozenset({"95 % interval", "p", "p (Holm)"})
"""Columns shown only if some case had a verdict on speed."""

_GOOD, _BAD, _OPEN = "green", "bold red", "yellow"


@dataclass(frozen=True, slots=True)
class Compared:
    """One case that both sets have. times are the records whose speed is judged."""

    pair: Pair
    data: Finding
    speed: Judgement
    times: Pair
    races: FoundRaces

    @property
    def is_finding(self) -> bool:
        return self.is_different or self.speed.speed in CHANGES

    @property
    def is_different(self) -> bool:
        """Whether its data differs, or what the race checker found."""
        return self.data.data is Data.DIFFERENT or self.races.races is Races.DIFFERENT

    @property
    def is_slower(self) -> bool:
        return self.speed.speed in CHANGES and self.speed.ratio is not None and self.speed.ratio > 1

    @property
    def is_compared(self) -> bool:
        """Whether anything of the case was compared, its data or its speed."""
        return self.data.data is not Data.NOT_COMPARABLE or self.speed.speed is not Speed.NOT_COMPARABLE

    @property
    def has_same_data(self) -> bool:
        return self.data.data in (Data.BIT_EQUAL, Data.WITHIN_BOUND)

    @property
    def has_same_speed(self) -> bool:
        return self.speed.speed in (Speed.SAME, Speed.INSIDE)


@dataclass(frozen=True)
class Comparison:
    """The result. band: a share, such as 0.02. not_run: of a replay, the
    ids of the cases that could not be run again, each with the reason. without_case: names of the kernels of which no
    case could be. gate: the findings that decide the exit code. is_after_run_here: the command that compares ran the
    later set; else both are as their records state."""

    cases: tuple[Compared, ...]
    only_before: tuple[Pair, ...]
    only_after: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    band: float
    not_run: tuple[tuple[str, str], ...] = ()
    without_case: tuple[str, ...] = ()
    gate: Gate = Gate.ANY
    is_after_run_here: bool = False

    @property
    def missing(self) -> tuple[Pair, ...]:
        """Cases that passed their check before and are missing after."""
        return tuple(pair for pair in self.only_before if any(record.verified for record in pair.before))

    @property
    def wrong_before(self) -> int:
        """Number of cases that some world before computed wrong: no finding, for the later set may correct it."""
        return sum(any(one.status is Status.WRONG for one in case.pair.before) for case in self.cases)

    @property
    def not_compared(self) -> int:
        """Number of cases of either set of which neither data nor speed was compared, and of those not run again."""
        alone = len(self.only_before) + len(self.only_after)
        named = {case for case, _ in self.not_run} - {pair.first.id for pair in self.only_before}
        return sum(not case.is_compared for case in self.cases) + alone + len(named)

    @property
    def outcome(self) -> int:
        """The exit code of all findings together, whatever the gate."""
        if not self.cases:
            return NOT_AUDITABLE
        if self.missing or any(case.is_finding for case in self.cases):
            return FINDING
        if self.without_case:
            return NOT_AUDITABLE
        compared = [one for one in (self._same_data(), self._same_speed()) if one]
        return VERIFIED if compared and all(map(any, compared)) else NOT_AUDITABLE

    @property
    def exit_code(self) -> int:
        """The exit code that the gate gives: 1 with a finding of its kind, 0 if something of its kind was found the
        same (or FASTER, for SLOWER) and no kernel went uncompared, else 2."""
        match self.gate:
            case Gate.SLOWER:
                bad = any(case.is_slower for case in self.cases)
                good = any(self._same_speed()) or any(case.speed.speed in CHANGES for case in self.cases)
            case Gate.DIFFERENT:
                bad = bool(self.missing) or any(case.is_different for case in self.cases)
                good = any(self._same_data())
            case _:
                return self.outcome
        return FINDING if bad else VERIFIED if good and not self.without_case else NOT_AUDITABLE

    def _same_data(self) -> list[bool]:
        """Of each case whose data could be compared, whether it is the same."""
        return [case.has_same_data for case in self.cases if case.data.data is not Data.NOT_COMPARABLE]

    def _same_speed(self) -> list[bool]:
        """Of each case whose speed could be compared, whether it is the same."""
        return [case.has_same_speed for case in self.cases if case.speed.speed is not Speed.NOT_COMPARABLE]

    @cached_property
    def verdict(self) -> str:
        """The result in one line."""
        nothing = "NO FINDING IN WHAT WAS COMPARED" if self.not_compared else "NO FINDING"
        head = {VERIFIED: nothing, FINDING: "FINDING", NOT_AUDITABLE: "NOT AUDITABLE"}[self.outcome]
        head += f" (nothing of {listed(self.without_case, 10)} was compared)" if self.without_case else ""
        total = len({pair.first.id for pair in (*self.only_before, *self.only_after)} | {c for c, _ in self.not_run})
        total += len(self.cases)
        parts = [f"{self.not_compared:,} of {counted(total, 'case')} not compared"] if self.not_compared else []
        parts += [f"data: {_counted(case.data.data for case in self.cases)}"] if self.cases else []
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
        parts += [RUN_HERE if self.is_after_run_here else STATED] if self.cases else []
        if self.gate is not Gate.ANY:
            says = {VERIFIED: "passed", FINDING: "failed", NOT_AUDITABLE: "nothing to decide it"}[self.exit_code]
            parts += [f"gate {self.gate}: {says}"]
        return f"{head}: {'; '.join(parts)}"

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        return _sheets(self)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        return _captions(self)


def compare(
    before: Sequence[Record],
    after: Sequence[Record],
    band: float = BAND,
    not_run: Sequence[tuple[str, str]] = (),
    without_case: Sequence[str] = (),
    gate: Gate = Gate.ANY,
    in_turns: Sequence[Record] = (),
    is_after_run_here: bool = False,
) -> Comparison:
    """Compare two sets of records. band is a share: changes within it do not matter. not_run names the cases that are
    in neither set because they could not be run again, each with the reason, and without_case the kernels of which no
    case could be. in_turns are records of a replay: the recorded code, run again in turns with today's. They stand
    before; where they have times, speed is judged by these. is_after_run_here: see Comparison. Raises ValueError for an
    invalid band."""
    checked_band(band)
    pairs = paired([*before, *in_turns], after)
    both = [pair for pair in pairs if pair.before and pair.after]
    again = {world_of(record) for record in in_turns}
    timed = [_timed_in_turns(pair, again) or pair for pair in both]
    reasons = [why_times_differ_in_kind(pair) for pair in timed]
    judged = iter(
        judge([sides_of(one.before, one.after) for one, why in zip(timed, reasons, strict=True) if not why], band)
    )
    cases = tuple(
        Compared(
            pair,
            data_of(pair.before, pair.after),
            not_comparable(reason) if reason else next(judged),
            times,
            races_of(pair.before, pair.after),
        )
        for pair, times, reason in zip(both, timed, reasons, strict=True)
    )
    return Comparison(
        cases=cases,
        only_before=tuple(pair for pair in pairs if not pair.after),
        only_after=tuple(pair for pair in pairs if not pair.before),
        differences=differences(before, after),
        band=band,
        not_run=tuple(not_run),
        without_case=tuple(without_case),
        gate=gate,
        is_after_run_here=is_after_run_here,
    )


def _timed_in_turns(pair: Pair, again: Set[str]) -> Pair | None:
    """Return the pair with those records before that a replay ran in turns, the worlds in again; None without any."""
    found = tuple(one for one in pair.before if one.timing is not None and world_of(one) in again)
    return Pair(found, pair.after) if found else None


def _counted(values: Iterable[Data | Speed | Races]) -> str:
    """ "12 BIT-EQUAL, 3 NOT COMPARABLE", in the order of their definition."""
    counts = Counter(values)
    order = {name: index for index, name in enumerate((*Races, *Data, *Speed))}
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts, key=order.__getitem__))


def _sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """Return a sheet of cases for each job, one of what differs, and one of the cases that only one set has."""
    numbers = _numbers(comparison.cases)
    judged = any(case.speed.ratio is not None for case in comparison.cases)
    tested = any(case.speed.p is not None for case in comparison.cases)
    absent = (frozenset() if judged else _TIMED) | (frozenset() if tested else _TESTED)
    checked = any(case.races.races is not Races.NOT_CHECKED for case in comparison.cases)
    absent |= frozenset() if checked else frozenset({"races"})
    columns = tuple(column for column in _COLUMNS if column not in absent)
    found: dict[str, list[Line]] = {}
    for case in sorted(comparison.cases, key=lambda one: one.pair.first.case.size_bytes):
        found.setdefault(heading(case.pair.first), []).append(_line(case, numbers, columns))
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
            "the band, where there are too few worlds for more, or where the sides do not alternate in time",
        ]
    reasons = gathered((reason, case) for case, reason in comparison.not_run)
    for reason, some in reasons.items():
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        lines.append(f"not run again, NOT COMPARABLE: {some[0]}{more}: {reason}")
    if not comparison.differences:
        lines.append("what they were made with: nothing differs of what the records say")
    return tuple(lines)


def _line(case: Compared, numbers: dict[str, int], columns: Sequence[str]) -> Line:
    speed = case.speed
    times = [world_medians(side).values() for side in (case.times.before, case.times.after)]
    before_us, after_us = map(statistics.median, times) if speed.ratio is not None else (None, None)
    values = {
        "algorithm": _name(case.pair),
        "size": case.pair.first.case.size_bytes,
        "data": str(case.data.data),
        "races": str(case.races.races),
        "speed": str(speed.speed),
        "before (us)": before_us,
        "after (us)": after_us,
        "ratio": speed.ratio,
        "95 % interval": f"{speed.low:.4f} .. {speed.high:.4f}" if speed.low and speed.high else None,
        "p": speed.p,
        "p (Holm)": speed.corrected,
        "worlds": f"{speed.worlds[0]} and {speed.worlds[1]}" if speed.ratio is not None else None,
        "notes": " ".join(f"[{numbers[note]}]" for note in _notes(case)),
    }
    return line_of({name: values[name] for name in columns}, _FORMATS, _styles(case))


def _notes(case: Compared) -> list[str]:
    notes = [f"data: {case.data.remark}"] if case.data.remark else []
    notes += [f"races: {case.races.remark}"] if case.races.remark else []
    return [*notes, *([f"speed: {case.speed.advice}"] if case.speed.advice else [])]


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
