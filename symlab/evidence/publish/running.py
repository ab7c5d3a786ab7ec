"""One world of a plan: `symlab run` in processes of its own.

It runs in an empty folder that is removed afterwards, so that its records hold no path of that folder. What counts is
a command that came to its end with a record of every case, whatever their status; anything else is a failed world.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from cases.record.record import Record
from memory.owned_folder import owned_folder
from memory.worker_process import PR_SET_PDEATHSIG
from reports.record.bundle import read
from reports.table.text import counted
from reports.table.unfinished import unfinished
from runner.interrupt import shielded
from runner.records.scrub import scrubbed

CLOSING_S = 30.0
"""Time limit for a world to end after an interrupt."""

WRONG_REQUEST = 2
"""The exit code of a command that was refused before anything ran."""

_RAN = (0, 1)
"""Exit codes of a command that came to its end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a world gave: all its records, or none and why in one line. exit_code: of the command."""

    records: tuple[Record, ...]
    exit_code: int
    why: str = ""


def run_world(code: Path, arguments: Sequence[str]) -> Ran:
    """Run `symlab run` with these arguments by the code in a folder, in new processes. An interrupt ends the world,
    then is raised."""
    with owned_folder("symlab-publish-") as place:
        records = Path(place, "records")
        with Path(place, "said").open("w+", encoding="utf-8", errors="replace") as said:
            exit_code = _run([sys.executable, "-P", "-m", "symlab", "run", *arguments], code, Path(place), said)
            said.seek(0)
            last = scrubbed((said.read().strip().splitlines() or [""])[-1]).replace(place, "")
        if exit_code not in _RAN:
            return Ran((), exit_code, last.removeprefix("symlab: error: ") or f"it ended with exit code {exit_code}")
        try:
            found = read([records]) if records.is_dir() else []
        except ValueError as error:
            return Ran((), exit_code, " ".join(str(error).replace(place, "").split()))
        if not found:
            return Ran((), exit_code, last or "it left no records")
        if unfinished([records], found):
            return Ran((), exit_code, f"only {counted(len(found), 'case')} came to an end: {last}")
        return Ran(tuple(found), exit_code)


def _run(command: Sequence[str], code: Path, place: Path, said: TextIO) -> int:
    """Run a command with the code of a folder first on Python's path. Returns its exit code. An interrupt ends it."""
    paths = [str(code), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        """In the child: SIGTERM comes when this process is killed, so that no world goes on without it."""
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    process = None
    try:
        with shielded():  # an exception within would leave a process that is never ended
            process = subprocess.Popen(
                command,
                cwd=place,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # a terminal's Ctrl-C comes to this process alone, which then ends the world
                preexec_fn=end_with_parent,
            )
        return process.wait()
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have a process end, and kill its group if it does not in CLOSING_S."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_S)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
