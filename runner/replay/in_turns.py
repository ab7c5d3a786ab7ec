"""The recorded code, run again in turns with today's, so that drift of the machine is no change of the code.

Recorded times and those of a replay lie apart in time, and drift and change then look alike (reports/audit/order.py).
So where cases are timed and git has the recorded commit, each launch is two worlds: one of the recorded code, in a
worktree of that commit, and one of today's, in the order A B B A A B B A. What runs is the code that git has, below
HEAD or a local branch of this repository; a record's own files and differences are never run.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.record import bundle
from reports.record.bundle import SUFFIX
from runner.environment.repository import DIGESTED
from runner.interrupt import exit_code_of, shielded
from runner.records.command_json import COMMAND_JSON

if TYPE_CHECKING:
    from reports.record.record import Record

SHORT = 12
"""Number of a commit's digits to show."""

GIT_PATIENCE_S = 120
"""Time limit of one command of git: a worktree on a slow disk takes a while."""

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


def recorded_commit(records: Sequence[Record], root: Path) -> tuple[str, str]:
    """Return the commit whose code can be run in turns with today's, or "" and the reason why there is none."""
    known = {str((record.environment.git or {}).get("commit") or "") for record in records}
    if len(known) > 1:
        return "", f"the records are of {len(known)} commits"
    (commit,) = known
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        return "", "the records name no commit"
    if any((record.environment.git or {}).get("dirty") is not False for record in records):
        return "", f"the recorded sources were not those of their commit {commit[:SHORT]}"
    if not _succeeds(root, "cat-file", "-e", f"{commit}^{{commit}}"):
        return "", f"git here does not have the recorded commit {commit[:SHORT]}"
    if not _is_ours(root, commit):
        return "", f"the recorded commit {commit[:SHORT]} is below neither HEAD nor a local branch"
    if _succeeds(root, "diff", "--quiet", "--no-ext-diff", commit, "--", *DIGESTED):
        return "", f"today's code is that of the recorded commit {commit[:SHORT]}"
    return commit, ""


def _is_ours(root: Path, commit: str) -> bool:
    """Whether a commit is an ancestor of HEAD or of a local branch: tags may be fetched from elsewhere, too."""
    if _succeeds(root, "merge-base", "--is-ancestor", commit, "HEAD"):
        return True
    done = _git(root, "for-each-ref", "--contains", commit, "--count=1", "refs/heads")
    return done is not None and done.returncode == 0 and bool(done.stdout.strip())


@contextlib.contextmanager
def worktree(root: Path, commit: str) -> Iterator[Path]:
    """Within, a folder with the sources of a commit. Raises OSError where git can't make it. Nothing stays behind."""
    with tempfile.TemporaryDirectory(prefix="symlab-recorded-") as parent:
        folder = Path(parent) / "code"
        try:
            with shielded():  # half a worktree can't be removed
                done = _git(
                    root,
                    "-c",
                    "core.hooksPath=/dev/null",
                    "worktree",
                    "add",
                    "--quiet",
                    "--detach",
                    str(folder),
                    commit,
                )
            if done is None or done.returncode:
                raise OSError(_last_line(done.stderr if done else "") or "git can't be started")
            yield folder
        finally:
            with shielded():
                _git(root, "worktree", "remove", "--force", str(folder))


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
            complaint = why or _last_line(complaints.read())
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


def _succeeds(root: Path, *arguments: str) -> bool:
    done = _git(root, *arguments)
    return done is not None and done.returncode == 0


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run git; None where it can't be started or takes too long."""
    try:
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=GIT_PATIENCE_S,
            start_new_session=True,  # a terminal's Ctrl-C does not cut it short
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
