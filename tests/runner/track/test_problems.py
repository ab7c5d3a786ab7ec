"""A full disk, a missing driver, a damaged database and a server that is down are each named for what they are."""

import errno
import sqlite3
from pathlib import Path

import pytest

from runner.track.database import DatabaseError, make_ready
from runner.track.problems import problem_of, told
from symlab.command import main as command
from tests.golden import same_text
from tests.patience import NEVER_S

NO_DRIVER = "mysql+pymysql://me:hunter2@127.0.0.1:9/runs"


def raised(error, cause=None, *, original=None):
    """An exception as MLflow raises it: from another one, or with the driver's in it."""
    error.__cause__ = cause
    if original is not None:
        error.orig = original
    return error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system", "/x/y"),
        sqlite3.OperationalError("database is locked"),
        ModuleNotFoundError("No module named 'psycopg2'", name="psycopg2"),
        ConnectionRefusedError(111, "Connection refused"),
        DatabaseError("x.db is damaged"),
        RuntimeError("no such experiment\nmore"),
    ],
    ids=str,
)
def test_what_an_exception_means(error):
    said = told(error, "sqlite:///x.db")
    same_text(said)
    assert "\n" not in said
    wrapped = [
        raised(RuntimeError("MLflow says"), error),
        raised(RuntimeError("MLflow says"), raised(RuntimeError("SQLAlchemy says"), original=error)),
    ]
    # What is raised for no reason known here is told by the outermost message.
    assert type(error) is RuntimeError or {told(one, "sqlite:///x.db") for one in wrapped} == {said}


def test_what_was_handled_at_the_time_is_no_cause():
    error = RuntimeError("refused")
    error.__context__ = ModuleNotFoundError("No module named 'orjson'", name="orjson")
    assert told(error, "http://x") == "MLflow at http://x does not take the records: refused"


@pytest.mark.parametrize("uri", [NO_DRIVER, "sqlite:///mlflow.db"])
def test_a_missing_driver_and_a_damaged_database_are_named_before_the_first_case(symlab, tmp_path, uri):
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 64)
    done = symlab("sizes=[8]", f"track.uri={uri}", track=True)
    assert (done.code, done.statuses) == (0, ["PASSED", "PASSED"])
    same_text(done.err, r"\d{8}T\d{6}\S*|\b\d+(?:\.\d+)? m?s\b")
    assert not any(word in done.err + done.out for word in ("hunter2", "reachable"))


@pytest.mark.parametrize(
    "uri", ["postgresql://h/db", "postgresql+psycopg2://h/db", "mysql://h/db", "mssql://h/db", NO_DRIVER]
)
def test_the_driver_that_is_missed_is_the_one_that_mlflow_misses(uri):
    from runner.track.send import _client

    with pytest.raises(ModuleNotFoundError) as caught:
        _client(uri)
    assert told(caught.value, uri) == problem_of(uri)
    assert "is not installed" in problem_of(uri)


@pytest.mark.parametrize(("place", "code"), [("gone/mlflow.db", 2), ("", 1)])
def test_a_place_without_a_database_is_one_line(symlab, tmp_path, capsys, place, code):
    done = symlab("sizes=[8]")
    uri = f"sqlite:///{tmp_path}/{place}".rstrip("/")
    assert command(["track", str(done.folder / "records"), "--uri", uri]) == code
    same_text(capsys.readouterr().err, r"\d{8}T\d{6}\S*")
    with pytest.raises(DatabaseError):
        make_ready(Path(uri.removeprefix("sqlite:///")), lambda path: None)


def test_a_look_that_takes_too_long_is_given_up(monkeypatch):
    """Looking up a name knows no time limit."""
    import threading

    forever = threading.Event()
    monkeypatch.setattr("runner.track.problems.check_server", lambda uri, patience_s: forever.wait(NEVER_S))
    assert problem_of("http://x", 0.1) == "MLflow at http://x is not reachable: no answer within 0.1 s"
    forever.set()


def test_nothing_is_wrong_with_what_can_be_made(tmp_path):
    assert problem_of(f"sqlite:///{tmp_path}/new.db") == ""
    assert list(tmp_path.iterdir()) == []


def test_the_import_of_a_driver_has_no_time_limit():
    assert "pymysql, is not installed" in problem_of(NO_DRIVER, patience_s=-0.2)
