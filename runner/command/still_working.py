"""What may still be at work in the folder of a command that is gone: workers of a launcher, and the process that sends
records to MLflow."""

from __future__ import annotations

import socket
from pathlib import Path

from memory.owned_folder import is_alive
from runner.command.recorded_jobs import UNTRACKED
from runner.launch import slurm
from runner.launch.files import LaunchFiles
from runner.launch.workers import SLURM
from runner.records.lock import MIRROR_LOCK_NAME, FolderInUse, wait_for
from runner.request_error import RequestError

MIRROR_PATIENCE_S = 60.0
"""How long to wait for the process that sends the records of the command's first part to MLflow."""


def check_no_worker(folder: Path) -> None:
    """RequestError if workers of a command that is gone still write in its folder."""
    files = LaunchFiles(folder)
    launcher, name = files.name
    if not launcher:
        return
    if launcher == SLURM:
        listed = slurm.listed(name)
        if listed is None:
            raise RequestError(
                f"{folder.name}: Slurm does not say whether jobs named {name} still work in it (RECORDS), resume where "
                f"squeue answers; or, if none is left, remove {files.folder} first"
            )
        if found := [job for job in listed if not job.is_gone]:
            names = ", ".join(job.submission for job in found)
            raise RequestError(
                f"{folder.name}: Slurm jobs {names} still work in it (RECORDS), wait for them, or end them: "
                f"scancel {' '.join(job.submission for job in found)}"
            )
    else:
        states = [one for one in files.states() if one.host == socket.gethostname() and not one.how]
        if alive := [str(one.process) for one in states if one.process and is_alive(one.process)]:
            raise RequestError(
                f"{folder.name}: processes {', '.join(alive)} still work in it (RECORDS), wait for their end"
            )
    files.remove()


def wait_for_mirror(folder: Path) -> None:
    """Wait until the process that sent the command's records to MLflow is gone: it outlives a command that was killed,
    and would open a run beside the one that goes on, or end it. RequestError if that takes too long."""

    def waiting(error: FolderInUse) -> None:
        print(
            f"symlab resume: {error}: it sends the first part's records to MLflow; waiting for it (at most "
            f"{MIRROR_PATIENCE_S:.0f} s)",
            flush=True,
        )

    try:
        wait_for(folder, MIRROR_LOCK_NAME, MIRROR_PATIENCE_S, waiting)
    except FolderInUse as error:
        raise RequestError(
            f"{error}, and sends records to MLflow (RECORDS), resume it after that process has ended, or give --uri "
            f"{UNTRACKED} to send nothing to MLflow"
        ) from None
