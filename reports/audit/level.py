"""The level of an audited set: consistent or not, who vouches for it, and of how many cases the data was recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.audit.items import Item, Outcome, listed
from reports.table.text import counted

RERUNS = 42
"""Number of a published machine's cases that run again in the simulator, in an order of a random seed: two of each of
21 kernels, about 20 s of one core. All cases up to 1 MiB are compared with the reference besides."""


@dataclass(frozen=True, slots=True)
class Level:
    """recomputed: number of cases, of total, that were recomputed here and agree, in their data, or without a check in
    how they ended; rerun: number of those that ran again, and were not only compared with the reference; ended: number
    of those without data. kernels: names of the kernels that ran the cases. without: those of them no case of which was
    recomputed. unexplained: number of cases that came out differently, by code that changed since. verified: numbers of
    the items with a point that is VERIFIED. findings: numbers of the items with a finding. signed: who vouches in a few
    words, such as "signed by NAME". is_changed: whether a record is of a tree with changes that its commit lacks.
    has_times: whether a record states times, which no software can verify. not_run: number of cases that interrupted
    commands did not come to.
    """

    recomputed: int
    total: int
    rerun: int = 0
    kernels: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    unexplained: int = 0
    verified: tuple[int, ...] = ()
    findings: tuple[int, ...] = ()
    signed: str = "unsigned"
    ended: int = 0
    is_changed: bool = False
    has_times: bool = False
    not_run: int = 0

    @property
    def is_verified(self) -> bool:
        """Whether data was recomputed in at least one case of each kernel, none came out differently, and there is no
        finding."""
        return self.recomputed > self.ended and not (self.without or self.unexplained or self.findings)

    @property
    def text(self) -> str:
        """The level in words: "data recomputed in 24 of 24; times stated, not verified; consistent; unsigned"."""
        times = "times stated, not verified; " if self.has_times else ""
        found = f"findings in item {', '.join(map(str, self.findings))}; " if self.findings else ""
        consistent = "" if self.findings else "consistent; "
        lacking = f", none of {listed(self.without)}" if self.without and self.recomputed else ""
        changed = f", {self.unexplained} changed since" if self.unexplained else ""
        interrupted = f"interrupted, {counted(self.not_run, 'case')} not run; " if self.not_run else ""
        tree = "changed tree; " if self.is_changed else ""
        data = f"data recomputed in {self.recomputed:,} of {self.total:,}{lacking}{changed}"
        return f"{found}{data}; {interrupted}{times}{consistent}{tree}{self.signed}"

    def document(self) -> dict[str, Any]:
        """Return the level as plain JSON values."""
        return {
            "consistent": not self.findings,
            "signed": self.signed,
            "recomputed": self.recomputed,
            "rerun": self.rerun,
            "cases": self.total,
            "kernels": list(self.kernels),
            "without": list(self.without),
            "unexplained": self.unexplained,
            "verified_items": list(self.verified),
            "changed_tree": self.is_changed,
        }

    def below(self, committed: object) -> list[str]:
        """Return a sentence for each part in which this level is below a committed one, which document() wrote.

        ValueError if that is not a level.
        """
        wanted = _checked(committed)
        found = []
        if wanted["consistent"] and self.findings:
            found.append(f"it has findings in item {', '.join(map(str, self.findings))}")
        if wanted["signed"] not in ("unsigned", self.signed):
            found.append(f"it was {wanted['signed']}, and is {self.signed}")
        if self.is_changed and not wanted["changed_tree"]:
            found.append("it is of a tree with changes that its commit lacks")
        if self.recomputed < wanted["recomputed"]:
            found.append(
                f"{self.recomputed} of {self.total} recomputed, the committed level has {wanted['recomputed']}"
            )
        if self.rerun < wanted["rerun"]:
            found.append(f"{counted(self.rerun, 'case')} run again, the committed level has {wanted['rerun']}")
        if self.total < wanted["cases"]:
            found.append(f"{counted(self.total, 'case')} with data, the committed level has {wanted['cases']}")
        if gone := sorted(set(wanted["kernels"]) - set(wanted["without"]) - (set(self.kernels) - set(self.without))):
            found.append(f"nothing recomputed of {listed(gone)}")
        if self.unexplained > wanted["unexplained"]:
            found.append(f"{counted(self.unexplained, 'case')} came out differently, by code that changed since")
        if lost := sorted(set(wanted["verified_items"]) - set(self.verified)):
            found.append(f"item {', '.join(map(str, lost))} has nothing VERIFIED any more")
        return found


_KINDS: dict[str, tuple[type, ...]] = {
    "consistent": (bool,),
    "signed": (str,),
    "recomputed": (int,),
    "rerun": (int,),
    "cases": (int,),
    "kernels": (list,),
    "without": (list,),
    "unexplained": (int,),
    "verified_items": (list,),
    "changed_tree": (bool,),
}

_LATER = {"changed_tree": False}
"""What levels lack that were written before there was the key."""


def _checked(document: object) -> dict[str, Any]:
    """Return a level's document. Raises ValueError if it is not one."""
    document = {**_LATER, **document} if isinstance(document, dict) else document
    is_level = (
        isinstance(document, dict)
        and set(document) == set(_KINDS)
        and all(isinstance(document[key], kind) for key, kind in _KINDS.items())
        and all(isinstance(name, str) for key in ("kernels", "without") for name in document[key])
        and all(isinstance(number, int) for number in document["verified_items"])
    )
    if not isinstance(document, dict) or not is_level:
        raise ValueError(f"not a level: give {', '.join(_KINDS)}")
    return document


def level_of(
    items: Sequence[Item],
    again: Mapping[str, Any] | None,
    signed: str,
    is_changed: bool = False,
    has_times: bool = False,
    not_run: int = 0,
) -> Level:
    """Return the level of a set. again: the worker's answer; None if it gave none. The others: see Level."""
    rerun = (again or {}).get("rerun") or {"agree": [], "of": 0, "kernels": [], "not_comparable": []}
    seen = {kernel for _, kernel, how in rerun["agree"] if how != "status"}
    return Level(
        recomputed=len(rerun["agree"]),
        total=int(rerun["of"]),
        rerun=sum(how != "reference" for _, _, how in rerun["agree"]),
        ended=sum(how == "status" for _, _, how in rerun["agree"]),
        kernels=tuple(rerun["kernels"]),
        without=tuple(name for name in rerun["kernels"] if name not in seen),
        unexplained=len(rerun["not_comparable"]),
        verified=numbers(items, Outcome.VERIFIED),
        findings=numbers(items, Outcome.FINDING),
        signed=signed,
        is_changed=is_changed,
        has_times=has_times,
        not_run=not_run,
    )


def numbers(items: Sequence[Item], outcome: Outcome) -> tuple[int, ...]:
    """Return the numbers of the items that have a point with an outcome."""
    return tuple(item.number for item in items if any(point.outcome is outcome for point in item.points))
