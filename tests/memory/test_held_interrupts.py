"""Signals wait while steps run that an exception must not cut through; a second one does as its handler says."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from kernels.sources import ROOT
from memory.held_interrupts import held_interrupts, uninterrupted


@pytest.fixture(autouse=True)
def usual_handlers():
    """What a shell in a terminal gives a command, however these tests were started."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press(seen, times=1):
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
        seen.append("went on")


def press_and_fail():
    press([])
    raise ValueError("the compiler's own error")


@pytest.mark.parametrize(("times", "told"), [(1, ["went on"]), (2, ["went on", "SIGINT", "went on"])])
def test_a_signal_waits_until_the_steps_have_ended_and_a_second_is_told_at_once(times, told):
    seen = []
    with (
        pytest.raises(KeyboardInterrupt),
        held_interrupts(lambda handler, number: seen.append(signal.Signals(number).name)),
    ):
        press(seen, times)
    assert seen == told
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_steps_that_fail_lose_no_signal():
    with pytest.raises(KeyboardInterrupt) as caught, uninterrupted():
        press_and_fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_a_handler_that_is_left_behind_acts_at_once():
    """An interrupt that comes while handlers are put back can leave one of them in place."""
    with uninterrupted():
        held = signal.getsignal(signal.SIGINT)
    assert callable(held)
    with pytest.raises(KeyboardInterrupt):
        held(signal.SIGINT, None)


def test_a_signal_without_a_handler_of_pythons_keeps_its_effect():
    with uninterrupted():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler


def test_a_thread_changes_nothing():
    seen = []

    def work():
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_in_a_process_that_goes_on_each_signal_waits():
    """A notebook's kernel is not ended by an impatient user."""
    seen = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        press(seen, 3)
    assert seen == ["went on"] * 3


COMMAND = """
import os, signal, sys
from memory.held_interrupts import uninterrupted
from runner.interrupt import interruptible
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with interruptible(), uninterrupted():
    for number in sys.argv[1:]:
        os.kill(os.getpid(), int(number))
        print("went on", flush=True)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_second_signal_ends_a_command_at_once(number, code):
    command = [sys.executable, "-c", COMMAND, *[str(number.value)] * 3]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "went on\n", "")
