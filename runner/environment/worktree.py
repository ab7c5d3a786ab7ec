"""The sources of a commit that records name, in a git worktree that is removed afterwards.

Only commits below HEAD or a local branch of this repository count, and the records' own files and differences are never
used.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.environment.repository import DIGESTED
from runner.interrupt import shielded

if TYPE_CHECKING:
    from cases.record.record import Record

SHORT = 12
"""Number of a commit's digits to show."""

SAME = "today's code is that of the recorded commit"
"""How the reason begins why there is no other code to run."""

GIT_PATIENCE_S = 120
"""Time limit of one command of git: a worktree on a slow disk takes a while."""


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
        return "", f"{SAME} {commit[:SHORT]}"
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
                raise OSError(last_line(done.stderr if done else "") or "git can't be started")
            yield folder
        finally:
            with shielded():
                _git(root, "worktree", "remove", "--force", str(folder))


def last_line(text: str) -> str:
    """Return the last line of what a program said; "" if it said nothing."""
    return (text.strip().splitlines() or [""])[-1]


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
