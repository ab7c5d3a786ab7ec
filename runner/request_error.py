"""A wrong request, told in one line: what, where (the key), and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RequestError(ValueError):
    """The request is wrong: one line saying what, where (the key), and what would be right."""


def near(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the near ones, or all of them: "did you mean one_shot?"."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(options)}" if options else "there are none"


def first_line(error: BaseException) -> str:
    """An error's message up to its first line break; its kind where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
