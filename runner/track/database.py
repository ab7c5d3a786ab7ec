"""A tracking database in a file: made in full or not at all, once, however many commands start at the same time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from memory.atomic_file import replacing

_HEADER = b"SQLite format 3\0"
"""What each database file begins with."""

_NEEDED = ("experiments", "runs", "metrics", "params", "tags")


_MAKING = threading.Lock()
"""MLflow makes a database through Alembic, whose state is one for all threads of a process."""


class DatabaseError(RuntimeError):
    """The database that is there can't be used; one line, that says what to do."""


def make_ready(path: Path, make: Callable[[Path], None]) -> None:
    """Make sure that a complete database is at path; if there is none, make(beside) creates one that takes the name.

    Processes and threads that want the same database wait meanwhile. Raises DatabaseError for a damaged or incomplete
    database, and where none can be; OSError, or what make raises, if none can be created: then no file is left behind.
    """
    check_database(path)
    if _is_missing(path):
        lock = path.with_name(f".{path.name}.lock")
        with FileLock(lock), _MAKING:
            try:
                if _is_missing(path):
                    _make(path, make)
            finally:
                # While the lock is held: a waiter that then locks the removed file notices, and tries the new one.
                lock.unlink(missing_ok=True)
    _check_tables(path)


def check_database(path: Path) -> None:
    """See whether a database can be at path, which need not be there yet. Raises DatabaseError if not."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        name = str(path.parent).encode(errors="replace").decode()
        raise DatabaseError(f"MLflow can't keep a database in {name}, whose name is not UTF-8") from None
    if not path.parent.is_dir():
        raise DatabaseError(f"there is no folder {path.parent} for MLflow's database")
    if path.is_dir():
        raise DatabaseError(f"{path} is a folder, not MLflow's database")
    if not _is_writable(path):
        raise DatabaseError(f"MLflow's database {path} can't be written: no permission")
    if not _is_missing(path):
        _check_tables(path)


def needs_another_place(path: Path) -> bool:
    """Return whether path can't take a database later either. A folder that is missing can still be made."""
    return path.parent.is_dir() and (path.is_dir() or not _is_writable(path) or _is_other_file(path))


def _is_writable(path: Path) -> bool:
    return os.access(path if path.exists() else path.parent, os.W_OK)


def _is_other_file(path: Path) -> bool:
    """Whether something else than a database is in the file."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        beginning = file.read(len(_HEADER))
        return bool(beginning) and beginning != _HEADER
    return False


def _check_tables(path: Path) -> None:
    if _is_other_file(path):
        raise DatabaseError(f"{path.name} is no database: name another file ({path})")
    if problem := _problem(path):
        raise DatabaseError(f"{path.name} is damaged or half-made ({problem}): move it away ({path})")


def _is_missing(path: Path) -> bool:
    """Nothing is there, or an empty file, which sqlite takes for a new database."""
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return True


def _make(path: Path, make: Callable[[Path], None]) -> None:
    with replacing(path) as beside:
        try:
            make(beside)
            if problem := _problem(beside):
                raise OSError(f"a new database could not be made in full: {problem}")
        finally:
            for ending in ("-journal", "-wal", "-shm"):
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
