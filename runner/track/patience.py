"""A tracking server that goes away for a moment: it is waited for, and what it may have lost is sent again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from reports.tracked import Unreachable, check_server

RETURN_S = 60.0
"""How long a server that was there may be away before it is given up."""

_LOOK_S = 0.5
_OF_CONNECTIONS = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ChunkedEncodingError", "Unreachable")
"""Exceptions, here and of requests, that say that a server is away; by name, so that requests is not imported."""

Answer = TypeVar("Answer")


def patiently(action: Callable[[], Answer], refresh: Callable[[], object], uri: str) -> Answer:
    """Do something with a tracking server, again if the server goes away and is back within RETURN_S.

    refresh reads what the server has before each new try. Any other error, and one of a database, is raised at once.
    """
    deadline_s = 0.0
    while True:
        try:
            return action()
        except Exception as error:
            if not uri.startswith("http") or not _is_away(error, uri):
                raise
            deadline_s = deadline_s or time.monotonic() + RETURN_S
            if not _is_back(uri, deadline_s):
                raise
        while True:
            try:
                refresh()
                break
            except Exception as error:
                if not _is_away(error, uri) or not _is_back(uri, deadline_s):
                    raise


def _is_away(error: BaseException, uri: str) -> bool:
    """Whether an error is of a server that does not answer, or stopped to."""
    return any(type(one).__name__ in _OF_CONNECTIONS for one in _chain(error)) or not _answers(uri)


def _is_back(uri: str, deadline_s: float) -> bool:
    """Wait until the server answers; False if it does not until the deadline."""
    while time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
        if _answers(uri):
            return True
    return False


def _answers(uri: str) -> bool:
    try:
        check_server(uri, 5)
    except Unreachable:
        return False
    return True


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception with what it was raised from, or while: MLflow does not always say which."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        yield one
        seen.append(one)
        one = one.__cause__ or one.__context__
