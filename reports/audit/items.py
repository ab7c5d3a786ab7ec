"""The nouns of a checklist: what was looked at, what came out, and the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a point, the gravest first. Nothing is passed by default: what nobody recorded is NOT CAPTURED."""

    FINDING = "FINDING"
    """Something contradicts the records, or speaks against them."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """It could not be verified here, or not yet; the evidence says why."""
    NOT_CAPTURED = "NOT CAPTURED"
    """The records do not hold it."""
    VERIFIED = "VERIFIED"
    """The records hold it, and it was computed or looked up again, and agrees."""
    CAPTURED = "CAPTURED"
    """The records hold it; by its nature there is nothing to verify it against."""
    DOES_NOT_APPLY = "does not apply"
    """There is no such thing here: a simulated run has no clocks."""


ORDER = {outcome: place for place, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that was looked at: the outcome, and the evidence with its numbers."""

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
        """The gravest of its points'."""
        return min((point.outcome for point in self.points), key=ORDER.__getitem__)


def verified_or(findings: Sequence[str], good: str, total: int, what: str) -> Point:
    """FINDING with the first findings and their number, or VERIFIED with good."""
    if not findings:
        return Point(Outcome.VERIFIED, good)
    return Point(Outcome.FINDING, f"{len(findings)} of {total} {what}: {listed(findings)}")


def listed(texts: Iterable[str], most: int = 3) -> str:
    """The first few, and how many more there are."""
    known = list(dict.fromkeys(texts))
    more = f"; and {len(known) - most} more" if len(known) > most else ""
    return "; ".join(known[:most]) + more
