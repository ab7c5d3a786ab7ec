"""The nouns of a checklist: items, their points, outcomes, grounds and evidence; and how evidence is worded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Outcome(StrEnum):
    """The outcome of a point, the most severe first. Nothing passes by default: what is unrecorded is NOT CAPTURED."""

    FINDING = "FINDING"
    """Something contradicts the records or invalidates them."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """It can't be verified here; the evidence says why."""
    NOT_CAPTURED = "NOT CAPTURED"
    """The records do not hold it."""
    CAPTURED = "CAPTURED"
    """The records state it, and nothing but the records was asked."""
    VERIFIED = "VERIFIED"
    """The records hold it, and it agrees with what was recomputed here or compared with something outside the set."""
    DOES_NOT_APPLY = "does not apply"
    """It does not exist for these records: a simulated run has no clocks."""


ORDER = {outcome: place for place, outcome in enumerate(Outcome)}


class Ground(StrEnum):
    """What an outcome rests on, the strongest first."""

    RECOMPUTED = "recomputed"
    """This audit computed it from sources, seeds or raw values."""
    COMPARED = "compared"
    """It was compared with something outside the set: git, a signature, another set, the tracker."""
    STATED = "stated"
    """The records say so, and their writer could have written otherwise. Two parts of one set that agree are no more
    than that."""


Outside = Literal[Ground.RECOMPUTED, Ground.COMPARED]
"""The grounds that make VERIFIED."""

_WITH_GROUND = frozenset({Outcome.FINDING, Outcome.VERIFIED, Outcome.CAPTURED})
"""Outcomes whose ground is shown: the others say that nothing was verified."""


@dataclass(frozen=True, slots=True)
class Point:
    """One check: its outcome, the evidence with numbers, what it rests on, and how many of how many were looked at.

    ValueError for VERIFIED that rests on the records' word, for CAPTURED that rests on more, and for a share that no
    count gives.
    """

    outcome: Outcome
    evidence: str
    ground: Ground = Ground.STATED
    share: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.outcome is Outcome.VERIFIED and self.ground is Ground.STATED:
            raise ValueError(
                f"VERIFIED needs what was recomputed or compared, and the records state it: {self.evidence}"
            )
        if self.outcome is Outcome.CAPTURED and self.ground is not Ground.STATED:
            raise ValueError(f"CAPTURED is what the records state, and this was {self.ground}: {self.evidence}")
        if self.share is not None and not 0 <= self.share[0] <= self.share[1]:
            raise ValueError(f"{self.share[0]} of {self.share[1]} is no share: {self.evidence}")
        if self.outcome is Outcome.VERIFIED and self.share is not None and not self.share[0]:
            raise ValueError(f"VERIFIED needs at least one of {self.share[1]}: {self.evidence}")

    @property
    def ground_text(self) -> str:
        """The ground and the share in words, such as "recomputed, 24 of 24"; "" where nothing was verified."""
        if self.outcome not in _WITH_GROUND:
            return ""
        share = f", {self.share[0]:,} of {self.share[1]:,}" if self.share is not None else ""
        return f"{self.ground}{share}"


@dataclass(frozen=True, slots=True)
class Item:
    """One item of the list: its number from 1, its name, its points (at least one)."""

    number: int
    name: str
    points: tuple[Point, ...]

    @property
    def outcome(self) -> Outcome:
        """The most severe outcome of its points."""
        return self._deciding.outcome

    @property
    def ground(self) -> Ground:
        """The ground of its outcome: the weakest that a point with this outcome has."""
        return self._deciding.ground

    @property
    def share(self) -> tuple[int, int] | None:
        """How many of how many its outcome rests on: the smallest share of the points that give outcome and ground."""
        return self._deciding.share

    @property
    def _deciding(self) -> Point:
        return min(self.points, key=_severity)


def _severity(point: Point) -> tuple[int, int, float]:
    """A key of points: by outcome, then the weakest ground, then the smallest share."""
    part = point.share[0] / point.share[1] if point.share and point.share[1] else 1.0
    return ORDER[point.outcome], -tuple(Ground).index(point.ground), part


def verified_or(
    findings: Sequence[str],
    good: str,
    total: int,
    what: str,
    ground: Outside,
    share: tuple[int, int] | None = None,
) -> Point:
    """Return FINDING with the number of findings and the first of them, or VERIFIED with good if there is none.

    ground: what good rests on. share: how many of how many were looked at; None: all of the total.
    """
    share = (total, total) if share is None else share
    if findings:
        return _finding(findings, total, what, ground, share)
    return Point(Outcome.VERIFIED, good, ground, share)


def captured_or(findings: Sequence[str], good: str, total: int, what: str) -> Point:
    """Return FINDING as verified_or does, or CAPTURED with good: the parts of the records agree with each other."""
    return _finding(findings, total, what, Ground.STATED, None) if findings else Point(Outcome.CAPTURED, good)


def _finding(findings: Sequence[str], total: int, what: str, ground: Ground, share: tuple[int, int] | None) -> Point:
    return Point(Outcome.FINDING, f"{len(findings)} of {total} {what}: {listed(findings)}", ground, share)


def listed(texts: Iterable[str], most: int = 3) -> str:
    """Return the first distinct texts, at most `most`, and the number of the others."""
    known = list(dict.fromkeys(texts))
    more = f"; and {len(known) - most} more" if len(known) > most else ""
    return "; ".join(known[:most]) + more
