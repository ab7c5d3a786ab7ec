"""What a brought function called when it ended the process that compiled it: the place, the function, the argument."""

from __future__ import annotations

import contextlib
import inspect
import sys
import tempfile
import typing
from collections.abc import Callable
from numbers import Number
from pathlib import Path
from types import FrameType
from typing import Any

from kernels.compile_error import is_hidden, shown
from memory.forked import Frame, ProcessEnded, forked

_WRAPPERS = ("wrapper", "noted_end")
_LONGEST = 300


def at_end(step: Callable[[], object], ended: ProcessEnded) -> str:
    """Return where the process of a step ended: "in tma_load, called at ring.py:12: its argument mbar is of type int,
    and Pointer is expected". "" if it was in no function of the user's.

    For the arguments the step is taken once more, in another process, which notes each call of that function.
    """
    inner: list[Frame] = []
    for frame in ended.frames:
        if frame.function in ("compiled_callable", "_compile", "_answer"):
            return ""
        if not is_hidden(frame.file):
            break
        inner.append(frame)
    else:
        return ""
    called = next((one for one in reversed(inner) if one.function not in _WRAPPERS), None)
    place = f"{shown(frame.file)}:{frame.line}"
    if called is None:
        return f"at {place}"
    told = _arguments(step, called)
    return f"in {called.function}, called at {place}{f': {told}' if told else ''}"


def _arguments(step: Callable[[], object], called: Frame) -> str:
    """Return what is known of the arguments of the last call of a function that a step makes, "" if nothing is."""
    with tempfile.NamedTemporaryFile("w+", prefix="symlab-call-") as file:

        def note(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_name == called.function and code.co_filename == called.file:
                file.seek(0)
                file.truncate()
                with contextlib.suppress(Exception):  # values of others, which can't always be shown
                    file.write(_told(frame))
                file.flush()

        def noted() -> None:
            sys.setprofile(note)
            step()

        with contextlib.suppress(Exception):
            forked(noted)
        return Path(file.name).read_text()


def _told(frame: FrameType) -> str:
    """Return which argument of a call that has just begun does not fit its annotation, or the types of all."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {name: frame.f_locals[name] for name in names}
    function = inspect.unwrap(frame.f_globals[code.co_name]) if code.co_name in frame.f_globals else None
    wanted: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        wanted = typing.get_type_hints(function)
    for name, value in given.items():
        if name in wanted and not _fits(value, wanted[name]):
            expected = getattr(wanted[name], "__name__", str(wanted[name]))
            return f"its argument {name} is of type {type(value).__name__}, and {expected} is expected"
    types = ", ".join(f"{name} {type(value).__name__}" for name, value in given.items() if value is not None)
    return f"its arguments are {types}"[:_LONGEST] if types else ""


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value may be one of an annotation; numbers of Python fit wherever it can't be told."""
    options = typing.get_args(wanted) if typing.get_origin(wanted) not in (None, list, tuple, type) else (wanted,)
    classes = [one if isinstance(one, type) else None for one in options]
    return (
        isinstance(value, Number) or value is None or None in classes or isinstance(value, tuple(filter(None, classes)))
    )
