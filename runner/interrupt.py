"""Ctrl-C, SIGTERM and SIGHUP as exceptions in the main thread, so that everything is closed on the way out."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from memory.held_interrupts import ending_signals, held_interrupts

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


class _Raising:
    """The handler of a command's signals: it raises Interrupted.

    Python drops an exception that comes up in a finalizer, a callback of fork() or a callback of C, and goes on. Such a
    signal is sent once more a little later, and does not count twice.
    """

    def __init__(self) -> None:
        self._times = 0
        self._dropped: list[int] = []
        self._is_over = False
        self._lock = _thread.allocate_lock()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number in self._dropped:
            self._dropped.remove(number)
        else:
            self._times += 1
        raise Interrupted(number, self._times)

    def send_again(self, number: int) -> None:
        """Send a signal again whose exception was dropped. Called where it was dropped, so that it returns at once."""
        self._dropped.append(number)
        main = threading.main_thread().ident
        assert main is not None

        def send() -> None:
            time.sleep(SENT_AGAIN_AFTER_S)
            with self._lock:
                if not self._is_over:
                    signal.pthread_kill(main, number)

        _thread.start_new_thread(send, ())  # a Thread waits for a lock that the code underneath may have

    def end(self) -> None:
        """From now on send nothing again: the signals have other handlers."""
        with self._lock:
            self._is_over = True

    def end_process(self, number: int) -> None:
        """End the process at once with the signal's exit code, for code that no exception may pass through."""
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                if os.isatty(descriptor):
                    os.write(descriptor, _SHOW_CURSOR)  # the progress bar hides it
        os._exit(128 + number)


SENT_AGAIN_AFTER_S = 0.01
"""When a signal whose exception was dropped is sent again: later than what dropped it ends, as a rule."""

_SHOW_CURSOR = b"\x1b[?25h\n"


@contextmanager
def interruptible() -> Iterator[None]:
    """Within, SIGINT, SIGTERM and SIGHUP (a closed terminal) raise Interrupted, each time they come.

    Also one whose exception Python drops on its way, as those of finalizers: it is raised again from other code. Under
    nohup SIGHUP stays ignored. Outside the main thread: nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    handle = _Raising()
    wanted = ending_signals()
    report = sys.unraisablehook

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, Interrupted):
            handle.send_again(unraisable.exc_value.exit_code - 128)
        else:
            report(unraisable)

    before = [signal.signal(number, handle) for number in wanted]
    sys.unraisablehook = dropped
    try:
        yield
    finally:
        sys.unraisablehook = report
        handle.end()
        for number, handler in zip(wanted, before, strict=True):
            signal.signal(number, handler)


def shielded() -> AbstractContextManager[None]:
    """Within, a first SIGINT, SIGTERM or SIGHUP waits until the end, for steps that belong together; a second does not.

    Outside the main thread, or where a handler is not Python's, nothing changes. An ignored SIGHUP stays ignored.
    """
    return held_interrupts(lambda handler, number: handler(number, None))


def is_first(error: KeyboardInterrupt) -> bool:
    """Return whether this is the first interrupt."""
    return not isinstance(error, Interrupted) or error.times == 1


def name_of(error: KeyboardInterrupt) -> str:
    """Return the signal's name: SIGINT, SIGTERM or SIGHUP."""
    return signal.Signals(exit_code_of(error) - 128).name


def exit_code_of(error: KeyboardInterrupt) -> int:
    """Return 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return error.exit_code if isinstance(error, Interrupted) else EXIT_INTERRUPTED
