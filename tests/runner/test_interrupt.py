"""Signals become exceptions, also where Python drops them; shielded steps end first; an ignored SIGHUP is left so."""

import os
import signal
import sys
import time

import pytest

from runner.interrupt import SENT_AGAIN_AFTER_S, Interrupted, interruptible, shielded
from tests.memory.test_held_interrupts import usual_handlers as usual_handlers
from tests.patience import NEVER_S

ENDING = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_a_signal_is_an_exception_with_the_code_of_shells(number, code):
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=number.name) as caught, interruptible():
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before
    steps = []
    assert ends_with(steps, number).exit_code == code
    assert steps == [number.name], "steps that belong together end first"


def ends_with(steps, *signals):
    """Send signals within shielded steps, with a step after each, and return the exception that comes of them."""
    try:
        with interruptible():
            with shielded():
                for number in signals:
                    os.kill(os.getpid(), number)
                    steps.append(number.name)
            steps.append("after")
    except Interrupted as error:
        return error
    raise AssertionError(f"no exception came: {steps}")


def test_a_second_signal_does_not_wait():
    steps = []
    ends_with(steps, signal.SIGTERM, signal.SIGTERM, signal.SIGTERM)
    assert steps == ["SIGTERM"]


def test_an_ignored_hangup_stays_ignored_and_others_are_shielded():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    steps = []
    assert ends_with(steps, signal.SIGHUP, signal.SIGTERM).exit_code == 143
    assert steps == ["SIGHUP", "SIGTERM"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


class Signalled:
    """Its finalizer gets a signal, and Python drops the exceptions of finalizers."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)


def gets_and_sleeps(number):
    Signalled(number)
    time.sleep(NEVER_S)


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_an_exception_that_python_drops_comes_again(number, code):
    with pytest.raises(Interrupted) as caught, interruptible():
        gets_and_sleeps(number)
    assert (caught.value.exit_code, caught.value.times) == (code, 1)


def test_one_that_is_dropped_waits_for_shielded_steps(monkeypatch):
    monkeypatch.setattr("runner.interrupt.SENT_AGAIN_AFTER_S", 0.5)
    steps = []

    def work():
        Signalled(signal.SIGTERM)
        with shielded():
            time.sleep(2)
            steps.append("ended")

    with pytest.raises(Interrupted) as caught, interruptible():
        work()
    assert (steps, caught.value.times) == (["ended"], 1)


def test_a_signal_after_one_that_was_dropped_is_the_second():
    with interruptible():
        with pytest.raises(Interrupted):
            gets_and_sleeps(signal.SIGTERM)
        with pytest.raises(Interrupted) as second:
            os.kill(os.getpid(), signal.SIGTERM)
    assert second.value.times == 2


def test_what_others_drop_is_reported_as_before_and_nothing_comes_after_the_end(monkeypatch):
    class Broken:
        def __del__(self):
            raise OSError("not ours")

    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: said.append(str(found.exc_value)))
    before = sys.unraisablehook
    with interruptible():
        Broken()
        Signalled(signal.SIGTERM)
    assert said == ["not ours"]
    assert sys.unraisablehook is before
    came = []
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    time.sleep(20 * SENT_AGAIN_AFTER_S)
    assert came == []
