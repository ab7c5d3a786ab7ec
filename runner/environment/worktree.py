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

from runner.environment.repository import DIGESTED, FAILURES, complaint, printed
from runner.interrupt import shielded

if TYPE_CHECKING:
    from cases.record.record import Record

SHORT = 12
"""Number of a commit's digits to show."""

_ADD = ("-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach")

SAME = "today's code is that of the recorded commit"
"""How the reason begins why there is no other code to run."""


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
    if said(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return "", f"git here does not have the recorded commit {commit[:SHORT]}"
    if not _is_ours(root, commit):
        return "", f"the recorded commit {commit[:SHORT]} is below neither HEAD nor a local branch"
    if said(root, "diff", "--quiet", "--no-ext-diff", commit, "--", *DIGESTED) is not None:
        return "", f"{SAME} {commit[:SHORT]}"
    return commit, ""


def _is_ours(root: Path, commit: str) -> bool:
    """Whether a commit is an ancestor of HEAD or of a local branch: tags may be fetched from elsewhere, too."""
    if said(root, "merge-base", "--is-ancestor", commit, "HEAD") is not None:
        return True
    return bool(said(root, "for-each-ref", "--contains", commit, "--count=1", "refs/heads"))


@contextlib.contextmanager
def worktree(root: Path, commit: str) -> Iterator[Path]:
    """Within, a folder with the sources of a commit. Raises OSError where git can't make it. Nothing stays behind."""
    with tempfile.TemporaryDirectory(prefix="symlab-recorded-") as parent:
        folder = Path(parent) / "code"
        try:
            try:
                with shielded():  # half a worktree can't be removed
                    printed(root, *_ADD, str(folder), commit)
            except FAILURES as error:
                raise OSError(complaint(error)) from error
            yield folder
        finally:
            with shielded():
                said(root, "worktree", "remove", "--force", str(folder))


@contextlib.contextmanager
def files_at(root: Path, commit: str, *names: str) -> Iterator[Path]:
    """Within, a folder with files and folders as they were at a commit. Raises FAILURES."""
    with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
        archive = printed(root, "archive", "--format=tar", commit, *names)
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True, capture_output=True)
        yield Path(folder)


def said(root: Path, *arguments: str) -> str | None:
    """Return what a command of git prints; None where it fails."""
    try:
        return printed(root, *arguments).decode(errors="replace").strip()
    except FAILURES:
        return None
