"""The checker finds a race in one run of a program, in the fair order, just where the judge says that its executions have
one, on programs of message passing by seed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from simulator.world import SimulatorOptions
from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed
from symlab.checks.trials.races import run
from tests.museum.ways import WAYS
from tests.symlab.checks.litmus.messages import SHAPES, message

HEAP_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the judge says of the program of a seed (whether it has a race), and what the checker finds in it."""

    seed: int
    shape: str
    judge: bool
    findings: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Return whether they say the same."""
        return self.judge == bool(self.findings)


def verdicts(seed: int) -> Verdicts:
    """Judge the program of a seed, and run it once under the checker."""
    text = message(seed)
    program = parsed(text, str(seed))
    has_race = any(one.has_race for one in judged(program, is_explained=False).allowed)
    found = run(program, SimulatorOptions(heap_bytes=HEAP_BYTES, **WAYS["races"].options)).findings
    sentences = tuple(one.sentence() for one in found if one.severity != "advisory")
    return Verdicts(seed, text.split(": ")[1].split(",")[0], has_race, sentences)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2_000, 2_090), range(2_000)], ids=["sample", "all"])
def test_judge_and_checker_agree(seeds: range) -> None:
    found = [verdicts(seed) for seed in seeds]
    assert [one for one in found if not one.agrees] == []
    assert {one.shape for one in found} == set(SHAPES)
