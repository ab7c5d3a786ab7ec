"""The nouns of a checklist: items, their points, outcomes and evidence; and how evidence is worded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a point, the most severe first. Nothing passes by default: what is unrecorded is NOT CAPTURED."""

    FINDING = "FINDING"
    """Something contradicts the records or invalidates them."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """It can't be verified here; the evidence says why."""
    NOT_CAPTURED = "NOT CAPTURED"
    """The records do not hold it."""
    VERIFIED = "VERIFIED"
    """The records hold it, and it was computed or looked up again, and agrees."""
    CAPTURED = "CAPTURED"
    """The records hold it, and there is nothing to verify it against."""
    DOES_NOT_APPLY = "does not apply"
    """It does not exist for these records: a simulated run has no clocks."""


ORDER = {outcome: place for place, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class Point:
    """One check: its outcome, and the evidence with numbers."""

    outcome: Outcome
    evidence: str


@dataclass(frozen=True, slots=True)
class Item:
    """One of the twenty items: its number from 1, its name, its points (at least one)."""

    number: int
    name: str
    points: tuple[Point, ...]

    @property
    def outcome(self) -> Outcome:
        """The most severe outcome of its points."""
        return min((point.outcome for point in self.points), key=ORDER.__getitem__)


def verified_or(findings: Sequence[str], good: str, total: int, what: str) -> Point:
    """Return FINDING with the number of findings and the first of them, or VERIFIED with good if there is none."""
    if not findings:
        return Point(Outcome.VERIFIED, good)
    return Point(Outcome.FINDING, f"{len(findings)} of {total} {what}: {listed(findings)}")


def listed(texts: Iterable[str], most: int = 3) -> str:
    """Return the first distinct texts, at most `most`, and the number of the others."""
    known = list(dict.fromkeys(texts))
    more = f"; and {len(known) - most} more" if len(known) > most else ""
    return "; ".join(known[:most]) + more
