"""Two sticky states of a GPU's clock are named as such, and not as change points."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cases.record.record import Record
from symlab.evidence.history.changes import ALPHA
from symlab.evidence.history.history import History, history
from tests.symlab.evidence.history.history_sets import COMMITS, world

CLOCKS = (1755, 1980)


def clocked(at: int, us: float, clock_mhz: int, commit: str) -> Record:
    state = {"sm_mhz": clock_mhz}
    return world(at, us, commit, "2.28.9", timing={"devices": ({"before": state, "after": state},) * 4})


def sticky(draw: random.Random, count: int, stays: float, step: float = 1.0) -> list[Record]:
    """Worlds whose GPU stays in its state with this probability; from the middle on by other code, slower by step."""
    fast, made = draw.random() < 0.5, []
    for at in range(count):
        fast = fast if draw.random() < stays else not fast
        us = 10 * (1 if fast else 1.1) * (1 + draw.gauss(0, 0.004)) * (step if at >= count // 2 else 1)
        made.append(clocked(at, us, CLOCKS[fast], COMMITS[at >= count // 2]))
    return made


def told(records: list[Record]) -> History:
    return history(records, 0.02)


@pytest.mark.parametrize(("count", "stays"), [(20, 0.85), (20, 0.95), (40, 0.85), (40, 0.95)])
def test_two_sticky_states_make_few_change_points(count: int, stays: float) -> None:
    draw = random.Random(20261127)
    trials = 40
    assert sum(bool(told(sticky(draw, count, stays)).told[0].changes) for _ in range(trials)) / trials < ALPHA


def test_the_states_are_named_and_a_change_beside_them_is_found() -> None:
    draw = random.Random(3)
    found: Any = told(sticky(draw, 40, 0.7, step=1.3))
    (one,) = found.told
    assert one.states is not None
    assert [abs(change.at - 20) <= 1 for change in one.changes] == [True]
    assert "two states of the machine (SM clock 1755 and 1980 MHz)" in one.times_text
    assert "two states of the machine in 1 case" in found.verdict
