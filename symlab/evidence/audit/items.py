"""The nouns of a checklist: items, their points, outcomes and grounds; and how their evidence is worded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Literal

from reports.table.text import counted


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

Named = Sequence[Sequence[str]]
"""Names of cases, jobs or kernels, each with a sentence."""

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
    """One item of the list: its name, and its points (at least one)."""

    name: str
    points: tuple[Point, ...]

    @property
    def outcome(self) -> Outcome:
        """The most severe outcome of its points."""
        return min((point.outcome for point in self.points), key=ORDER.__getitem__)


def recomputed(
    agree: int, different: Named, unsure: Named, what: str, ground: Outside = Ground.RECOMPUTED
) -> Iterator[Point]:
    """Yield what a comparison found. agree: how many agree. different, unsure: the names of those that differ, and of
    those that can't be compared, each with a sentence. what: what they are, such as "jobs composed again"."""
    total = agree + len(different) + len(unsure)
    share = total - len(unsure), total
    if different:
        yield Point(Outcome.FINDING, f"{len(different)} of {total:,} {what}: {_told(different)}", ground, share)
    elif agree:
        yield Point(Outcome.VERIFIED, f"{agree:,} of {total:,} {what}: all agree", ground, share)
    if unsure:
        yield Point(Outcome.NOT_COMPARABLE, f"{len(unsure)} of {total:,} {what}: {_told(unsure)}")


@dataclass(slots=True)
class Tally:
    """What a comparison found, each by its name: what agrees, and what differs, can't be compared, or is only what the
    records say, each of those with a sentence."""

    agree: list[tuple[str, ...]] = field(default_factory=list)
    different: list[tuple[str, str]] = field(default_factory=list)
    unsure: list[tuple[str, str]] = field(default_factory=list)
    stated: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another comparison found."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def note(self, agrees: tuple[str, ...], differs: str, only_stated: str = "") -> None:
        """Note whether one agrees, which its name begins, or what differs, or why only the records say it."""
        if differs:
            self.different.append((agrees[0], differs))
        elif only_stated:
            self.stated.append((agrees[0], f"stated: {only_stated}"))
        else:
            self.agree.append(agrees)

    def points(self, what: str, ground: Outside = Ground.RECOMPUTED) -> Iterator[Point]:
        """Yield what was found; what: what it was looked for in, such as "jobs composed again"."""
        return recomputed(len(self.agree), self.different, self.unsure, what, ground)

    def reasons(self, what: str) -> Iterator[Point]:
        """Yield why only the records say something, each reason with its number, the most frequent first."""
        if self.stated:
            counts = Counter(why for _, why in self.stated).most_common()
            said = listed((f"{count} {reason}" for reason, count in counts), 6)
            yield Point(Outcome.CAPTURED, f"{what}: {said}")


def held(sentences: Iterable[str], good: str = "") -> Iterator[Point]:
    """Yield a finding of all sentences in which the records contradict each other, or what they are held to; without
    any that they are consistent, in the words of good, unless that is ""."""
    if found := list(dict.fromkeys(sentences)):
        yield Point(Outcome.FINDING, f"{counted(len(found), 'contradiction')}: {listed(found, 4)}")
    elif good:
        yield Point(Outcome.CAPTURED, good)


def _told(named: Named) -> str:
    return listed(f"{name}: {what}" for name, what in named)


def listed(texts: Iterable[str], most: int = 3) -> str:
    """Return the first distinct texts, at most `most`, and the number of the others."""
    known = list(dict.fromkeys(texts))
    more = f"; and {len(known) - most} more" if len(known) > most else ""
    return "; ".join(known[:most]) + more
