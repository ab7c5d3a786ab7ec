"""What keeps MLflow from taking records, in words: as far as it can be seen before the work, and from an exception.

The kind of an exception decides, not its text: a disk that takes nothing and a missing driver need something else of
the user than a server that is down.
"""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator

from reports.tracking import Unreachable, check_server, database_path
from runner.records.scrub import without_secrets
from runner.request_error import first_line
from runner.track.database import DatabaseError, check_database

PATIENCE_S = 2.0
"""How long a server may take to answer before the work begins."""

_OF_REQUESTS = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ProxyError", "SSLError")
"""Exceptions of requests, by which MLflow asks a server: not imported here for their names alone."""


def problem_of(uri: str, patience_s: float = PATIENCE_S) -> str:
    """What will keep MLflow at this URI from taking records, as a clause; "" if nothing can be seen without MLflow.

    A server has to answer, a database's driver to be installed, the folder of a database in a file to be there. Asking
    a server, or a file, takes no longer than patience_s and a moment.
    """
    if not uri.startswith("http") and database_path(uri) is None:
        return _seen(uri, patience_s)  # imports a driver, which may take seconds, and asks no server
    found: list[str] = []
    # Looking up a host's name can take longer than any limit that is given to it.
    look = threading.Thread(
        target=lambda: found.append(_seen(uri, patience_s)), name="symlab-tracking-check", daemon=True
    )
    look.start()
    look.join(patience_s + 0.2)
    return found[0] if found else told(Unreachable(f"no answer within {patience_s:g} s"), uri)


def _seen(uri: str, patience_s: float) -> str:
    try:
        check_place(uri, patience_s)
    except Exception as error:
        return told(error, uri)
    return ""


def told(error: BaseException, uri: str) -> str:
    """An exception of MLflow's at this URI as a clause: what it is, and what helps."""
    place = without_secrets(uri)
    for one in _causes(error):
        if isinstance(one, DatabaseError):
            return str(one)
        if isinstance(one, ModuleNotFoundError):
            return f"MLflow can't use {place}: its driver, the Python package {one.name}, is not installed"
        is_of_requests = isinstance(one, OSError) and type(one).__name__ in _OF_REQUESTS
        if isinstance(one, (Unreachable, ConnectionError, TimeoutError, socket.gaierror)) or is_of_requests:
            return f"MLflow at {place} is not reachable: {first_line(one)}"
        if isinstance(one, sqlite3.Error) or (isinstance(one, OSError) and one.errno is not None):
            return f"MLflow can't write at {place}: {first_line(one)}"
    return f"MLflow at {place} does not take the records: {first_line(error)}"


def check_place(uri: str, patience_s: float = PATIENCE_S) -> None:
    """Look at a URI without MLflow, which retries for minutes. Raises what tells that MLflow can't use it; see told."""
    if uri.startswith("http"):
        check_server(uri, patience_s)
        return
    path = database_path(uri)
    if path is not None:
        check_database(path)
        return
    import sqlalchemy

    sqlalchemy.create_engine(uri)  # imports its driver, and does not connect


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it was raised from, the first cause first: the causes say more than what wraps them."""
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        original = getattr(following, "orig", None)  # SQLAlchemy keeps the driver's exception there
        if isinstance(original, BaseException) and original not in found:
            found.append(original)
        # Only what it was raised from on purpose: what was being handled at the time may have nothing to do with it.
        following = following.__cause__
    return reversed(found)
