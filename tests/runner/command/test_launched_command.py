"""The command's side of a launch: what it says while workers work, and why jobs were lost."""

import functools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from reports.record.bundle import record_files
from runner.command import launched
from runner.command.console import Console
from runner.command.forecast import _available
from runner.command.launched import Launched
from runner.command.plan import prepare
from runner.command.resume import resume
from runner.command.running import Asked
from runner.command.start import start
from runner.command.still_working import check_no_worker
from runner.interrupt import Interrupted, interruptible
from runner.launch.files import LAUNCH, LaunchFiles, WorkerState
from runner.launch.slurm import SlurmJob
from runner.records.store import Store
from runner.request.compose import compose_command, hydra_over
from runner.request.options import RunOptions
from runner.request_error import RequestError
from tests.golden import refused, same_text
from tests.processes import ran

SWEEP = ("seed=1,2,3", "sizes=[64]", "algorithms=[one_shot]", "fabric=simulator", "track=none")


class Said(Console):
    """A console that keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.warned = []
        self.counts = [""]
        self.warn = self.warned.append
        self.spread = self.counts.append


class Handed:
    """Stand-in for runner.launch.started.Started: workers are handed over, and the test says what becomes of them."""

    became: Callable[[Path, tuple[int, ...]], None] = staticmethod(lambda folder, workers: None)

    def __init__(self, request, work, workers, options, folder):
        self.workers = tuple(workers)
        self.error = None
        self.is_over = True
        type(self).became(Path(work.folder), self.workers)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("LOOK_S", "LOOK_SLURM_S", "SILENT_S", "GONE_S"):
        monkeypatch.setattr(launched, name, 0.0)
    monkeypatch.setattr("runner.launch.started.Started", Handed)
    monkeypatch.setattr(Handed, "became", staticmethod(lambda folder, workers: None))


JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


@functools.cache
def asked_for(*lines):
    with hydra_over():
        jobs, launch = compose_command([*SWEEP, *lines], True)
    return replace(prepare((), jobs, memory=lambda: 1 << 40), launch=launch)


def becomes(monkeypatch, change):
    """Say what workers do to the command's folder once they are handed over."""
    monkeypatch.setattr(Handed, "became", staticmethod(lambda folder, workers: change(folder)))


def launching(command, console, name="", kept=None):
    """The command's launch, in a new folder."""
    name = name or "20260101T000000Z-all_reduce-00000000"
    folder = Path("new") / name
    folder.mkdir(parents=True)
    asked = Asked(name, (), len(command.jobs), {})
    return Launched(command, asked, Store(folder), console, kept or (lambda record: None), lambda job: None)


def test_a_slurm_that_does_not_answer_is_told_once(monkeypatch):
    """And workers that wait in its queue are counted, until it says that they have failed."""
    looks = iter([None, None, None, "PENDING"])

    def listed(name):
        state = next(looks, "FAILED")
        return None if state is None else [SlurmJob("7_0", 0, state, "", "PartitionDown")]

    monkeypatch.setattr("runner.launch.slurm.listed", listed)
    console = Said()
    launch = launching(asked_for("hydra/launcher=submitit_slurm", "hydra.launcher.array_parallelism=1"), console)
    launch.run()
    assert "0 running, 0 of 3 jobs done, 1 worker queued" in console.counts
    same_text("\n".join([*console.warned, launch.problem]))


def test_a_lost_job_is_named_with_what_its_worker_said(monkeypatch):
    """Else with how the worker ended, if it said so."""

    def became(folder):
        files = LaunchFiles(folder)
        for job, worker in ((0, 0), (1, 0), (2, 1)):
            files.claim(job, worker)
        files.write_state(WorkerState(0, host="here", process=1 << 30, job=1, lost={0: "a word of its own"}))
        files.write_state(WorkerState(1, host="here", process=1 << 30, how="SIGTERM"))

    becomes(monkeypatch, became)
    console = Said()
    launching(asked_for(*JOBLIB), console).run()
    same_text("\n".join(console.warned))


def test_an_error_of_ours_leaves_no_worker_and_no_file(symlab, monkeypatch):
    monkeypatch.setattr(Launched, "_watch", Mock(side_effect=RuntimeError("not foreseen")))
    with pytest.raises(RuntimeError, match="not foreseen"):
        symlab("-m", *SWEEP, *JOBLIB)
    (folder,) = Path("records").iterdir()
    assert not (folder / LAUNCH).exists()


def test_workers_that_start_during_an_interrupt_are_known(monkeypatch):
    """A command cancels the workers that it knows: these are among them."""
    becomes(monkeypatch, lambda folder: os.kill(os.getpid(), signal.SIGTERM))
    launch = launching(asked_for(*JOBLIB), Said())
    with pytest.raises(Interrupted), interruptible():
        launch.run()
    assert [started.workers for started, _ in launch._started] == [(0, 1)]


