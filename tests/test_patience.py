"""Waits of tests end with what they wait for, and name what did not happen."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

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


@pytest.mark.parametrize(("share", "ends_after", "waits"), [(0.5, 4, 4), (0.5, 9, 5), (0.001, 1, 1), (0.001, 2, 1)])
def test_a_thread_is_waited_for_while_the_process_works_and_else_named(monkeypatch, share, ends_after, waits):
    """share: of each wait, that the process works. ends_after: the number of waits that the thread takes."""
    waited_s = []
    monkeypatch.setattr("tests.patience.time.process_time", lambda: 100 + share * sum(waited_s))
    thread = SimpleNamespace(join=waited_s.append, is_alive=lambda: len(waited_s) < ends_after)
    ends = contextlib.nullcontext() if ends_after <= waits else pytest.raises(AssertionError, match="rank 1 hangs")
    with ends:
        patience.joined(thread, "rank 1")
    assert waited_s == [patience.PATIENCE_S] * waits


def test_a_thread_that_ends_at_once_is_joined():
    thread = threading.Thread(target=int)
    thread.start()
    patience.joined(thread)
    assert not thread.is_alive()


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
