"""Where a brought function was when it ended the process that compiled it."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.compile_error import is_hidden, shown
from memory.forked import Frame

_WRAPPERS = ("wrapper", "noted_end")


def place_of_end(frames: Sequence[Frame]) -> str:
    """Return where a process that ended itself was, innermost first: "in tma_load, called at ring.py:12". "" if it was
    in no function of the user's."""
    called = ""
    for frame in frames:
        if frame.function in ("compiled_callable", "_compile", "_answer"):
            return ""
        if not is_hidden(frame.file):
            place = f"{shown(frame.file)}:{frame.line}"
            return f"in {called}, called at {place}" if called else f"at {place}"
        called = called if frame.function in _WRAPPERS else frame.function
    return ""
