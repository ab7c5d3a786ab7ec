"""How long tests wait for what must happen, and no test asserts that something is fast.

A wait ends when what it waits for happens, so its limit costs nothing where all is well: it only says when a test gives
up on something that hangs. The limit is therefore generous, so that no busy machine reaches it. On one that does,
SYMLAB_TEST_PATIENCE=3 makes all limits three times as long. Speed is measured by tests/benchmarks.
"""

import contextlib
import os
import signal
import threading
import time

PATIENCE_S = 120.0 * float(os.environ.get("SYMLAB_TEST_PATIENCE", "1"))
"""After this time a test takes what it waits for to hang."""

NEVER_S = 5 * PATIENCE_S
"""The deadline to give what must end for another reason: `within` tells the two apart."""

SOON_S = 0.2
"""The deadline to give what never ends and has no one else to be blamed: it may pass before anything has begun."""

LOOK_S = 0.02


def until(holds, what="it"):
    """Wait until holds() is true. Raises AssertionError naming what did not happen, after PATIENCE_S."""
    ends_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > ends_s:
            raise AssertionError(f"{what} did not happen in {PATIENCE_S:.0f} s")
        with contextlib.suppress(InterruptedError):
            time.sleep(LOOK_S)


def joined(thread, what="it"):
    """Wait for a thread's end. Raises AssertionError naming what hangs, after PATIENCE_S in which this process hardly
    worked, and at last after NEVER_S: a simulation that still works on a busy machine does not hang."""
    for _ in range(5):
        worked_s = time.process_time()
        thread.join(PATIENCE_S)
        if not thread.is_alive():
            return
        if time.process_time() - worked_s < PATIENCE_S / 100:
            break
    raise AssertionError(f"{what} hangs")


@contextlib.contextmanager
def within():
    """Raise AssertionError if the block ends by itself, but only after PATIENCE_S: it waited for its own deadline."""
    began_s = time.monotonic()
    yield
    took_s = time.monotonic() - began_s
    if took_s > PATIENCE_S:
        raise AssertionError(f"this took {took_s:.0f} s, more than {PATIENCE_S:.0f} s: it waited for its deadline")


class Clock:
    """Stands for `time` in a module whose deadline is to pass: not before the test says so, or after so many looks.

    So a busy machine may take as long as it likes to get to the place where the deadline is to find it.
    """

    def __init__(self, looks=float("inf")):
        self._looks_left = looks
        self._skipped_s = 0.0

    def __getattr__(self, name):
        return getattr(time, name)

    def monotonic(self):
        self._looks_left -= 1
        return time.monotonic() + (self._skipped_s if self._looks_left >= 0 else 2 * NEVER_S)

    def skip(self):
        """Let all deadlines that were given be over."""
        self._skipped_s += 2 * NEVER_S

    def skip_when(self, holds):
        """Do so, from a thread, as soon as holds() is true."""
        threading.Thread(target=lambda: (until(holds), self.skip()), daemon=True).start()


def press():
    """Ctrl-C, for this process: a signal to its main thread, whichever calls."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextlib.contextmanager
def pressed(holds, action=press):
    """Press Ctrl-C (or do what is given), from a thread, once holds() is true within the block: never after it."""
    over, lock = threading.Event(), threading.Lock()

    def look():
        while not over.wait(LOOK_S):
            if holds():
                with lock:
                    if not over.is_set():
                        action()
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with lock:
            over.set()
        thread.join()
