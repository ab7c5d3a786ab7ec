"""What came of recorded cases that ran again: of their data, code, counters and races."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from reports.table.text import counted
from symlab.evidence.audit.items import Ground, Outcome, Point, Tally
from symlab.evidence.audit.level import Recomputed


@dataclass(slots=True)
class Found:
    """What came of a case, or of all: of its data, or how it ended, each that agrees with its kernel and "simulator",
    "reference" or "status"; of the kernel's code; of the simulator's counters; of the race checker's findings."""

    data: Tally = field(default_factory=Tally)
    code: Tally = field(default_factory=Tally)
    counters: Tally = field(default_factory=Tally)
    races: Tally = field(default_factory=Tally)

    def add(self, other: Found) -> None:
        """Add what came of another case."""
        for one in fields(Found):
            getattr(self, one.name).add(getattr(other, one.name))


@dataclass(frozen=True, slots=True)
class RerunResults:
    """What came of cases that ran again. of: number of cases with a check, and of simulated ones without; kernels:
    names of those that ran cases with a check; at_commit: number of cases that ran by the code of their commit."""

    parts: Found
    seed: int
    of: int
    kernels: list[str]
    at_commit: int = 0

    def data(self) -> Iterator[Point]:
        """Yield how the data of the set compares with that which was made again."""
        data = self.parts.data
        ways = {
            "simulator": f"in the simulator (seed {self.seed})",
            "reference": "by the reference",
            "status": "in how they ended",
        }
        numbers = {text: sum(one[2] == way for one in data.agree) for way, text in ways.items()}
        how = ", ".join(f"{number:,} {text}" for text, number in numbers.items() if number)
        for one in data.points(f"cases recomputed ({how})" if how else "cases recomputed"):
            yield replace(one, share=(one.share[0], self.of) if one.share else None)
        yield from data.reasons(f"data of {counted(len(data.stated), 'case')}")

    def ran(self) -> Iterator[Point]:
        """Yield how many cases ran again here from the records alone."""
        ran = sum(how == "simulator" for *_, how in self.parts.data.agree)
        for number, how in (
            (ran, f"from the records alone (seed {self.seed})"),
            (self.at_commit, "by their commit's code"),
        ):
            if number:
                says = f"{counted(number, 'case')} run again here {how}"
                yield Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (number, self.of))

    def part(self, tally: Tally, what: str) -> Iterator[Point]:
        """Yield the points of what was compiled, counted or found when cases ran again."""
        yield from tally.points(f"{what} of cases that ran again")
        yield from tally.reasons(f"{what} of {counted(len(tally.stated), 'record')}")

    def level(self) -> Recomputed:
        """Return how much was recomputed."""
        agree = self.parts.data.agree
        seen = {kernel for _, kernel, how in agree if how != "status"}
        return Recomputed(
            recomputed=len(agree),
            total=self.of,
            ended=sum(how == "status" for *_, how in agree),
            kernels=self.kernels,
            without=[name for name in self.kernels if name not in seen],
            unexplained=len(self.parts.data.unsure),
        )
