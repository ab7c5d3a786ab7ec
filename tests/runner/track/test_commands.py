"""symlab track and symlab dashboard, as commands."""

import os
import socket
import sqlite3
from pathlib import Path

import pytest

from runner.track.dashboard import JOBS, advice
from symlab.command import main
from tests.golden import same_text


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "mlflow.db")
    connection.execute("create table experiments (name text)")
    connection.close()
    return tmp_path / "mlflow.db"


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("nothing is started"))


def test_a_server_of_the_users_own_is_named(capsys):
    assert main(["dashboard", "--uri", "http://somewhere:5000"]) == 0
    assert capsys.readouterr().out == "http://somewhere:5000\n"


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("arguments", [[], ["--uri", "mlruns"], ["--port", "0"]])
def test_wrong_requests(arguments, is_empty, tmp_path, capsys):
    """An empty file is no database, and none is made."""
    if is_empty:
        (tmp_path / "mlflow.db").touch()
    assert main(["dashboard", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    same_text(said.err)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0] * is_empty


def test_it_becomes_mlflows_server(database, monkeypatch, capsys):
    started: list[tuple[str, list[str], str | None]] = []
    monkeypatch.delenv(JOBS, raising=False)
    monkeypatch.setattr(os, "execvp", lambda file, words: started.append((file, words, os.environ.get(JOBS))))
    monkeypatch.setattr("runner.track.commands.check_port", lambda port: None)
    assert main(["dashboard", "--port", "5055"]) == 0
    ((file, words, jobs),) = started
    monkeypatch.delenv(JOBS)
    assert Path(file).name == "mlflow"
    assert jobs == "false", "MLflow's queue of jobs ends in tracebacks"
    assert words[1:] == ["ui", "--backend-store-uri", f"sqlite:///{database}", "--port", "5055"]
    said = capsys.readouterr().out
    assert said.startswith("starting MLflow's dashboard at http://127.0.0.1:5055 (")
    assert "half a minute; Ctrl-C stops it" in said


@pytest.mark.usefixtures("database", "nothing_starts")
def test_a_port_in_use_is_named_and_nothing_starts(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dashboard", "--port", str(port)]) == 2
    assert capsys.readouterr() == ("", f"symlab: error: port {port} is in use (--port), give another\n")


def test_the_advice_is_the_command_that_the_pages_teach(database):
    assert advice("sqlite:///mlflow.db") == advice(f"sqlite:///{database}") == "symlab dashboard"
    assert advice("sqlite:///other b.db") == "symlab dashboard --uri 'sqlite:///other b.db'"
    assert advice("http://somewhere:5000") == "http://somewhere:5000"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
