"""A wrong request, told in one line: what, where (the key), and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class RequestError(ValueError):
    """The request is wrong: one line saying what, where (the key), and what would be right."""


LEAST_BEGINNING = 3
"""Characters of an unknown name, from which on known ones that begin with it are near."""


def near(name: str, known: Iterable[str]) -> str:
    """What to say after an unknown name: the near ones, of which those that begin with it are all said, or all names:
    "did you mean one_shot?"."""
    options = sorted(known)
    longer = [one for one in options if len(name) >= LEAST_BEGINNING and one.startswith(name)]
    close = list(dict.fromkeys([*longer, *difflib.get_close_matches(name, options, n=3, cutoff=0.6)]))
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(options)}" if options else "there are none"


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Within, a ValueError becomes a RequestError that names a key; a RequestError names its own."""
    try:
        yield
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"{error} ({key})") from error


def first_line(error: BaseException) -> str:
    """An error's message up to its first line break; its kind where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
