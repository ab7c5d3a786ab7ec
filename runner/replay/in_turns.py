"""The recorded code, run again in turns with today's, so that drift of the machine is no change of the code.

Recorded times and those of a replay lie apart in time, and drift and change then look alike (reports/audit/order.py).
So where cases are timed and git has the recorded commit, each launch is two worlds: one of the recorded code, in a
worktree of that commit, and one of today's, in the order A B B A A B B A. What runs is the code that git has, below
HEAD or a local branch of this repository; a record's own files and differences are never run.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.record import bundle
from reports.record.bundle import SUFFIX
from runner.environment.worktree import last_line
from runner.interrupt import exit_code_of
from runner.records.command_json import COMMAND_JSON

if TYPE_CHECKING:
    from reports.record.record import Record

CLOSING_S = 30
"""Time limit for the recorded code to end after an interrupt."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the recorded code: wall-clock time, and for each of its processes writable memory and size of files."""

    time_s: float
    memory_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Turn:
    """How one world of the recorded code ended: the exit code, the folders of its commands, and the last line that it
    wrote to stderr."""

    exit_code: int
    folders: tuple[Path, ...]
    complaint: str


def order(launches: int) -> str:
    """Return the order of the worlds: A for one of the recorded code, B for one of today's, as A B B A A B B A."""
    return "".join("AB" if number % 2 == 0 else "BA" for number in range(launches))


def run_recorded(
    code: Path, records: Sequence[Record], arguments: Sequence[str], into: Path, bounds: Bounds | None = None
) -> Turn:
    """Run records again with the code in a folder, as one new world whose commands' folders are moved to into.

    arguments are further ones of the replay. An interrupt ends the world first; the exit code then says so. bounds: the
    code is stopped there, and what it made until then counts; an interrupt stops it at once, and is raised.
    """
    place = Path(tempfile.mkdtemp(prefix=".recorded-", dir=into))
    try:
        recorded = place / f"recorded{SUFFIX}"
        bundle.write(records, recorded)
        new = place / "records"
        command = [sys.executable, "-m", "runner", "replay", str(recorded), "--launches", "1", "--records", str(new)]
        with (place / "stderr").open("w+", encoding="utf-8", errors="replace") as complaints:
            exit_code, why = _run([*command, *arguments], code, complaints.fileno(), bounds)
            complaints.seek(0)
            complaint = why or last_line(complaints.read())
        made = sorted(path.parent for path in new.rglob(COMMAND_JSON)) if new.is_dir() else []
        return Turn(exit_code, tuple(folder.rename(into / folder.name) for folder in made), complaint)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(command: Sequence[str], code: Path, complaints: int, bounds: Bounds | None) -> tuple[int, str]:
    """Run a command in a folder of code. Returns its exit code, or that of an interrupt, after which it has ended; and
    why it was stopped, "" if it was not."""
    paths = [str(code), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        command,
        cwd=code,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        start_new_session=bounds is not None,  # what it starts is stopped with it
    )
    try:
        _limit(process.pid, bounds)
        return process.wait(bounds.time_s if bounds is not None else None), ""
    except subprocess.TimeoutExpired as late:
        return 1, f"stopped after {late.timeout:.0f} s"
    except KeyboardInterrupt as interrupt:
        if bounds is not None:
            raise  # an audit ends, and needs nothing of what was made until then
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSING_S)
        return exit_code_of(interrupt), ""
    finally:
        if process.poll() is None:
            if bounds is not None:
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()


def _limit(pid: int, bounds: Bounds | None) -> None:
    """Limit a process and all that it starts from now on, where the system can."""
    if bounds is None or not hasattr(resource, "prlimit"):
        return
    for kind, most in ((resource.RLIMIT_DATA, bounds.memory_bytes), (resource.RLIMIT_FSIZE, bounds.file_bytes)):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has a lower limit
            resource.prlimit(pid, kind, (most, most))
