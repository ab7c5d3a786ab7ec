"""Working folders whose names mean something in a URI: database and artifacts lie in them, and nowhere else."""

import os
import shlex
import sqlite3
import sys

import pytest

from reports.tracking import database_path, resolved_uri
from runner.__main__ import main
from runner.track.dashboard import open_command
from symlab.command import main as symlab

NAMES = ["a?b", "a#b", "a%41b", "a b", "a'b", 'a"b', "ä&b;c=d+e:f"]
EVERYTHING = "a?b#c%41 d'e\"f"


@pytest.mark.parametrize("name", [*NAMES, EVERYTHING])
def test_an_address_leads_to_its_folder(name, tmp_path, monkeypatch, capsys):
    """Also by the command that symlab dashboard starts."""
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    uri = resolved_uri("sqlite:///mlflow.db")
    assert database_path(uri) == database_path("sqlite:///mlflow.db") == folder / "mlflow.db"
    assert resolved_uri(uri) == uri
    (folder / "mlflow.db").write_text("not empty")
    started = []
    monkeypatch.setattr(os, "execvp", lambda file, words: started.append(words))
    monkeypatch.setattr("runner.track.commands.check_port", lambda port: None)
    assert symlab(["dashboard"]) == 0
    for words in (shlex.split(open_command("sqlite:///mlflow.db")), *started):
        assert words[words.index("ui") : words.index("ui") + 3] == ["ui", "--backend-store-uri", uri]


def test_a_plain_address_is_left_and_another_working_folder_is_not_asked(tmp_path):
    for plain in ("sqlite:////x/mlflow.db", "sqlite:////x/mlflow.db?timeout=5", "http://host:5000/a?b"):
        assert resolved_uri(plain) == resolved_uri(plain, tmp_path) == plain
    assert resolved_uri("sqlite:///x.db", tmp_path) == f"sqlite:///{tmp_path}/x.db"
    assert open_command("http://host:5000") == "http://host:5000"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, EVERYTHING])
def test_a_run_in_an_odd_folder(name, tmp_path, script, monkeypatch, capsys):
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["sizes=[8]", "algorithms=[one_shot]"], script.tools()) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "dashboard: " in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert sorted(path.name for path in folder.iterdir()) == ["mlartifacts", "mlflow.db", "records"]
    assert [path.name for path in folder.glob("mlartifacts/*/artifacts/report.html")] == ["report.html"]
    with sqlite3.connect(folder / "mlflow.db") as connection:
        assert sorted(connection.execute("select status from runs").fetchall()) == [("FINISHED",), ("FINISHED",)]
    assert symlab(["track", "records"]) == 0
    assert "already sent" in capsys.readouterr().out


def test_the_command_that_opens_the_dashboard_is_this_environments(monkeypatch):
    monkeypatch.setattr("sys.executable", "/some where/bin/python")
    assert open_command("sqlite:////a.db") == "'/some where/bin/mlflow' ui --backend-store-uri sqlite:////a.db"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system takes UTF-8 only")
def test_a_folder_that_is_not_utf_8_keeps_records(tmp_path, script, monkeypatch, capsys):
    folder = tmp_path / os.fsdecode(b"u\xffv")
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["sizes=[8]", "algorithms=[one_shot]"], script.tools()) == 0
    assert "whose name is not UTF-8" in capsys.readouterr().err
    assert len(list(folder.glob("records/*/all_reduce*.json"))) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["records"]
    assert symlab(["track", "records"]) == 1
    error = capsys.readouterr().err
    assert "whose name is not UTF-8" in error
    assert error.count("\n") == 1
    (records,) = (folder / "records").iterdir()
    assert main(["resume", str(records)]) == 0
    assert "nothing is left to do" in capsys.readouterr().out
