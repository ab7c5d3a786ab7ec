"""The checker finds a race in one run of a program, in the fair order, just where the judge says that its executions have
one, on programs of message passing by seed."""

from dataclasses import dataclass

import pytest

from simulator.world import SimulatorOptions
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed
from symlab.checks.trials.races import run
from tests.museum.ways import WAYS
from tests.symlab.checks.litmus.messages import message

HEAP_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the judge says of the program of a seed (whether it has a race), and what the checker finds in it."""

    seed: int
    judge: bool
    findings: tuple[str, ...]

    @property
    def agrees(self):
        """Return whether they say the same."""
        return self.judge == bool(self.findings)


def verdicts(seed):
    """Judge the program of a seed, and run it once under the checker."""
    program = parsed(message(seed), str(seed))
    has_race = any(one.has_race for one in judged(program, is_explained=False).allowed)
    found = run(program, SimulatorOptions(heap_bytes=HEAP_BYTES, **WAYS["races"].options)).findings
    sentences = tuple(one.sentence() for one in found if one.severity != "advisory")
    return Verdicts(seed, has_race, sentences)


@pytest.mark.parametrize(
    "seeds",
    [range(first, first + 5) for first in range(2_000, 2_080, 5)]
    + [pytest.param(range(2_000), marks=pytest.mark.slow)],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop}",
)
def test_judge_and_checker_agree(seeds):
    assert [one for one in map(verdicts, seeds) if not one.agrees] == []
