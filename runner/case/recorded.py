"""Cases as records hold them, and back."""

from __future__ import annotations

import dataclasses

from cases.case import Case
from cases.record.record import RecordedCase


def recorded_case(case: Case) -> RecordedCase:
    """Return the case as a record holds it, with all of its fields."""
    return RecordedCase(**dataclasses.asdict(case))


def case_of(recorded: RecordedCase) -> Case:
    """Return the case that a record holds. ValueError if the record's case has keys that are unknown here."""
    if recorded.other:
        raise ValueError(f"the record's case has unknown keys: {', '.join(recorded.other)}")
    return Case(**{member.name: getattr(recorded, member.name) for member in dataclasses.fields(Case)})
