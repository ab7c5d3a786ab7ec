"""What Slurm says of the workers of a command, and how they are cancelled: squeue and scancel, by the workers' name.

submitit asks sacct, which needs an accounting database that many clusters lack; squeue answers on every one. Workers of
one command have one name, so that those whose submission has just begun are found, too.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from runner.request.launching import LaunchRequest
from runner.request_error import RequestError

LAUNCHER = "submitit_slurm"

PROGRAMS = ("sbatch", "srun")
"""What submitit starts workers with."""

ASKING_S = 30.0
"""Maximum time for an answer of Slurm's; its controller may be busy."""

GONE = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "REVOKED",
        "TIMEOUT",
    }
)
"""States of jobs that will not run again. PREEMPTED is not among them: Slurm may requeue such a job."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job in Slurm's list: its number, its index in its array (0 without one), its state, its node, the reason that
    Slurm gives, and how often it was requeued."""

    submission: str
    index: int
    state: str
    node: str
    reason: str

    @property
    def is_gone(self) -> bool:
        return self.state in GONE


def check_here(launch: LaunchRequest | None) -> None:
    """RequestError if a command's workers would be Slurm's jobs, and this machine lacks a program that starts them."""
    if launch is None or launch.name != LAUNCHER:
        return
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise RequestError(
            f"this machine has no Slurm, {' and '.join(missing)} can't be found (hydra/launcher={LAUNCHER}), start it "
            "on a machine of the cluster, or use joblib"
        )


def listed(name: str) -> list[SlurmJob] | None:
    """Return all jobs of a name that Slurm still knows, ended ones as well; None if Slurm does not answer."""
    form = "%i|%T|%N|%r"
    command = ["squeue", "--noheader", "--array", "--states=all", f"--name={name}", f"--format={form}"]
    said = _answered(command)
    return None if said is None else [_job(line) for line in said.splitlines() if line.count("|") >= 3]


def cancel(name: str) -> bool:
    """Ask Slurm to end all jobs of a name. Return whether it answered."""
    return _answered(["scancel", f"--name={name}"]) is not None


def cancelled(name: str, patience_s: float, is_submitting: Callable[[], bool]) -> list[SlurmJob]:
    """Cancel all jobs of a name, and wait until the queue has no such job. Return those that are left after the time.

    is_submitting says whether more may still come: then none in the list is no reason to stop asking.
    """
    deadline_s = time.monotonic() + patience_s
    left: list[SlurmJob] = []
    while True:
        cancel(name)
        found = listed(name)
        left = [job for job in (left if found is None else found) if not job.is_gone]
        if (found is not None and not left and not is_submitting()) or time.monotonic() > deadline_s:
            return left
        time.sleep(0.5)


def _answered(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKING_S, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _job(line: str) -> SlurmJob:
    submission, state, node, reason = line.strip().split("|", 3)
    index = submission.partition("_")[2]
    return SlurmJob(submission, int(index) if index.isdecimal() else 0, state, node, "" if reason == "None" else reason)
