"""Launchers in folders with odd names, a terminal's Ctrl-C while joblib's workers start, and workers that are killed
between their jobs."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reports.record.bundle import record_files
from runner.launch.files import LAUNCH, LaunchFiles, WorkerState
from runner.launch.started import _literal, _quoted
from runner.launch.supervisor import MOST_STARTS_BETWEEN, Supervisor
from tests.patience import NEVER_S, until

SWEEP = ("op=barrier", "world_size=2", "algorithms=[push]", "fabric=simulator", "launches=1", "track=none")
ODD = "${y} it's \\ü, a=[b]"


def symlab(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command in a session of its own, as one that a terminal starts."""
    return subprocess.Popen(
        [sys.executable, "-m", "symlab", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "text", ["/tmp/${y}", "/tmp/a'b", "/tmp/a\\b", "/tmp/a\\'b", "/tmp/a\\", "/tmp/a\\${x}'", "/tmp/$x", f"/tmp/{ODD}"]
)
def test_a_path_comes_through_hydra_as_it_is(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    parsed = OverridesParser.create().parse_override(f"place={_quoted(_literal(text))}").value()
    assert OmegaConf.create({"place": str(parsed)}).place == text


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "name"), [("joblib", ODD), ("submitit_local", ODD.replace("$", ""))])
def test_a_sweep_in_an_odd_folder(tmp_path: Path, launcher: str, name: str) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    folder = tmp_path / name
    folder.mkdir()
    process = symlab(folder, "run", "-m", *SWEEP, "seed=1,2,3", f"hydra/launcher={launcher}")
    said, _ = process.communicate(timeout=NEVER_S)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    (records,) = (folder / "records").iterdir()
    assert len(record_files(records)) == 3
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert {path.name for path in folder.iterdir()} == {"records"}


def loky_processes(command: int) -> list[int]:
    """joblib's processes of a command that run by now, by /proc."""
    found = []
    for task in Path(f"/proc/{command}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may have ended
            for child in (task / "children").read_text().split():
                if b"loky" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


@pytest.mark.slow
def test_ctrl_c_while_joblibs_workers_start_ends_without_a_traceback(tmp_path: Path) -> None:
    """A terminal sends it to all processes of the command's group, which joblib's are of."""
    process = symlab(
        tmp_path, "run", "-m", *SWEEP, "seed=range(1,20)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"
    )
    try:
        until(lambda: len(loky_processes(process.pid)) > 2, "the start of joblib's processes")
        workers = loky_processes(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=NEVER_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Warning" not in said, said
    until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers), "the end of joblib's processes")
    (records,) = (tmp_path / "records").iterdir()
    assert not (records / LAUNCH).exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_take_an_interrupt_of_their_own(tmp_path: Path, workers: int) -> None:
    """Their processes are told to end by a closed input, which interrupts them: one that blocks SIGINT would not."""
    lasting = ("world_size=2", "sizes=[1M]", "algorithms=[one_shot]", "fabric=simulator", "track=none")
    options = ("hydra/launcher=joblib", f"hydra.launcher.n_jobs={workers}")
    process = symlab(tmp_path, "run", "-m", *lasting, "seed=range(1,60)", *options)
    try:
        found: list[WorkerState] = []
        until(lambda: found.extend(states_at_work(tmp_path)) or found, "a worker at work")
        blocked = [blocked_by(one.process) for one in found]
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=NEVER_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert not any(one & 1 << signal.SIGINT - 1 for one in blocked)


def states_at_work(place: Path) -> list[WorkerState]:
    found = [one for folder in place.glob("records/*") for one in LaunchFiles(folder).states()]
    return [one for one in found if one.job is not None and one.process]


def blocked_by(process: int) -> int:
    """The signals that a process blocks, a bit each."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)


def test_a_process_that_is_killed_between_jobs_is_started_again(tmp_path: Path) -> None:
    """And not without end: what kills each of them may be the machine."""
    LaunchFiles(tmp_path).create("a token")
    steps = [("killed",)] * (MOST_STARTS_BETWEEN - 1) + [("job", 1)]
    launch = Supervisor("tests.runner.launch.stub_worker", pickle.dumps(steps), str(tmp_path), "a token")
    assert launch(0).state.how == "finished"
    assert (tmp_path / "did-1.json").exists()
    steps = [("killed",)] * MOST_STARTS_BETWEEN
    launch = Supervisor("tests.runner.launch.stub_worker", pickle.dumps(steps), str(tmp_path), "a token")
    assert launch(1).state.how == "its process was ended by SIGKILL"
