"""Sweeps on a real Slurm of two nodes: what is cancelled, requeued or interrupted is named; resume runs the rest."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from cases.record.record import load
from reports.record.bundle import record_files
from runner.launch.files import LAUNCH
from runner.records.command_json import command_document_of
from tests.patience import NEVER_S, PATIENCE_S
from tests.processes import begun, ran
from tests.runner.launch.held_jobs import HeldJobs
from tests.runner.launch.slurm_cluster import why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

SWEEP = ("world_size=2", "sizes=[64]", "algorithms=[one_shot]", "fabric=simulator", "track=none")
"""A job of one short case; a test that has to meet a worker at work holds the job. A worker takes seconds to start, so
there are few."""


def sweep(environment, folder, *overrides):
    """A sweep that is under way, in a folder."""
    line = ["-m", "symlab", "run", "-m", *SWEEP, "hydra/launcher=submitit_slurm", *overrides]
    return begun(*line, cwd=folder, env=environment)


def ended(process):
    """What a command has said, once it has ended."""
    said, _ = process.communicate(timeout=NEVER_S)
    return said


def waited(found):
    """What found returns, once it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not come")


def folder_of(records):
    """The only command's folder."""
    (found,) = waited(lambda: list(records.glob("*-all_reduce-*")))
    assert isinstance(found, Path)
    return found


def at_work(held, folder, count):
    """So many workers that wait in a job, once there are."""
    found = waited(lambda: workers if len(workers := held.workers(folder)) == count else None)
    assert isinstance(found, list)
    return found


def document(folder):
    return command_document_of(folder)


def resumed(slurm, folder, *options):
    line = ["-m", "symlab", "resume", str(folder), *options]
    return ran(*line, env=slurm.environment, cwd=folder.parent.parent)


def test_a_cancelled_job_costs_what_it_did(slurm, tmp_path):
    held = HeldJobs(tmp_path / "held", range(8))
    begun_in = held.environment(slurm.environment)
    process = sweep(begun_in, tmp_path, "seed=1,2,3,4,5,6,7,8", "hydra.launcher.array_parallelism=4")
    folder = folder_of(tmp_path / "records")
    at_work(held, folder, 4)
    job, *_ = next(line for line in slurm.queue() if line.endswith("node1")).split()
    slurm.said("scancel", job)
    waited(lambda: not any(line.startswith(f"{job} ") for line in slurm.queue(with_completing=True)))
    held.release()
    said = ended(process)
    found = document(folder)
    lost = {job for job, _ in found.end.cases_not_run}
    assert process.returncode == 1, said
    assert f"Slurm job {job}: CANCELLED" in said
    (gone,) = lost
    assert f"lost: job {gone + 1} (" in said
    assert not (folder / LAUNCH).exists()
    assert slurm.queue() == []
    before = {path: path.stat().st_mtime_ns for path in record_files(folder)}
    assert len(before) == 7
    again = resumed(slurm, folder)
    assert again.returncode == 0, again.stdout + again.stderr
    after = {path: path.stat().st_mtime_ns for path in record_files(folder)}
    assert len(after) == 8
    assert {path: after[path] for path in before} == before
    assert {load(path).request.resumed for path in set(after) - set(before)} <= {1}


def test_a_requeued_worker_goes_on(slurm, tmp_path):
    """It begins again with the job that it had, runs none twice, and nothing is lost."""
    held = HeldJobs(tmp_path / "held", (1,))
    process = sweep(held.environment(slurm.environment), tmp_path, "seed=1,2,3", "hydra.launcher.array_parallelism=1")
    folder = folder_of(tmp_path / "records")
    at_work(held, folder, 1)
    assert len(record_files(folder)) == 1
    slurm.said("scontrol", "requeue", slurm.queue()[0].split()[0])
    slurm.start_requeued()
    waited(lambda: [one for one in held.workers(folder) if one.starts == 2])
    held.release()
    said = ended(process)
    assert process.returncode == 0, said
    assert "was requeued and goes on (start 2)" in said
    assert document(folder).end.cases_not_run == ()
    ids = [(one.request.job, one.id) for one in map(load, record_files(folder))]
    assert len(ids) == len(set(ids)) == 3
    assert slurm.queue() == []


def test_an_interrupt_leaves_nothing_in_the_queue(slurm, tmp_path):
    held = HeldJobs(tmp_path / "held", range(2, 8))
    begun_in = held.environment(slurm.environment)
    process = sweep(begun_in, tmp_path, "seed=1,2,3,4,5,6,7,8", "hydra.launcher.array_parallelism=2")
    folder = folder_of(tmp_path / "records")
    at_work(held, folder, 2)
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert process.returncode == 130, said
    assert slurm.queue() == []
    found = document(folder)
    assert (found.end.outcome, found.end.why) == ("interrupted", "SIGINT")
    left = set(found.end.cases_not_run)
    assert {job for job, _ in left} == set(range(2, 8))
    before = set(record_files(folder))
    again = resumed(slurm, folder, "--launcher", "joblib", "--launcher", "hydra.launcher.n_jobs=2")
    assert again.returncode == 0, again.stdout + again.stderr
    new = [load(path) for path in set(record_files(folder)) - before]
    assert {(one.request.job, one.id) for one in new} == left
    assert {(one.environment.launch or {})["worker"]["launcher"] for one in new} == {"joblib"}
    audit = ran("-m", "symlab", "audit", str(folder), "--rerun", "2", env=slurm.environment)
    assert (audit.returncode, audit.stdout.splitlines()[-1][:14]) == (0, "DATA VERIFIED:"), audit.stdout


def test_a_second_interrupt_says_what_is_still_there(slurm, tmp_path):
    """The command's scancel waits until the second one has come: the real one is over in no time."""
    held, programs = HeldJobs(tmp_path / "held", range(4)), tmp_path / "programs"
    waits, scancel = tmp_path / "scancel-waits", shutil.which("scancel")
    waits.touch()
    programs.mkdir()
    lines = ("#!/bin/sh", f"while [ -e '{waits}' ]; do sleep 0.05; done", f'exec {scancel} "$@"')
    (programs / "scancel").write_text("\n".join(lines))
    (programs / "scancel").chmod(0o755)
    environment = held.environment(slurm.environment)
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
    process = sweep(environment, tmp_path, "seed=1,2,3,4", "hydra.launcher.array_parallelism=1")
    folder = folder_of(tmp_path / "records")
    at_work(held, folder, 1)
    process.send_signal(signal.SIGINT)
    waited(lambda: (folder / LAUNCH / "stop").exists())
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert process.returncode == 130, said
    assert "symlab: left at once; still there: Slurm jobs; scancel --name=symlab-" in said
    waits.unlink()
    waited(lambda: not slurm.queue())
