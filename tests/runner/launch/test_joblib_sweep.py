"""A sweep on joblib's workers: one folder, one manifest, a consistent audit; a job whose process is killed is named."""

import contextlib
import os
import select
import signal
import sqlite3
from pathlib import Path

import pytest

from cases.record.record import load
from reports.record.bundle import record_files
from reports.record.seal import broken
from runner.launch.files import LAUNCH, LaunchFiles, WorkerState
from runner.records.command_json import command_document_of
from tests.patience import NEVER_S, PATIENCE_S, until
from tests.processes import begun
from tests.runner.launch.held_jobs import HeldJobs

pytestmark = pytest.mark.slow

SWEEP = ("world_size=2", "sizes=[64]", "algorithms=[one_shot]", "fabric=simulator")
SWEEP += ("track.uri=sqlite:///t.db", "seed=1,2,3,4")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def symlab(folder, *words, held=None, **options):
    return begun("-m", "symlab", *words, cwd=folder, env=held.environment({}) if held else {}, **options)


def at_work(held, folder, count):
    """So many workers of the only command that wait in a job, once there are."""
    found: list[WorkerState] = []

    def are_there():
        found[:] = [one for records in folder.glob("records/*") for one in held.workers(records)]
        return len(found) == count

    until(are_there, f"the start of {count} workers' jobs")
    return found


def read_until(text, process):
    """Read what a command says, up to a text."""
    said = b""
    while text not in said:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0], said
        part = os.read(process.stdout.fileno(), 1 << 16)
        assert part, said
        said += part


def series_of(database):
    """The status of each command's run in a database of MLflow, and the number of finished series under it."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        runs = dict(connection.execute("select run_uuid, status from runs").fetchall())
        above = dict(connection.execute("select run_uuid, value from tags where key = 'mlflow.parentRunId'").fetchall())
    parents = [run for run in runs if run not in above]
    return [
        (runs[one], sum(parent == one and runs[run] == "FINISHED" for run, parent in above.items())) for one in parents
    ]


def test_a_killed_job_is_named_and_resume_runs_it(tmp_path):
    held = HeldJobs(tmp_path / "held", range(4))
    process = symlab(tmp_path, "run", "-m", *SWEEP, *JOBLIB, held=held)
    killed = at_work(held, tmp_path, 2)[0]
    os.kill(killed.process, signal.SIGKILL)
    held.release()
    said, _ = process.communicate(timeout=NEVER_S)
    (folder,) = (tmp_path / "records").iterdir()
    document = command_document_of(folder)
    assert process.returncode == 1, said
    assert document.end.cases_not_run == ((killed.job, document.jobs[killed.job].cases[0]),)
    assert f"lost: job {killed.job + 1} (" in said
    assert "its process ended by SIGKILL" in said
    assert "4 cases: 3 passed, 1 not run" in said
    assert not (folder / LAUNCH).exists()
    assert broken(folder) == []

    before = set(record_files(folder))
    process = symlab(tmp_path, "resume", str(folder))
    said, _ = process.communicate(timeout=NEVER_S)
    assert process.returncode == 0, said
    assert series_of(tmp_path / "t.db") == [("FINISHED", 4)]
    (new,) = set(record_files(folder)) - before
    assert (load(new).request.job, load(new).request.resumed) == (killed.job, 1)

    process = symlab(tmp_path, "audit", str(folder))
    said, _ = process.communicate(timeout=NEVER_S)
    assert "; consistent;" in said, said


def still_in(folder):
    """The command lines of processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.joinpath("cwd").readlink() == folder:
                found.append(path.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.parametrize("signals", [(signal.SIGKILL,), (signal.SIGINT, signal.SIGINT)], ids=["killed", "interrupted"])
def test_no_process_stays_of_a_command_that_left_at_once(signals, tmp_path):
    """A process that stayed would keep open what a reader of the command reads.

    Workers that are stopped (SIGSTOP) can't end, as the first interrupt asks for, before the second one comes.
    """
    held = HeldJobs(tmp_path / "held", (2, 3))
    process = symlab(tmp_path, "run", "-m", *SWEEP, "track=none", *JOBLIB, held=held)
    workers = at_work(held, tmp_path, 2)
    (folder,) = (tmp_path / "records").iterdir()
    # The command names the processes that it has seen, and one that took a job's record has seen that job's worker.
    read_until(b"jobs done)", process)
    assert len(still_in(tmp_path)) >= 3
    if len(signals) > 1:
        for one in workers:
            os.kill(one.process, signal.SIGSTOP)
    process.send_signal(signals[0])
    for number in signals[1:]:
        until(LaunchFiles(folder).folder.joinpath("stop").exists, "the first signal's effect")
        process.send_signal(number)
    said, _ = process.communicate(timeout=NEVER_S)
    for one in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.process, signal.SIGCONT)
    assert process.returncode == (-9 if signals == (signal.SIGKILL,) else 130), said
    assert ("still there: workers, which end by themselves" in said) == (signals != (signal.SIGKILL,)), said
    assert signals == (signal.SIGKILL,) or "Warning" not in said, said
    until(lambda: not still_in(tmp_path), "the end of all processes")
