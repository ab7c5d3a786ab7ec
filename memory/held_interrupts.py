"""Hold SIGINT, SIGTERM and SIGHUP back while steps run that an exception must not cut through. In the lowest room
because kernels hold them back while the compiler works, and the runner while it keeps a record or imports libraries.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a command: SIGHUP not if it is ignored, as it is under nohup."""
    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_hangup_ignored else [signal.SIGHUP])]


@contextmanager
def held_interrupts(again: Callable[[Handler, int], Any]) -> Iterator[None]:
    """Within, a first signal that has a handler of Python's waits: the handler is called at the end, even if the steps
    raise, so that their error is the context of its exception.

    A second signal calls again(handler, number) at once. A signal with no handler of Python's keeps its effect. Outside
    the main thread, where no handler runs, nothing changes.
    """
    found = {number: signal.getsignal(number) for number in ending_signals()}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread() or not handlers:
        yield
        return

    waiting: list[int] = []
    is_over = False

    def hold(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if is_over:  # it came between the last step and the return of its handler
            handler(number, frame)
            return
        waiting.append(number)
        if len(waiting) > 1:
            again(handler, number)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        is_over = True
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if waiting:
            handlers[signal.Signals(waiting[0])](waiting[0], None)


def uninterrupted() -> AbstractContextManager[None]:
    """Hold signals back from code of others that an exception must not pass through: the compiler aborts the process
    then, and an import can lose the exception and leave a module half made.

    A second signal ends a command's process at once, through end_process(number) of its handler. In other processes,
    such as a notebook's, each waits.
    """

    def again(handler: Handler, number: int) -> None:
        if end_process := getattr(handler, "end_process", None):
            end_process(number)

    return held_interrupts(again)
