"""Two sets of records beside each other: did the data change, did the speed, and what differs in what they rest on.

Every case of either set is in the result: compared, or named with the reason why it can't be. A finding is data that is
different or wrong, times that are FASTER, SLOWER or OUTSIDE the band, and a case that was right before and is missing
after. INCONCLUSIVE is none, and is named in the verdict. The exit code: 1 a finding; 0 none, and of what could be
compared, data and speed, something was verified of each; 2 else: nothing could be compared, or all speeds were
INCONCLUSIVE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from reports.audit import tables
from reports.audit.data import Data, Finding, data_of
from reports.audit.differences import Difference, differences
from reports.audit.pairing import Pair, paired, why_times_differ_in_kind
from reports.audit.statistics import BAND, Judgement, Speed, checked_band, judge, not_comparable, world_medians
from reports.record.record import Record
from reports.table.sheet import Sheet

VERIFIED, FINDING, NOT_AUDITABLE = 0, 1, 2
"""Exit codes."""

CHANGES = (Speed.FASTER, Speed.SLOWER, Speed.OUTSIDE)


@dataclass(frozen=True, slots=True)
class Compared:
    """One case that both sets have."""

    pair: Pair
    data: Finding
    speed: Judgement

    @property
    def is_finding(self) -> bool:
        return self.data.data is Data.DIFFERENT or self.speed.speed in CHANGES

    @property
    def has_same_data(self) -> bool:
        return self.data.data in (Data.BIT_EQUAL, Data.WITHIN_BOUND)

    @property
    def has_same_speed(self) -> bool:
        return self.speed.speed in (Speed.SAME, Speed.INSIDE)


@dataclass(frozen=True)
class Comparison:
    """The result: cases of both sets, cases of one only, what differs, the band; of a replay the ids of cases that
    could not be run again, each with the reason."""

    cases: tuple[Compared, ...]
    only_before: tuple[Pair, ...]
    only_after: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    band: float
    counts: tuple[int, int]
    not_run: tuple[tuple[str, str], ...] = ()

    @property
    def missing(self) -> tuple[Pair, ...]:
        """Cases that were right before and are not there after."""
        return tuple(pair for pair in self.only_before if any(record.verified for record in pair.before))

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
        """One line."""
        head = {VERIFIED: "VERIFIED", FINDING: "FINDING", NOT_AUDITABLE: "NOT AUDITABLE"}[self.exit_code]
        parts = [f"data: {_counted(case.data.data for case in self.cases)}"] if self.cases else []
        parts += [f"speed: {_counted(case.speed.speed for case in self.cases)}"] if self.cases else []
        parts += [f"{len(self.missing)} cases that passed before are missing after"] if self.missing else []
        others = len(self.only_before) - len(self.missing)
        parts += [f"{others} other cases only before"] if others else []
        parts += [f"{len(self.only_after)} cases only after"] if self.only_after else []
        parts += [f"{len(self.not_run)} cases could not be run again"] if self.not_run else []
        parts += [] if self.cases else ["the two sets have no case in common"]
        return f"{head}: {'; '.join(parts)}"

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        return tables.sheets_of(self)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        return tables.captions_of(self)

    def document(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
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
    """The comparison of two sets of records. band is a share: changes within it do not matter. not_run are ids of cases
    that are in neither set because they could not be run again, each with the reason. ValueError for a band that is
    none."""
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
        Compared(pair, data_of(pair.before, pair.after), not_comparable(reason) if reason else next(judged))
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


def _counted(values: Iterable[Data | Speed]) -> str:
    """ "12 BIT-EQUAL, 3 NOT COMPARABLE", in the order of their definition."""
    counts = Counter(values)
    order = {name: index for index, name in enumerate((*Data, *Speed))}
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
        "before_us": world_medians(case.pair.before),
        "after_us": world_medians(case.pair.after),
        "finding": case.is_finding,
    }


def _only(pair: Pair) -> dict[str, Any]:
    return {"id": pair.first.id, "statuses": sorted({str(record.status) for record in (*pair.before, *pair.after)})}
