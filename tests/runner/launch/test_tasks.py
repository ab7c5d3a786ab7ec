"""Tasks on a launcher's workers: each is done once, what was lost is named, and nothing stays."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.launch import started
from runner.launch import tasks as tasks_module
from runner.launch.files import LaunchFiles
from runner.launch.tasks import Answer, Tasks, folder_for_tasks
from runner.request.compose import launcher_of
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError
from tests.golden import refused


def joblib(workers: int) -> LaunchRequest:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    request = launcher_of(["joblib", f"hydra.launcher.n_jobs={workers}"])
    assert request is not None
    return request


@dataclass(frozen=True)
class Squares:
    """What workers do: a square; task 2 raises, and task `kills` ends its worker."""

    kills: int = -1

    def __call__(self, task: int) -> int:
        if task == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == 2:
            raise ValueError("two is odd\nhere")
        return task * task


class Here:
    """Stands for the launcher: runs the workers one after another, in this process."""

    def __init__(self, request: LaunchRequest, work: Any, workers: Sequence[int], *rest: Any) -> None:
        self.error: BaseException | None = None
        self.is_over = True
        self.returns = [type("Return", (), {"return_value": work(worker)})() for worker in workers]


def by_task(found: list[Answer]) -> dict[int, Answer]:
    assert len({one.task for one in found}) == len(found), "each task is answered once"
    return {one.task: one for one in found}


@pytest.mark.slow
def test_each_task_is_done_once_by_real_workers_and_one_that_is_killed_is_named(tmp_path: Path) -> None:
    found = by_task(list(Tasks(joblib(2), Squares(kills=4), 7, tmp_path / "tasks")))
    assert sorted(found) == list(range(7))
    assert {task: one.result for task, one in found.items() if not one.lost} == {0: 0, 1: 1, 3: 9, 5: 25, 6: 36}
    assert found[2].lost == "ValueError: two is odd"
    assert found[4].lost.startswith("worker ")
    assert "is gone" in found[4].lost
    assert list(tmp_path.iterdir()) == []


def test_nothing_more_is_taken_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "Started", Here)
    made = Tasks(LaunchRequest("joblib", (), {"n_jobs": 1}), Squares(), 5, tmp_path / "tasks")
    files = LaunchFiles(tmp_path / "tasks")

    class Stopping(Squares):
        def __call__(self, task: int) -> int:
            if task == 1:
                made.stop()
            return super().__call__(task)

    made._do = Stopping()
    assert [one.task for one in made] == [0, 1], "what was begun ends, and the rest is not called lost"
    assert not files.folder.exists()


def test_a_worker_whose_command_was_killed_takes_nothing_and_removes_the_folder(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    folder = tmp_path / "tasks"
    folder.mkdir()
    LaunchFiles(folder).create("token")
    work = tasks_module._Worker(Squares(kills=0), 2, str(folder), "token", socket.gethostname(), killed.pid, 1)
    assert work(0) == ""
    assert not folder.exists()


def test_tasks_that_no_worker_could_take_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Here):
        def __init__(self, request: LaunchRequest, work: Any, workers: Sequence[int], *rest: Any) -> None:
            object.__setattr__(work, "folder", "/nowhere")
            super().__init__(request, work, workers)

    monkeypatch.setattr(tasks_module, "Started", Elsewhere)
    found = list(Tasks(LaunchRequest("joblib", (), {"n_jobs": 2}), Squares(), 2, tmp_path / "tasks"))
    assert [one.task for one in found] == [0, 1]
    assert all("does not see the folder /nowhere" in one.lost for one in found)


class Broken(Here):
    """Stands for joblib, which could not send what its workers are to do; the cause is of another thread."""

    def __init__(self, *given: Any) -> None:
        self.is_over, self.returns = True, []
        self.error: BaseException | None = pickle.PicklingError("Could not pickle the task")
        self.error.__cause__ = RuntimeError('\n"""\nTraceback\n  File "x.py", line 1\nOSError: handle is closed\n"""')


def test_joblib_is_started_once_more_if_its_workers_got_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[type[Here]] = []

    def start(*given: Any) -> Here:
        made.append(Here if made else Broken)
        return made[-1](*given)

    monkeypatch.setattr(tasks_module, "Started", start)
    found = list(Tasks(LaunchRequest("joblib", (), {"n_jobs": 1}), Squares(), 2, tmp_path / "tasks"))
    assert [(one.task, one.result) for one in found] == [(0, 0), (1, 1)]
    assert made == [Broken, Here]


@pytest.mark.parametrize(("launcher", "starts"), [("joblib", 2), ("submitit_local", 1)])
def test_a_launcher_that_never_gives_its_workers_anything_says_why(
    launcher: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Broken] = []
    monkeypatch.setattr(tasks_module, "Started", lambda *given: made.append(Broken()) or made[-1])
    given = {"n_jobs": 1} if launcher == "joblib" else {}
    found = list(Tasks(LaunchRequest(launcher, (), given), Squares(), 1, tmp_path / "tasks"))
    assert [one.lost for one in found] == ["Could not pickle the task (OSError: handle is closed)"]
    assert len(made) == starts


def test_work_is_pickled_by_the_names_of_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """cloudpickle would take a class along that has another name by now, with all that its module holds."""
    work = Squares()
    assert started._Task(work)._work == pickle.dumps(work)
    monkeypatch.setattr(sys.modules[__name__], "Squares", None)
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        started._Task(work)


def test_leaving_early_ends_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(tasks_module, "Started", Here)
    monkeypatch.setattr(tasks_module, "end_joblib", lambda: ended.append("joblib"))
    for _ in Tasks(LaunchRequest("joblib", (), {"n_jobs": 1}), Squares(), 3, tmp_path / "tasks"):
        break
    assert ended == ["joblib"]
    assert list(tmp_path.iterdir()) == []


def test_slurm_jobs_that_are_gone_end_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra's launcher would wait for them for ever."""

    class Waiting(Here):
        def __init__(self, request: LaunchRequest, work: Any, workers: Sequence[int], *rest: Any) -> None:
            self.error, self.is_over, self.returns = None, False, []

    job = tasks_module.slurm.SlurmJob("7_0", 0, "NODE_FAIL", "node1", "")
    monkeypatch.setattr(tasks_module, "Started", Waiting)
    monkeypatch.setattr(tasks_module, "SLURM_S", 0.0)
    monkeypatch.setattr(tasks_module.slurm, "listed", lambda name: [job])
    cancelled: list[str] = []
    monkeypatch.setattr(tasks_module.slurm, "check_here", lambda launch: None)
    monkeypatch.setattr(tasks_module.slurm, "cancelled", lambda name, *rest: cancelled.append(name) or [])
    found = list(Tasks(LaunchRequest("submitit_slurm", (), {}), Squares(), 2, tmp_path / "tasks"))
    assert [one.lost for one in found] == ["no worker took it"] * 2
    assert len(cancelled) == 1


def test_a_launcher_is_one_that_there_is_and_the_folder_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launcher_of([]) is None
    for lines in (["jobblib"], ["hydra.launcher.n_jobs=2"]):
        with refused(RequestError):
            launcher_of(lines)
    monkeypatch.chdir(tmp_path)
    assert folder_for_tasks().parent == tmp_path
    assert folder_for_tasks() != folder_for_tasks()
