"""The level of an audited set: consistent or not, who vouches for it, and of how many cases the data was recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reports.table.text import counted
from symlab.evidence.audit.items import Item, Outcome, listed

RERUNS = 42
"""Number of a published machine's cases that run again in the simulator, in an order of a random seed: two of each of
21 kernels, about 20 s of one core. All cases up to 1 MiB are compared with the reference besides."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """recomputed: number of cases, of total, that were recomputed here and agree, in their data, or without a check in
    how they ended; ended: number of those without data. kernels: names of the kernels that ran the cases. without:
    those of them no case of which was recomputed. unexplained: number of cases that came out differently, by code that
    changed since."""

    recomputed: int = 0
    total: int = 0
    ended: int = 0
    kernels: Sequence[str] = ()
    without: Sequence[str] = ()
    unexplained: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """data: what was recomputed. findings: names of the items with one. signed: who vouches in a few
    words, such as "signed by NAME". is_changed: whether a record is of a tree with changes that its commit lacks.
    has_times: whether a record states times, which no software can verify. not_run: number of cases that interrupted
    commands did not come to."""

    data: Recomputed = field(default_factory=Recomputed)
    findings: tuple[str, ...] = ()
    signed: str = "unsigned"
    is_changed: bool = False
    has_times: bool = False
    not_run: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether data was recomputed in at least one case of each kernel, none came out differently, and there is no
        finding."""
        data = self.data
        return data.recomputed > data.ended and not (data.without or data.unexplained or self.findings)

    @property
    def text(self) -> str:
        """The level in words: "data recomputed in 24 of 24; times stated, not verified; consistent; unsigned"."""
        data = self.data
        lacking = f", none of {listed(data.without)}" if data.without and data.recomputed else ""
        changed = f", {data.unexplained} changed since" if data.unexplained else ""
        parts = {
            f"findings in {', '.join(self.findings)}": self.findings,
            f"data recomputed in {data.recomputed:,} of {data.total:,}{lacking}{changed}": True,
            f"interrupted, {counted(self.not_run, 'case')} not run": self.not_run,
            "times stated, not verified": self.has_times,
            "consistent": not self.findings,
            "changed tree": self.is_changed,
            self.signed: True,
        }
        return "; ".join(text for text, is_so in parts.items() if is_so)


def with_outcome(items: Sequence[Item], outcome: Outcome) -> tuple[str, ...]:
    """Return the names of the items that have a point with an outcome."""
    return tuple(item.name for item in items if any(point.outcome is outcome for point in item.points))
