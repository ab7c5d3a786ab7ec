"""Waits of tests end with what they wait for, and name what did not happen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import patience
from tests.patience import until, within


def test_a_wait_ends_when_it_holds() -> None:
    answers = iter([False, False, True])
    until(lambda: next(answers))
    assert list(answers) == []


def test_what_never_happens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    with pytest.raises(AssertionError, match="the worker's start did not happen in 0 s"):
        until(lambda: False, "the worker's start")


def test_a_block_that_waited_for_its_deadline_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("tests.patience.time.monotonic", lambda: clock[0])
    with within():
        clock[0] += patience.PATIENCE_S - 1
    with pytest.raises(AssertionError, match=r"this took \d+ s, more than \d+ s"), within():
        clock[0] += patience.NEVER_S


def test_a_busy_machine_can_be_given_more_time() -> None:
    code = "from tests.patience import *; print(PATIENCE_S, NEVER_S)"
    environment = {**os.environ, "SYMLAB_TEST_PATIENCE": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["360.0", "1800.0"]
