"""The matrix ends at SIGTERM and SIGHUP as it does at Ctrl-C: its workers and their folder go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tests.matrix.__main__ as matrix
from tests.patience import PATIENCE_S, until


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_a_signal_closes_what_runs(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = []
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:  # as under nohup, where the matrix goes on, too
        signal.signal(number, signal.SIG_DFL)

    def run(*given: object) -> Any:
        try:
            yield []
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            closed.append(number)

    monkeypatch.setattr(matrix, "_run", run)
    try:
        assert matrix.main(["--few", "--kernel", "barrier/push", "--world-size", "2"]) == code
    finally:
        signal.signal(number, before)
    assert closed == [number]
    assert f"tests.matrix: {number.name}: not all rows were run" in capsys.readouterr().err


@pytest.mark.slow
def test_sigterm_ends_the_workers_of_a_launcher(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    line = [sys.executable, "-m", "tests.matrix", "--few", "--world-size", "4", "--launcher", "joblib"]
    process = subprocess.Popen(
        [*line, "--launcher", "hydra.launcher.n_jobs=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: list(tmp_path.glob(".symlab-tasks-*/.launch/claims/*")), "a task's start")
        process.terminate()
        said = process.communicate(timeout=PATIENCE_S)[1]  # which waits for all that hold its pipe: the workers, too
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143, said
    assert b"SIGTERM: not all rows were run" in said
    assert list(tmp_path.iterdir()) == []
