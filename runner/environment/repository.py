"""Which sources ran: the commit, what differs from it, and digests of what is there, with or without git."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MAX_NAMES = 50
"""Maximum number of changed and of untracked files to list."""

FAILURES = (OSError, subprocess.SubprocessError)
"""What comes of a command of git that fails, can't be started or takes too long."""

DIGESTED = ("cases", "conf", "kernels", "memory", "runner", "simulator", "symlab")
"""Folders whose files decide what a configuration means and what a case computes."""

_FIELDS = {"1": 8, "2": 9, "u": 10}
"""How many fields git's status has before the name of a changed file, by the kind of its line."""


def git(root: Path, missing: dict[str, str]) -> dict[str, Any] | None:
    """Commit, branch, and whether anything differs from it; None, with the reason in missing, where git can't say.

    diff_digest is over the tracked changes ("" when clean), which are in diff. Names are relative to the repository,
    the first MAX_NAMES of them.
    """
    try:
        with ThreadPoolExecutor(2) as pool:
            difference = pool.submit(printed, root, "diff", "HEAD", "--no-ext-diff", "--no-color", patience_s=5.0)
            state = printed(root, "status", "--porcelain=v2", "--branch", "--untracked-files=normal", patience_s=5.0)
            lines = state.decode(errors="replace").splitlines()
            head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
            changed = [line for line in lines if line[:1] in _FIELDS]
            untracked = [line[2:] for line in lines if line.startswith("?")]
            text = difference.result().decode(errors="replace") if changed else ""
    except (*FAILURES, ValueError) as error:
        missing["git"] = complaint(error)
        return None
    return {
        "commit": head.get("branch.oid", ""),
        "branch": head.get("branch.head", ""),
        "dirty": bool(changed or untracked),
        "changed_files": len(changed),
        "untracked_files": len(untracked),
        "changed": [_name(line) for line in changed[:MAX_NAMES]],
        "untracked": untracked[:MAX_NAMES],
        "diff_digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" if text else "",
        "diff": text,
    }


def source_digests(root: Path) -> dict[str, str]:
    """A digest over names and contents of the configurations, and of each package's modules; "" of what is not there.

    It tells other sources apart without git, and says whether configurations can be composed again.
    """
    return {name: _digest(root / name, "" if name == "conf" else ".py") for name in DIGESTED}


def configurations_digest(folder: Path, groups: Collection[str]) -> str:
    """Return "sha256:<hex>" of names and contents of the YAML files that Hydra finds in a folder of configurations:
    those in it, and those below its folders of the given names. "" if there are none or one can't be read."""
    digest = hashlib.sha256()
    try:
        found = [*folder.glob("*.yaml"), *(path for name in groups for path in (folder / name).rglob("*.yaml"))]
        for path in sorted(found):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
    except OSError:
        return ""
    return f"sha256:{digest.hexdigest()}" if found else ""


def _digest(folder: Path, suffix: str) -> str:
    digest = hashlib.sha256()
    found = sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix) and not place.endswith("__pycache__")
    )
    for path in found:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.relpath(path, folder)}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return f"sha256:{digest.hexdigest()}" if found else ""


def _name(line: str) -> str:
    """The file's name in a line of git's status; of a renamed one the new name."""
    return line.split(" ", _FIELDS[line[0]])[-1].partition("\t")[0]


def printed(root: Path, *arguments: str, patience_s: float = 120.0) -> bytes:
    """Return what a command of git prints. Raises FAILURES. A worktree on a slow disk takes a while."""
    command = ["git", "--no-optional-locks", *arguments]
    # A session of its own: a terminal's Ctrl-C does not cut it short.
    done = subprocess.run(
        command, cwd=root, check=True, capture_output=True, timeout=patience_s, start_new_session=True
    )
    return done.stdout


def complaint(error: Exception) -> str:
    """Return the first line of why git failed."""
    text = getattr(error, "stderr", None) or str(error).encode()
    return (text.decode(errors="replace").strip().splitlines() or [type(error).__name__])[0]
