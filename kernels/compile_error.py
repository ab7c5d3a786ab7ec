"""What a compiler says, in one line for people: without colours, with the line of the file that it came from."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from kernels.sources import PACKAGE, ROOT

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_HOST = ("cases", "memory", "reports", "runner", "simulator", "symlab")
_OURS = tuple(PACKAGE.parent / name for name in ("kernels/dsl", *_HOST))
_DRIVERS = tuple(PACKAGE / name for name in ("compile.py", "functions.py"))
_FILES = "|".join(re.escape(str(one)) for one in _DRIVERS)
_SNIPPET = re.compile(
    rf"[^\S\n]*(?:-->)?[^\S\n]*(?:{_FILES}):\d+(?::\d+)?[^\n]*\n(?:[^\S\n]*\d*[^\S\n]*\|[^\n]*(?:\n|$))*"
)
"""A place in the files that call the compiler, and the lines of it that the compiler shows."""


class CompilationError(RuntimeError):
    """A kernel that could not be compiled; the message names the file and line."""


def reason_of(error: BaseException) -> str:
    """Return why a compiler failed, in one line, with the last place in a file that is neither the project's machinery
    nor installed."""
    text = _SNIPPET.sub("", _COLOUR.sub("", str(error)) + "\n").replace(" in `compiled_callable`", "")
    text = " ".join(text.split()) or type(error).__name__
    if isinstance(error, KeyError):
        text = f"KeyError: {text}"
    place = next(_places(error), None)
    return text if place is None or f"{place[0]}:{place[1]}" in text else f"{text} ({shown(place[0])}:{place[1]})"


def _places(error: BaseException) -> Iterator[tuple[str, int]]:
    """The places that an error came by, innermost first, and those of what caused it."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        for frame in reversed(traceback.extract_tb(current.__traceback__)):
            if not is_hidden(frame.filename):
                yield frame.filename, frame.lineno or 0
        current = current.__cause__ or current.__context__


def is_hidden(file: str) -> bool:
    """Whether a file is the project's machinery, installed, or none."""
    path = Path(file)
    installed = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return file.startswith("<") or path in _DRIVERS or any(path.is_relative_to(one) for one in [*installed, *_OURS])


def shown(file: str) -> str:
    """Return a file of the project from its root, another one by its name."""
    path = Path(file)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(PACKAGE) else path.name
