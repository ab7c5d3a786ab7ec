"""symlab track and symlab dashboard, as commands."""

from __future__ import annotations

import io
import os
import shlex
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports.tracked import database_path
from runner.track.dashboard import JOBS, advice, open_browser_later
from symlab.command import main
from tests.patience import until


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect(tmp_path / "mlflow.db")
    connection.execute("create table experiments (name text)")
    connection.close()
    return tmp_path / "mlflow.db"


def test_the_command_is_printed(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--print", "--port", "5055"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"ui --backend-store-uri sqlite:///{database} --port 5055\n")
    assert said.count("\n") == 1


def test_a_server_of_the_users_own_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--uri", "http://somewhere:5000"]) == 0
    assert capsys.readouterr().out == "http://somewhere:5000\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no database"),
        (["--print"], "no database"),
        (["--uri", "mlruns"], "'mlruns' is no tracking URI (--uri)"),
        (["--port", "0"], "0 is not in the range 1<=x<=65535"),
    ],
)
def test_wrong_requests(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("nothing is started"))
    assert main(["dashboard", *arguments]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert message in said.err
    assert list(tmp_path.iterdir()) == [], "no database is made"


def test_it_becomes_mlflows_server(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[str, list[str], str | None]] = []
    monkeypatch.delenv(JOBS, raising=False)
    monkeypatch.setattr(os, "execvp", lambda file, words: started.append((file, words, os.environ.get(JOBS))))
    monkeypatch.setattr("runner.track.dashboard.check_port", lambda port: None)
    assert main(["dashboard"]) == 0
    ((file, words, jobs),) = started
    monkeypatch.delenv(JOBS)
    assert Path(file).name == "mlflow"
    assert jobs == "false", "MLflow's queue of jobs ends in tracebacks"
    assert words[1:] == ["ui", "--backend-store-uri", f"sqlite:///{database}", "--port", "5000"]
    said = capsys.readouterr().out
    assert said.startswith("starting MLflow's dashboard at http://127.0.0.1:5000 (")
    assert "half a minute; Ctrl-C stops it" in said


@pytest.mark.parametrize(("is_terminal", "opens"), [(True, True), (False, False)])
def test_a_browser_opens_once_the_server_answers(
    is_terminal: bool, opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, visited = tmp_path / "browser", tmp_path / "visited"
    browser.write_text(f'#!/bin/sh\necho "$1" > {visited}.part && mv {visited}.part {visited}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **how: started.append(start(*given, **how)))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        open_browser_later("http://127.0.0.1:5000/#/charts", server.getsockname()[1])
        assert len(started) == opens
        if opens:
            time.sleep(0.5)
            assert not visited.exists(), "no server answers yet"
            server.listen()
            until(visited.exists, "a visit")
            assert visited.read_text() == "http://127.0.0.1:5000/#/charts\n"
            assert started[0].wait() == 0


def test_a_port_in_use_is_named_and_nothing_starts(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "execvp", lambda *_: pytest.fail("nothing is started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dashboard", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"symlab: error: port {port} is in use (--port), give another\n"


def test_the_advice_is_the_command_that_the_pages_teach(database: Path) -> None:
    assert advice("sqlite:///mlflow.db") == advice(f"sqlite:///{database}") == "symlab dashboard"
    assert advice("sqlite:///other b.db") == "symlab dashboard --uri 'sqlite:///other b.db'"
    assert advice("http://somewhere:5000") == "http://somewhere:5000"


def test_an_empty_file_is_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlflow.db").touch()
    assert main(["dashboard", "--print"]) == 2
    assert f"no database {tmp_path}/mlflow.db (--uri)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["with space", "a?b#c", "%41", "it's"])
def test_the_printed_command_is_one_for_a_shell(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mlflow.db").write_text("not empty")
    assert main(["dashboard", "--print"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert database_path(words[words.index("--backend-store-uri") + 1]) == folder / "mlflow.db"
