"""Signals become exceptions; shielded steps end first; an ignored SIGHUP stays ignored."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from runner.interrupt import Interrupted, interruptible, shielded

ENDING = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """What a shell in a terminal gives a command, however these tests were started."""
    before = {number: signal.getsignal(number) for number, _ in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_a_signal_is_an_exception_with_the_code_of_shells(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=number.name) as caught, interruptible():
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before


def ends_with(steps: list[str], *signals: signal.Signals) -> Interrupted:
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


@pytest.mark.parametrize(("number", "code"), ENDING)
def test_steps_that_belong_together_end_first(number: signal.Signals, code: int) -> None:
    steps: list[str] = []
    assert ends_with(steps, number).exit_code == code
    assert steps == [number.name]


def test_a_second_signal_does_not_wait() -> None:
    steps: list[str] = []
    ends_with(steps, signal.SIGTERM, signal.SIGTERM, signal.SIGTERM)
    assert steps == ["SIGTERM"]


def test_an_ignored_hangup_stays_ignored_and_others_are_shielded() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    steps: list[str] = []
    assert ends_with(steps, signal.SIGHUP, signal.SIGTERM).exit_code == 143
    assert steps == ["SIGHUP", "SIGTERM"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
