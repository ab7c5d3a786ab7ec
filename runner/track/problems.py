"""What keeps MLflow from taking records, in words: as far as it can be seen before the work, and from an exception.

The kind of an exception decides, not its text: a full disk, a damaged database and a missing driver each need something
else of the user than a server that is down.
"""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from reports.tracking import Unreachable, check_server, database_path
from runner.records.scrub import without_secrets
from runner.request_error import first_line
from runner.track.database import DatabaseError, check_database

PATIENCE_S = 2.0
"""How long a server may take to answer before the work begins."""

_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
"""Where a database server listens if its URI names no port."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FOR_READING_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

_OF_REQUESTS = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ProxyError", "SSLError")
"""Exceptions of requests, by which MLflow asks a server: not imported here for their names alone."""

_PRIMARY = 0xFF
"""The part of an sqlite error code that says its kind."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOT_TO_WRITE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def problem_of(uri: str, patience_s: float = PATIENCE_S) -> str:
    """What will keep MLflow at this URI from taking records, as a clause; "" if nothing can be seen without MLflow.

    A server has to answer, a database's driver to be installed, the folder of a database in a file to be there. It
    takes no longer than patience_s and a moment.
    """
    found: list[str] = []

    def look() -> None:
        try:
            check_place(uri, patience_s)
            found.append("")
        except Exception as error:
            found.append(told(error, uri))

    # Looking up a host's name can take longer than any limit that is given to it.
    thread = threading.Thread(target=look, name="symlab-tracking-check", daemon=True)
    thread.start()
    thread.join(patience_s + 0.2)
    return found[0] if found else told(Unreachable(f"no answer within {patience_s:g} s"), uri)


def told(error: BaseException, uri: str) -> str:
    """An exception of MLflow's at this URI as a clause: what it is, and what helps."""
    place = without_secrets(uri)
    for one in _causes(error):
        if isinstance(one, DatabaseError):
            return str(one)
        if isinstance(one, ModuleNotFoundError):
            return f"MLflow can't use {place}: its driver, the Python package {one.name}, is not installed"
        if isinstance(one, sqlite3.Error) and (says := _of_sqlite(one, place)):
            return says
        is_of_requests = isinstance(one, OSError) and type(one).__name__ in _OF_REQUESTS
        if isinstance(one, (Unreachable, ConnectionError, TimeoutError, socket.gaierror)) or is_of_requests:
            return f"MLflow at {place} is not reachable: {first_line(one)}"
        if isinstance(one, OSError) and (says := _of_files(one, place)):
            return says
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

    url = sqlalchemy.make_url(uri)
    sqlalchemy.create_engine(url)  # imports its driver, and does not connect
    port = url.port or _PORTS.get(url.get_backend_name())
    if url.host and port:
        socket.create_connection((url.host, port), timeout=patience_s).close()


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


def _of_sqlite(error: sqlite3.Error, place: str) -> str:
    kind = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    if kind == sqlite3.SQLITE_FULL:
        return f"there is no space left for MLflow's database {place}: make room there"
    if kind in _DAMAGED:
        return f"MLflow's database {place} is damaged ({first_line(error)}): move it away"
    if kind in _NOT_TO_WRITE:
        return f"MLflow's database {place} can't be written ({first_line(error)})"
    if kind in _LOCKED:
        return f"MLflow's database {place} is locked by another program"
    if kind == sqlite3.SQLITE_IOERR:
        return f"MLflow's database {place} can't be written ({first_line(error)}): look at its disk"
    return ""


def _of_files(error: OSError, place: str) -> str:
    where = f" in {Path(os.fsdecode(error.filename)).parent}" if isinstance(error.filename, (str, bytes)) else ""
    if error.errno in _NO_SPACE:
        return f"there is no space left for MLflow at {place} ({error.strerror}{where}): make room there"
    if error.errno in _FOR_READING_ONLY:
        return f"MLflow at {place} can't be written ({error.strerror}{where})"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"MLflow at {place} has no place: {error.strerror}{where}"
    return ""
