"""A tracking server that goes away for a moment is waited for; nothing is sent twice, and nothing is missing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reports.record import bundle
from reports.tracked import Unreachable
from runner.track import patience
from runner.track.by_command import by_command
from runner.track.patience import patiently
from runner.track.send import CommandRun, send_folder
from tests.patience import pressed, until
from tests.reports.synthetic import KIB, MIB, record


def test_a_server_that_comes_back_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(patience, "_answers", lambda uri: next(answers, True))
    monkeypatch.setattr(patience, "_LOOK_S", 0.001)
    tries: list[str] = []

    def action() -> int:
        tries.append("action")
        if len(tries) == 1:
            raise ConnectionError("refused")
        return 7

    assert patiently(action, lambda: tries.append("refresh"), "http://host:5000") == 7
    assert tries == ["action", "refresh", "action"]


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_answers", lambda uri: False)
    monkeypatch.setattr(patience, "_LOOK_S", 0.001)
    monkeypatch.setattr(patience, "RETURN_S", 0.05)

    def action() -> None:
        raise Unreachable("gone")

    with pytest.raises(Unreachable):
        patiently(action, lambda: None, "http://host:5000")


@pytest.mark.parametrize("uri", ["sqlite:///mlflow.db", "http://host:5000"])
def test_other_errors_are_raised_at_once(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_answers", lambda uri: True)
    tries = []

    def action() -> None:
        tries.append(1)
        raise RuntimeError("wrong")

    with pytest.raises(RuntimeError, match="wrong"):
        patiently(action, lambda: None, uri)
    assert len(tries) == 1


def test_what_a_connection_error_was_wrapped_in_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow raises its own exception while it handles that of the connection, and does not name it as the cause."""
    monkeypatch.setattr(patience, "_answers", lambda uri: True)  # it is back already
    error = ValueError("API request failed")
    error.__context__ = ConnectionError("reset")
    assert patience._is_away(error, "http://host:5000")
    assert not patience._is_away(ValueError("wrong"), "http://host:5000")


class Server:
    """An MLflow server on a port of its own, that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self.start()

    def start(self) -> None:
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)),
                    *("--workers", "1", "--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"),
                ],
                cwd=self._folder,
                env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        until(lambda: patience._answers(self.address), "the server's start")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.slow
def test_a_server_that_is_killed_half_way_and_comes_back_ends_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    records = [record(f"own_{number}", size) for number in range(6) for size in (KIB, MIB)]
    bundle.write(records, tmp_path / "six.jsonl.xz", is_quick=True)
    (kept,) = by_command([tmp_path / "six.jsonl.xz"], tmp_path / "unpacked")[0].values()
    server = Server(tmp_path)
    monkeypatch.setattr(patience, "RETURN_S", 150.0)
    try:
        server.wait()
        sending = CommandRun._send_series
        calls: list[int] = []

        def killed_in_the_middle(run: CommandRun, *arguments: object) -> None:
            calls.append(1)
            if len(calls) == 3:
                server.kill()
            sending(run, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(CommandRun, "_send_series", killed_in_the_middle)
        waits, waiting = threading.Event(), patience._is_back
        monkeypatch.setattr(patience, "_is_back", lambda *given: (waits.set(), waiting(*given))[1])
        with pressed(waits.is_set, server.start):
            said, _ = send_folder(kept, server.address, "killed")
        assert said.startswith("12 records sent")
        client = MlflowClient(tracking_uri=server.address)
        experiment = client.get_experiment_by_name("killed")
        runs = client.search_runs([experiment.experiment_id])
        children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
        assert (len(children), len(runs)) == (6, 7)
        assert {run.info.status for run in runs} == {"FINISHED"}
        for run in children:
            assert len(client.get_metric_history(run.info.run_id, "latency/time_us")) == 2
            assert len(client.list_artifacts(run.info.run_id, "records")) == 2
        assert "already sent" in send_folder(kept, server.address, "killed")[0]
    finally:
        server.kill()
