"""Two sticky states of a GPU's clock are named as such, and not as change points."""

import random

import pytest

from symlab.evidence.history.changes import ALPHA
from symlab.evidence.history.history import history
from tests.symlab.evidence.history.history_sets import COMMITS, world

CLOCKS = (1755, 1980)


def clocked(at, us, clock_mhz, commit):
    state = {"sm_mhz": clock_mhz}
    return world(at, us, commit, "2.28.9", timing={"devices": ({"before": state, "after": state},) * 4})


def sticky(draw, count, stays, step=1.0):
    """Worlds whose GPU stays in its state with this probability; from the middle on by other code, slower by step."""
    fast, made = draw.random() < 0.5, []
    for at in range(count):
        fast = fast if draw.random() < stays else not fast
        us = 10 * (1 if fast else 1.1) * (1 + draw.gauss(0, 0.004)) * (step if at >= count // 2 else 1)
        made.append(clocked(at, us, CLOCKS[fast], COMMITS[at >= count // 2]))
    return made


def told(records):
    return history(records, 0.02)


@pytest.mark.parametrize(("count", "stays"), [(20, 0.85), (20, 0.95), (40, 0.85), (40, 0.95)])
def test_two_sticky_states_make_few_change_points(count, stays):
    draw = random.Random(20261127)
    trials = 40
    assert sum(bool(told(sticky(draw, count, stays)).told[0].changes) for _ in range(trials)) / trials < ALPHA


def test_the_states_are_named_and_a_change_beside_them_is_found():
    draw = random.Random(3)
    found = told(sticky(draw, 40, 0.7, step=1.3))
    (one,) = found.told
    assert [abs(change.at - 20) <= 1 for change in one.changes] == [True]
    assert "two states of the machine (SM clock 1755 and 1980 MHz)" in one.times_text
    assert "two states of the machine in 1 case" in found.verdict
