"""Programs of message passing that are drawn: what the judge says of them, and that they are of all kinds."""

from collections import Counter

import pytest

from symlab.checks.litmus.outcomes import judged
from symlab.checks.litmus.parse import parsed
from tests.symlab.checks.litmus.messages import SHAPES, message

SEEDS = range(120)


@pytest.fixture(scope="module")
def judgements():
    return {seed: judged(parsed(message(seed), str(seed)), is_explained=False) for seed in SEEDS}


def _shape(seed):
    return message(seed).split(": ")[1].split(",")[0]


@pytest.mark.slow
def test_all_executions_of_a_program_race_or_none(judgements):
    """So one run can show which."""
    for seed, found in judgements.items():
        assert len({one.has_race for one in found.allowed}) == 1, message(seed)
        assert found.mixed_race is None


@pytest.mark.slow
def test_each_shape_has_programs_with_and_without_a_race(judgements):
    counts = Counter((_shape(seed), found.allowed[0].has_race) for seed, found in judgements.items())
    assert all(counts[shape, has_race] >= 2 for shape in SHAPES for has_race in (False, True)), counts


def test_a_program_without_a_race_keeps_its_condition_unless_its_data_are_strong(judgements):
    """What the condition forbids is a stale access of the data, which is a race of weak ones."""
    for seed, found in judgements.items():
        (condition,) = found.program.conditions
        is_strong = any(
            f"{kind}.relaxed" in line and "[x" in line for kind in ("ld", "st") for line in message(seed).splitlines()
        )
        assert found.holds(condition) or found.allowed[0].has_race or is_strong, message(seed)
