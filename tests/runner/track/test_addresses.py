"""Where MLflow is: databases by their whole path, and the command that opens the dashboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.tracked import resolved_uri
from runner.track.dashboard import open_command


def test_a_relative_database_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved_uri("sqlite:///mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"
    assert resolved_uri("sqlite:////x/mlflow.db") == "sqlite:////x/mlflow.db"
    assert resolved_uri("http://host:5000") == "http://host:5000"
    assert open_command("http://host:5000") == "http://host:5000"


def test_the_command_that_opens_the_dashboard_can_be_called_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert open_command("sqlite:///a.db").startswith(".venv/bin/mlflow ui --backend-store-uri sqlite:////")
    program = tmp_path / ".venv" / "bin" / "mlflow"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert open_command("sqlite:///a.db").startswith("mlflow ui ")
