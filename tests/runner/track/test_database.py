"""A database is made once and in full; one that was not is named as what it is."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from reports.tracked import database_path
from runner.track.database import DatabaseError, make_ready


def whole(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for name in ("experiments", "runs", "metrics", "params", "tags"):
            connection.execute(f"create table {name} (x)")
        connection.execute("create table alembic_version (version_num)")
        connection.execute("insert into alembic_version values ('1')")
    connection.close()


def test_many_at_once_make_one(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    made = []

    def slow(beside: Path) -> None:
        made.append(beside)
        time.sleep(0.1)
        whole(beside)

    threads = [threading.Thread(target=make_ready, args=(path, slow)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["mlflow.db"]


def test_after_a_failure_those_who_waited_make_it_one_at_a_time(tmp_path: Path) -> None:
    """Each failure removes the lock file that the others wait for: they must not take different files for the lock."""
    path = tmp_path / "mlflow.db"
    at_work, most, calls = 0, 0, 0

    def fails_first(beside: Path) -> None:
        nonlocal at_work, most, calls
        at_work, calls = at_work + 1, calls + 1
        most, number = max(most, at_work), calls
        time.sleep(0.1)
        at_work -= 1
        if number <= 3:
            raise OSError("No space left on device")
        whole(beside)

    def want() -> None:
        with contextlib.suppress(OSError):
            make_ready(path, fails_first)

    threads = [threading.Thread(target=want) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (calls, most) == (4, 1)
    assert [one.name for one in tmp_path.iterdir()] == ["mlflow.db"]


def test_what_is_not_made_in_full_is_not_left(tmp_path: Path) -> None:
    def full(beside: Path) -> None:
        beside.write_bytes(b"half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        make_ready(tmp_path / "mlflow.db", full)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="could not be made in full"):
        make_ready(tmp_path / "mlflow.db", lambda beside: sqlite3.connect(beside).execute("create table runs (x)"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all" * 100)
    sqlite3.connect(tmp_path / "half.db").execute("create table experiments (x)").connection.close()
    for name in ("text.db", "half.db"):
        with pytest.raises(DatabaseError, match=f"{name} is damaged or half-made .*: move it away"):
            make_ready(tmp_path / name, whole)


def test_the_file_of_a_uri() -> None:
    assert database_path("sqlite:////x/mlflow.db") == Path("/x/mlflow.db")
    assert database_path("http://host:5000") is None
