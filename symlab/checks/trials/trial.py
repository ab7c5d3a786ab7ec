"""A litmus program under the judge and on the machine: what was seen, beside what is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from memory.fabric import FabricError
from symlab.checks.litmus.compile import NotCompiled
from symlab.checks.litmus.outcomes import Judgement, judged
from symlab.checks.litmus.program import Program
from symlab.checks.litmus.report import Column
from symlab.checks.trials.machine import State, machine_of


@dataclass(frozen=True, slots=True)
class Trial:
    """A judgement, and how often each final state came. refusal: why it did not run on the machine, "" if it did."""

    judgement: Judgement
    counts: Counter[State]
    refusal: str = ""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.counts.total()

    @property
    def forbidden(self) -> list[State]:
        """The states that were seen and that the model forbids."""
        allowed = {(one.values, one.blocked) for one in self.judgement.allowed}
        return [state for state in self.counts if state not in allowed]

    @property
    def unseen(self) -> list[State]:
        """The states that the model allows without a late load, and that were not seen."""
        return [
            (one.values, one.blocked)
            for one in self.judgement.allowed
            if not one.needs_late_load and (one.values, one.blocked) not in self.counts
        ]

    def column(self) -> Column:
        """Return the counts as a column of the judge's table."""
        cells = {(one.values, one.blocked): "0" for one in self.judgement.outcomes}
        cells |= {state: str(count) for state, count in self.counts.items()}
        late = "needs a late load"
        return Column(
            "seen",
            cells,
            {(one.values, one.blocked): late for one in self.judgement.allowed if one.needs_late_load},
        )

    def remark(self) -> str:
        """Return one line about the runs."""
        if self.refusal:
            return f"not run on the machine: {self.refusal}"
        runs = f"{self.runs} run{'s' * (self.runs != 1)} on the machine with weak memory"
        wrong = f"; FORBIDDEN STATES SEEN: {len(self.forbidden)}" if self.forbidden else ""
        return f"{runs}: {len(self.counts)} state{'s' * (len(self.counts) != 1)} seen{wrong}"


def tried(program: Program, seeds: Iterable[int], judgement: Judgement | None = None) -> Trial:
    """Return what the judge says of a program, and what runs of it showed, one for each seed."""
    found = judgement or judged(program)
    try:
        return Trial(found, machine_of(program).states(seeds))
    except (NotCompiled, FabricError) as error:
        return Trial(found, Counter(), str(error))
