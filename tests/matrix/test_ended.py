"""The matrix ends at SIGTERM and SIGHUP as it does at Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

import tests.matrix.__main__ as matrix


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
