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
    """The user, or whoever manages this process, wants it to end: said for the times-th time.

    exit_code is the shell's: 128 + the signal. times counts, because a later one may come while an earlier one is on
    its way up, and takes its place.
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

    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    before = [signal.signal(number, handle) for number in wanted]
    try:
        yield
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Within, a first SIGINT or SIGTERM waits until the end, for steps that belong together; a second does not.

    Outside the main thread, or where handlers are not Python's: nothing.
    """
    wanted = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in wanted}
    if threading.current_thread() is not threading.main_thread() or not all(map(callable, handlers.values())):
        yield
        return

    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if waiting:
            _call(handlers[signal.Signals(number)], number, frame)
        waiting.append(number)

    try:
        for number in wanted:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        _call(handlers[signal.Signals(waiting[0])], waiting[0], None)


def _call(handler: Callable[[int, FrameType | None], Any] | int | None, number: int, frame: FrameType | None) -> None:
    assert callable(handler)
    handler(number, frame)


def is_first(error: KeyboardInterrupt) -> bool:
    """Nobody has asked before."""
    return not isinstance(error, Interrupted) or error.times == 1


def name_of(error: KeyboardInterrupt) -> str:
    """SIGINT or SIGTERM."""
    return signal.Signals(exit_code_of(error) - 128).name


def exit_code_of(error: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return error.exit_code if isinstance(error, Interrupted) else EXIT_INTERRUPTED
