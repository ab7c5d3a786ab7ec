"""Cases as records hold them, and back; findings of the race checker as records hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from cases.case import Case
from cases.record.findings import SEVERITIES
from cases.record.record import RecordedAccess, RecordedCase, RecordedFinding
from simulator.races.finding import Finding


def recorded_case(case: Case) -> RecordedCase:
    """Return the case as a record holds it, with all of its fields."""
    return RecordedCase(**dataclasses.asdict(case))


def case_of(recorded: RecordedCase) -> Case:
    """Return the case that a record holds. ValueError if the record's case has keys that are unknown here."""
    if recorded.other:
        raise ValueError(f"the record's case has unknown keys: {', '.join(recorded.other)}")
    return Case(**{member.name: getattr(recorded, member.name) for member in dataclasses.fields(Case)})


def recorded_findings(findings: Iterable[Finding]) -> tuple[RecordedFinding, ...]:
    """Return the race checker's findings as a record holds them, the gravest first, otherwise in their order."""
    found = [
        RecordedFinding(
            severity=one.severity,
            missing=one.missing,
            first=RecordedAccess(**dataclasses.asdict(one.first)),
            second=RecordedAccess(**dataclasses.asdict(one.second)),
            count=one.count,
            assumption=one.assumption,
            granting=one.granting,
            order=one.order,
        )
        for one in findings
    ]
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))
