"""A database is made once and in full; one that was not is named as what it is."""

import fcntl
import os
import sqlite3
import threading
import time

import pytest

from runner.track.database import DatabaseError, make_ready, needs_another_place
from tests.golden import refused
from tests.patience import PATIENCE_S


def whole(path):
    with sqlite3.connect(path) as connection:
        for name in ("experiments", "runs", "metrics", "params", "tags"):
            connection.execute(f"create table {name} (x)")
        connection.execute("create table alembic_version (version_num)")
        connection.execute("insert into alembic_version values ('1')")
    connection.close()


@pytest.mark.parametrize("names", ["aaaa", "ab"])
def test_many_at_once_make_each_once_and_one_after_another(tmp_path, names):
    """Alembic's state is one for all threads: an interrupted command's thread took it from the next command's."""
    under_way, most = [], []

    def make(beside):
        under_way.append(beside)
        most.append(len(under_way))
        time.sleep(0.05)
        under_way.remove(beside)
        whole(beside)

    threads = [threading.Thread(target=make_ready, args=(tmp_path / f"{name}.db", make)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * len(set(names))
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"{name}.db" for name in sorted(set(names))]


def test_a_removed_lock_file_locks_nothing(tmp_path, monkeypatch):
    """Who opened the lock file before a failed maker removed it must not work beside the holder of the next one."""
    path, flock = tmp_path / "mlflow.db", fcntl.flock
    has_opened, may_lock = threading.Event(), threading.Event()
    made = []

    def late_flock(descriptor, operation):
        if threading.current_thread().name == "late" and not has_opened.is_set():
            has_opened.set()
            may_lock.wait(PATIENCE_S)
        flock(descriptor, operation)

    def fail(beside):
        late.start()
        has_opened.wait(PATIENCE_S)
        raise OSError("No space left on device")

    def make(beside):
        made.append(threading.current_thread().name)
        may_lock.set()
        time.sleep(0.3)
        whole(beside)

    monkeypatch.setattr(fcntl, "flock", late_flock)
    late = threading.Thread(target=make_ready, args=(path, make), name="late")
    with pytest.raises(OSError, match="No space left"):
        make_ready(path, fail)
    make_ready(path, make)
    late.join()
    assert made == [threading.current_thread().name]
    assert [one.name for one in tmp_path.iterdir()] == ["mlflow.db"]


def test_what_is_not_made_in_full_is_not_left(tmp_path):
    def full(beside):
        beside.write_bytes(b"half")
        raise OSError("No space left on device")

    for make in (full, lambda beside: sqlite3.connect(beside).execute("create table runs (x)")):
        with refused(OSError):
            make_ready(tmp_path / "mlflow.db", make)
        assert list(tmp_path.iterdir()) == []


def test_a_damaged_one_and_what_is_none_are_named(tmp_path, monkeypatch):
    """The message of a damaged database says to move it away. Where another file lies, or none can be made, it asks for
    another place."""
    (tmp_path / "README.md").write_text("no database at all" * 100)
    sqlite3.connect(tmp_path / "half.db").execute("create table experiments (x)").connection.close()
    for name in ("half.db", "README.md"):
        with refused(DatabaseError):
            make_ready(tmp_path / name, whole)
    found = {name: needs_another_place(tmp_path / name) for name in ("README.md", "half.db", "new.db", "")}
    assert found == {"README.md": True, "half.db": False, "new.db": False, "": True}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert needs_another_place(tmp_path / "new.db")
