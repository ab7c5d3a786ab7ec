"""A tracking database in a file: made in full or not at all, once, however many commands start at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

_NEEDED = ("experiments", "runs", "metrics", "params", "tags")


class DatabaseError(RuntimeError):
    """The database that is there can't be used; one line, that says what to do."""


def make_ready(path: Path, make: Callable[[Path], None]) -> None:
    """See that a whole database is at path; where there is none, make(beside) makes one that then takes the name.

    Others that want the same meanwhile wait. DatabaseError for one that is damaged or was made by half; OSError, or
    what make raises, when none can be made: then nothing is left.
    """
    if _is_missing(path):
        with _alone(path.with_name(f".{path.name}.lock")):
            if _is_missing(path):
                _make(path, make)
    if problem := _problem(path):
        raise DatabaseError(f"{path.name} is damaged or half-made ({problem}): move it away ({path})")


def _is_missing(path: Path) -> bool:
    """Nothing is there, or an empty file, which sqlite takes for a new database."""
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True


def _make(path: Path, make: Callable[[Path], None]) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        make(beside)
        if problem := _problem(beside):
            raise OSError(f"a new database could not be made in full: {problem}")
        os.replace(beside, path)
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            beside.with_name(beside.name + ending).unlink(missing_ok=True)


def _problem(path: Path) -> str:
    """What keeps MLflow from working with the file; "" when nothing is seen."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("select name from sqlite_master where type = 'table'")
            tables = {str(name) for (name,) in found}
            missing = [name for name in (*_NEEDED, "alembic_version") if name not in tables]
            if missing:
                return f"it has no table {missing[0]}"
            if not list(connection.execute("select version_num from alembic_version")):
                return "its tables have no version"
    except sqlite3.OperationalError:
        return ""  # locked, or not to be opened by us: MLflow says it better
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file, which goes with the lock."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Whoever had it before has taken the file away: then another one may hold the lock on a newer file.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(descriptor)
