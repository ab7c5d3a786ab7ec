"""Waits of tests end with what they wait for, and name what did not happen."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tests import patience
from tests.patience import until, within


def test_a_wait_ends_when_it_holds():
    answers = iter([False, False, True])
    until(lambda: next(answers))
    assert list(answers) == []


def test_what_never_happens_is_named(monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    with pytest.raises(AssertionError, match="the worker's start did not happen in 0 s"):
        until(lambda: False, "the worker's start")


def test_a_thread_that_works_is_waited_for_and_one_that_hangs_is_named(monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE_S", 0.05)
    works = threading.Thread(target=lambda: any(number < 0 for number in range(5_000_000)), daemon=True)
    works.start()
    patience.joined(works)
    never = threading.Event()
    hangs = threading.Thread(target=never.wait, daemon=True)
    hangs.start()
    with pytest.raises(AssertionError, match="rank 1 hangs"):
        patience.joined(hangs, "rank 1")
    never.set()


def test_a_block_that_waited_for_its_deadline_is_found(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tests.patience.time.monotonic", lambda: clock[0])
    with within():
        clock[0] += patience.PATIENCE_S - 1
    with pytest.raises(AssertionError, match=r"this took \d+ s, more than \d+ s"), within():
        clock[0] += patience.NEVER_S


def test_a_busy_machine_can_be_given_more_time():
    code = "from tests.patience import *; print(PATIENCE_S, NEVER_S)"
    environment = {**os.environ, "SYMLAB_TEST_PATIENCE": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["360.0", "1800.0"]


def test_a_clock_of_a_test_goes_until_it_is_to_be_late():
    clock = patience.Clock()
    began = clock.monotonic()
    assert clock.monotonic() - began < patience.PATIENCE_S
    clock.skip()
    assert clock.monotonic() - began > patience.NEVER_S
    looked = patience.Clock(looks=2)
    assert looked.monotonic() - began < patience.PATIENCE_S
    assert looked.monotonic() - began < patience.PATIENCE_S
    assert looked.monotonic() - began > patience.NEVER_S
    assert clock.sleep is time.sleep, "all else is the module's"


def test_ctrl_c_comes_when_it_holds_and_never_after_the_block():
    begun, pressed = threading.Event(), list[str]()
    with patience.pressed(begun.is_set, lambda: pressed.append("pressed")):
        begun.set()
        until(lambda: pressed)
    with patience.pressed(lambda: False, lambda: pressed.append("too late")):
        pass
    threads = threading.active_count()
    begun.clear()
    with patience.pressed(begun.is_set, lambda: pressed.append("too late")):
        assert threading.active_count() == threads + 1
    begun.set()
    assert threading.active_count() == threads
    assert pressed == ["pressed"]
