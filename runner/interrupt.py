"""Ctrl-C, SIGTERM and SIGHUP as exceptions in the main thread, so that everything is closed on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_INTERRUPTED = 130


class Interrupted(KeyboardInterrupt):
    """The user, or the system that manages this process, asks it to end.

    exit_code is the shell's: 128 + the signal. times counts the requests: a later exception may replace an earlier
    one that is still on its way up.
    """

    def __init__(self, number: int, times: int = 1) -> None:
        super().__init__(f"{signal.Signals(number).name} received")
        self.exit_code = 128 + number
        self.times = times


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, SIGINT, SIGTERM and SIGHUP (a closed terminal) raise Interrupted, each time they come.

    Under nohup SIGHUP stays ignored. Outside the main thread: nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    times = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        raise Interrupted(number, times)

    wanted = _caught()
    before = [signal.signal(number, handle) for number in wanted]
    try:
        yield
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Within, a first SIGINT, SIGTERM or SIGHUP waits until the end, for steps that belong together; a second does not.

    Outside the main thread, or where a handler is not Python's, nothing changes. An ignored SIGHUP stays ignored.
    """
    handlers = {number: signal.getsignal(number) for number in _caught()}
    if threading.current_thread() is not threading.main_thread() or not all(map(callable, handlers.values())):
        yield
        return

    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if waiting:
            _call(handlers[signal.Signals(number)], number, frame)
        waiting.append(number)

    try:
        for number in handlers:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        _call(handlers[signal.Signals(waiting[0])], waiting[0], None)


def _caught() -> list[signal.Signals]:
    """Return the signals that end a command: SIGHUP not if it is ignored, as it is under nohup."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_hangup_ignored else [signal.SIGHUP])]


def _call(handler: Callable[[int, FrameType | None], Any] | int | None, number: int, frame: FrameType | None) -> None:
    assert callable(handler)
    handler(number, frame)


def is_first(error: KeyboardInterrupt) -> bool:
    """Return whether this is the first interrupt."""
    return not isinstance(error, Interrupted) or error.times == 1


def name_of(error: KeyboardInterrupt) -> str:
    """Return the signal's name: SIGINT, SIGTERM or SIGHUP."""
    return signal.Signals(exit_code_of(error) - 128).name


def exit_code_of(error: KeyboardInterrupt) -> int:
    """Return 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return error.exit_code if isinstance(error, Interrupted) else EXIT_INTERRUPTED
