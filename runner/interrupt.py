"""Ctrl-C and SIGTERM as exceptions in the main thread, so that everything is closed on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130


class Interrupted(KeyboardInterrupt):
    """The user, or whoever manages this process, wants it to end. exit_code is the shell's: 128 + the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} received")
        self.exit_code = 128 + number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, SIGINT and SIGTERM raise Interrupted, each time they come. Outside the main thread: nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    wanted = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in wanted]
    try:
        yield
    finally:
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


def exit_code_of(error: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 143 for SIGTERM."""
    return error.exit_code if isinstance(error, Interrupted) else EXIT_INTERRUPTED
