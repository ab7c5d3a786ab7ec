"""A command of recorded code: `python -m runner` in a process of its own, by the code in a folder, within limits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from memory.worker_process import PR_SET_PDEATHSIG
from runner.interrupt import exit_code_of, shielded

CLOSING_S = 30.0
"""Time limit for a process to end after an interrupt."""


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
        exit_code, why = _run(["-m", "runner", *words], code, (said, told), bounds)
        said.seek(0)
        told.seek(0)
        return Ran(exit_code, said.read(), why or (told.read().strip().splitlines() or [""])[-1])


def _run(words: Sequence[str], code: Path, streams: tuple[IO[str], IO[str]], bounds: Bounds | None) -> tuple[int, str]:
    """Run Python with these words. Returns its exit code, or that of an interrupt, after which it has ended; and why it
    was stopped, "" if it was not."""
    try:
        with python_by(code, words, code, streams, CLOSING_S if bounds is None else 0) as process:
            _limit(process.pid, bounds)
            return process.wait(bounds.time_s if bounds is not None else None), ""
    except subprocess.TimeoutExpired as late:
        return 1, f"stopped after {late.timeout:.0f} s"
    except KeyboardInterrupt as interrupt:
        if bounds is not None:
            raise  # an audit ends, and needs nothing of what was made until then
        return exit_code_of(interrupt), ""


@contextlib.contextmanager
def python_by(
    code: Path, words: Sequence[str], folder: Path, streams: tuple[IO[str] | int, IO[str]], closing_s: float = CLOSING_S
) -> Iterator[subprocess.Popen[bytes]]:
    """Within, a process runs Python with these words in a folder, the code of another first on its path.

    streams: its stdout and stderr. It is ended with this process, and at the end: killed, with all that it started, if
    it takes longer than closing_s seconds; at once if these are 0.
    """
    paths = [str(code), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def end_with_parent() -> None:
        """In the child: SIGTERM comes when this process is killed."""
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    process = None
    try:
        with shielded():  # an exception within would leave a process that is never ended
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,  # a terminal's Ctrl-C comes to this process alone, which then ends the other
                preexec_fn=end_with_parent,
            )
        yield process
    finally:
        if process is not None:
            _end(process, closing_s)


def _end(process: subprocess.Popen[bytes], closing_s: float) -> None:
    """Have a process end, and kill its group if it does not in closing_s."""
    if closing_s and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(closing_s)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _limit(pid: int, bounds: Bounds | None) -> None:
    """Limit a process and all that it starts from now on, where the system can."""
    if bounds is None or not hasattr(resource, "prlimit"):
        return
    for kind, most in ((resource.RLIMIT_DATA, bounds.memory_bytes), (resource.RLIMIT_FSIZE, bounds.file_bytes)):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or has a lower limit
            resource.prlimit(pid, kind, (most, most))
