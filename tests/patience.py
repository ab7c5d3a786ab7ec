"""How long tests wait for what must happen, and no test asserts that something is fast.

A wait ends when what it waits for happens, so its limit costs nothing where all is well: it only says when a test gives
up on something that hangs. The limit is therefore generous, so that no busy machine reaches it. On one that does,
SYMLAB_TEST_PATIENCE=3 makes all limits three times as long. Speed is measured by tests/benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 120.0 * float(os.environ.get("SYMLAB_TEST_PATIENCE", "1"))
"""After this time a test takes what it waits for to hang."""

NEVER_S = 5 * PATIENCE_S
"""The deadline to give what must end for another reason: `within` tells the two apart."""

LOOK_S = 0.02


def until(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until holds() is true. Raises AssertionError naming what did not happen, after PATIENCE_S."""
    ends_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > ends_s:
            raise AssertionError(f"{what} did not happen in {PATIENCE_S:.0f} s")
        with contextlib.suppress(InterruptedError):
            time.sleep(LOOK_S)


@contextlib.contextmanager
def within() -> Iterator[None]:
    """Raise AssertionError if the block ends by itself, but only after PATIENCE_S: it waited for its own deadline."""
    began_s = time.monotonic()
    yield
    took_s = time.monotonic() - began_s
    if took_s > PATIENCE_S:
        raise AssertionError(f"this took {took_s:.0f} s, more than {PATIENCE_S:.0f} s: it waited for its deadline")