@pytest.mark.slow
def test_a_wrong_launcher_is_refused_of_a_complete_folder_as_well(symlab):
    assert symlab("-m", *SWEEP).code == 0
    (folder,) = Path("records").iterdir()
    assert resume(folder, "none", launcher=["joblib"]) == 0
    with refused(RequestError):
        resume(folder, "none", launcher=["nonsense"])


@pytest.mark.parametrize("squeue", ["exit 1", 'echo "7_0|RUNNING|node1|None"'])
def test_a_resumption_needs_slurms_word_that_no_worker_is_left(tmp_path, monkeypatch, squeue):
    """No answer is no empty queue: a second command would run the same cases beside the first one's workers."""
    environment = programs(tmp_path / "programs")
    monkeypatch.setenv("PATH", environment["PATH"])
    (tmp_path / "programs" / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
    files = LaunchFiles(tmp_path)
    files.create("a token", "submitit_slurm a-1,a-1-1")
    with refused(RequestError, r"test_a_resumption_needs_slurms\d+"):
        check_no_worker(tmp_path)
    assert files.name == ("submitit_slurm", "a-1,a-1-1")
    (tmp_path / "programs" / "squeue").write_text("#!/bin/sh\n")
    check_no_worker(tmp_path)
    assert not files.folder.exists()


@pytest.mark.parametrize("name", ["%j", "${y}"])
def test_a_path_that_submitit_would_fill_in_is_refused(tmp_path, symlab, monkeypatch, name):
    monkeypatch.setattr("shutil.which", lambda name: name)
    place = tmp_path / name
    place.mkdir()
    os.chdir(place)
    done = symlab("-m", *SWEEP, "hydra/launcher=submitit_slurm")
    assert (done.code, list(place.iterdir())) == (2, [])
    same_text(done.err)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((), "3.0G is available"),
        (("hydra/launcher=joblib", "hydra.launcher.n_jobs=1"), "3.0G is available to each of 1 worker"),
        (JOBLIB, "1.5G is available to each of 2 workers"),
        (("hydra/launcher=submitit_slurm",), "a worker looks at what Slurm gives it"),
    ],
)
def test_a_plans_memory_is_that_of_its_workers(lines, says):
    assert _available(asked_for(*lines), 3 << 30) == says


def programs(folder):
    """The variables of a machine that has Slurm's programs, and no Slurm that they can reach."""
    folder.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name}: error: no controller' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_slurm_is_refused_where_it_is_missing_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with refused(RequestError):
        start((), RunOptions(overrides=(*SWEEP, "hydra/launcher=submitit_slurm"), multirun=True))
    assert list(Path().iterdir()) == []


@pytest.mark.slow
def test_slurm_that_is_missing_is_no_reason_to_touch_a_folder_that_is_resumed(tmp_path, monkeypatch):
    environment = programs(tmp_path / "programs")
    ran("-m", "symlab", "run", "-m", *SWEEP, "hydra/launcher=submitit_slurm", env=environment)
    (folder,) = Path("records").iterdir()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr("shutil.which", lambda name: None)
    with refused(RequestError):
        resume(folder, "none")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_without_a_slurm_that_answers_a_command_ends_and_keeps_no_secret(tmp_path):
    environment = programs(tmp_path / "programs")
    given = ("hydra/launcher=submitit_slurm", "hydra.launcher.comment='http://user:hunter2@host'")

    def said(*words):
        return ran("-m", "symlab", *words, env=environment)

    done = said("run", "-m", *SWEEP, *given)
    assert done.returncode == 1, done.stderr
    assert "error: 3 jobs were lost (no worker took it; worker 1: sbatch: error: no controller)" in done.stderr
    assert done.stderr.count("symlab: lost: job ") == 3
    (folder,) = Path("records").iterdir()
    assert record_files(folder) == []
    for path in folder.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path
    recorded = json.loads((folder / "command.json").read_text())["launcher"]
    assert recorded == ["hydra/launcher=submitit_slurm", "hydra.launcher.comment='http://withheld@host'"]
    again = said("resume", str(folder))
    assert again.returncode == 2
    assert "had a secret, which is not kept (RECORDS), give the launcher" in again.stderr
    wrong = said("resume", str(folder), "--launcher", "joblib", "--launcher", "hydra.launcher.n_jobs=0")
    assert wrong.returncode == 2
    assert "no worker was asked for (hydra.launcher.n_jobs)" in wrong.stderr
    assert "as it began" not in wrong.stderr
