"""Workers end with their command, and its folder goes, however the command ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from memory.owned_folder import began_at
from runner.launch import lifeline as lifeline_module
from runner.launch.lifeline import HEARTBEAT, SILENT_S, Lifeline
from tests.patience import NEVER_S, PATIENCE_S, until

COMMAND = """
import os, sys, tempfile, time
from dataclasses import dataclass
from pathlib import Path
from runner.interrupt import interruptible
from runner.launch import lifeline
from runner.launch.tasks import Tasks
from runner.request.compose import launcher_of


@dataclass(frozen=True)
class Long:
    place: str

    def __call__(self, task):
        lifeline.PATIENCE_S = {patience_s}  # a busy machine's task cleans up late
        with tempfile.TemporaryDirectory(dir=self.place, prefix="of-task-"):
            Path(self.place, f"process-{{task}}").write_text(str(os.getpid()))
            time.sleep(3600)


def main():
    with interruptible():
        for answer in Tasks(launcher_of(sys.argv[1:]), Long(os.getcwd()), 2, Path("tasks")):
            pass
"""


def is_alive(process: int) -> bool:
    return began_at(process) is not None


@contextlib.contextmanager
def command(folder: Path, *launcher: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A command with two workers that are at work for minutes, and the workers' processes."""
    (folder / "long_tasks.py").write_text(COMMAND.format(patience_s=NEVER_S), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-c", "import long_tasks; long_tasks.main()", *launcher],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    workers: list[int] = []
    try:
        paths = [folder / f"process-{task}" for task in range(2)]
        until(lambda: all(path.exists() and path.read_text() for path in paths), "the workers' start")
        workers += [int(path.read_text()) for path in paths]
        yield process, workers
    finally:
        for number in (process.pid, *filter(is_alive, workers)):
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        (("joblib", "hydra.launcher.n_jobs=2"), signal.SIGKILL),
        pytest.param(("joblib", "hydra.launcher.n_jobs=2"), signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(("submitit_local", "hydra.launcher.cpus_per_task=1"), signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_workers_end_with_their_command(launcher: tuple[str, ...], number: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher[0].partition('_')[0]}_launcher")
    if launcher[0] == "submitit_local" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("submitit_local has one worker a core")
    with command(tmp_path, *launcher) as (process, workers):
        assert all(map(is_alive, workers))
        process.send_signal(number)  # a killed one stays as a dead entry until wait(), which is not alive
        until(lambda: not any(map(is_alive, workers)), "the workers' end")
        until(lambda: not (tmp_path / "tasks").exists(), "the folder's end")
        if number == signal.SIGKILL:
            assert list(tmp_path.glob("of-task-*")) == [], "a task cleans up"


def elsewhere(folder: Path) -> Lifeline:
    return replace(Lifeline.of_this_process(folder), machine="another one")


def test_elsewhere_the_heartbeat_stands_for_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline_module, "BEAT_S", 0.05)
    seen = elsewhere(tmp_path)
    alive = tmp_path / HEARTBEAT
    with Lifeline.of_this_process(tmp_path).beating():
        assert not seen.is_gone(1)
        os.utime(alive, (0, 0))
        until(lambda: not seen.is_gone(1), "a beat")
    now_s = time.time()
    for age_s, is_gone in ((SILENT_S - 20, False), (SILENT_S + 20, True)):
        os.utime(alive, (now_s - age_s, now_s - age_s))
        assert seen.is_gone(1) is is_gone
    os.utime(alive)
    monkeypatch.setattr(time, "time", lambda: now_s + 1e6)
    assert not seen.is_gone(1), "this machine's clock does not count"
    alive.unlink()
    assert seen.is_gone(1), "the command removed its folder"


def test_a_beat_does_not_bring_a_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline_module, "BEAT_S", 0.01)
    with Lifeline.of_this_process(tmp_path).beating():
        (tmp_path / HEARTBEAT).unlink()
        time.sleep(0.1)
        assert list(tmp_path.iterdir()) == []


def test_a_process_number_that_was_given_again_is_not_the_command(tmp_path: Path) -> None:
    ours = Lifeline.of_this_process(tmp_path)
    assert not ours.is_gone(0)
    assert replace(ours, began=ours.began + 1).is_gone(0)


def test_a_heartbeat_that_stops_ends_a_worker_of_another_machine(tmp_path: Path) -> None:
    """The worker is a process here that takes the command's machine for another one."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    script = (
        "import sys, time; from runner.launch import lifeline; lifeline.LOOK_ELSEWHERE_S = 0.1\n"
        "line = lifeline.Lifeline(sys.argv[1], 'another one', 1, 0)\n"
        "with line.held(3):\n    print('held', flush=True)\n    time.sleep(3600)\n"
    )
    (folder / HEARTBEAT).touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"held\n"
        time.sleep(0.3)
        assert worker.poll() is None
        os.utime(folder / HEARTBEAT, (0, 0))
        assert worker.wait(PATIENCE_S) != 0
    assert not folder.exists()
