"""What may still be at work in the folder of a command that is gone: workers of a launcher."""

from __future__ import annotations

import socket
from pathlib import Path

from memory.owned_folder import is_alive
from runner.launch import slurm
from runner.launch.files import LaunchFiles
from runner.launch.workers import SLURM
from runner.request_error import RequestError


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
