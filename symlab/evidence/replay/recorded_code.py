"""A command of recorded code: `python -m runner` in a process of its own, by the code in a folder, within limits."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.interrupt import exit_code_of

CLOSING_S = 30
"""Time limit for the recorded code to end after an interrupt."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the recorded code: wall-clock time, and for each of its processes writable memory and size of files."""

    time_s: float
    memory_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: exit code, what it wrote to stdout, and the last line that it wrote to stderr or why it was
    stopped."""

    exit_code: int
    said: str
    complaint: str


def run_code(code: Path, words: Sequence[str], bounds: Bounds | None = None) -> Ran:
    """Run `python -m runner` with these words by the code in a folder. An interrupt ends the command, and the exit code
    then says so. bounds: the command is stopped there; an interrupt stops it at once, and is raised."""
    with tempfile.TemporaryFile("w+", errors="replace") as said, tempfile.TemporaryFile("w+", errors="replace") as told:
        exit_code, why = _run([sys.executable, "-m", "runner", *words], code, (said.fileno(), told.fileno()), bounds)
        said.seek(0)
        told.seek(0)
        return Ran(exit_code, said.read(), why or (told.read().strip().splitlines() or [""])[-1])


def _run(command: Sequence[str], code: Path, streams: tuple[int, int], bounds: Bounds | None) -> tuple[int, str]:
    """Run a command in a folder of code. streams: stdout and stderr. Returns its exit code, or that of an interrupt,
    after which it has ended; and why it was stopped, "" if it was not."""
    paths = [str(code), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    process = subprocess.Popen(
        command,
        cwd=code,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=streams[0],
        stderr=streams[1],
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
