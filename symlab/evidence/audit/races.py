"""What two sets of records say of the races of one case: the same findings, or other ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cases.finding import Finding
from cases.record.record import Record, Status


class Races(StrEnum):
    """How the findings of one case compare."""

    SAME = "SAME"
    """Both sides were checked, and have the same pairs of accesses, or none."""
    DIFFERENT = "DIFFERENT"
    """Both were checked, and one has a pair that the other has not."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """One side was not checked."""
    NOT_CHECKED = "NOT CHECKED"
    """Neither side was checked, which says nothing of races."""


@dataclass(frozen=True, slots=True)
class FoundRaces:
    """How they compare, and a sentence on what differs or is missing ("" if nothing is)."""

    races: Races
    remark: str = ""


def races_of(before: Sequence[Record], after: Sequence[Record]) -> FoundRaces:
    """Compare the findings of one case's worlds before and after. Worlds that did not run are left out."""
    sides = [[one.findings for one in side if one.status is not Status.REFUSED] for side in (before, after)]
    ours, theirs = ([one for one in side if one is not None] for side in sides)
    if not ours and not theirs:
        return FoundRaces(Races.NOT_CHECKED)
    if not ours or not theirs:
        return FoundRaces(Races.NOT_COMPARABLE, f"{'before' if not ours else 'after'} it was not checked for races")
    return compared([one for some in ours for one in some], [one for some in theirs for one in some])


def compared(before: Sequence[Finding], after: Sequence[Finding]) -> FoundRaces:
    """Compare two lists of findings by their pairs of accesses."""
    ours, theirs = ({one.pair: one for one in side} for side in (before, after))
    new = [theirs[pair] for pair in theirs if pair not in ours]
    gone = [ours[pair] for pair in ours if pair not in theirs]
    says = [_more("only after", new)] if new else []
    says += [_more("only before", gone)] if gone else []
    return FoundRaces(Races.DIFFERENT if says else Races.SAME, "; ".join(says))


def _more(where: str, findings: Sequence[Finding]) -> str:
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{where}: {findings[0].sentence()}{more}"
