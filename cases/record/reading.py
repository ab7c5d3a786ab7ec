"""Reads files of folders that others made: a pipe does not block, a giant is not read, a link does not leave."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 1 << 24
"""Maximum size of a text that is read as a whole, such as a record: 16 MiB."""

KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def contents(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises ValueError, in one line with the path, for anything else, for a file
    of more than most_bytes, and if it can't be read."""
    try:
        # A pipe without a writer would block an open without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if kind := kind_of(path):
            raise ValueError(f"{path}: can't be read (it is {kind})") from None
        raise ValueError(f"{path}: can't be read ({error.strerror or error})") from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # which open() takes for no descriptor of its own
            os.close(descriptor)
            raise ValueError(f"{path}: can't be read (it is a folder)")
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if kind := _kind(about.st_mode):
                raise ValueError(f"{path}: can't be read (it is {kind})")
            if about.st_size > most_bytes:
                raise ValueError(f"{path}: {about.st_size:,} bytes, more than the {most_bytes:,} that are read")
            data = file.read(most_bytes + 1)  # it may grow meanwhile
    except OSError as error:
        raise ValueError(f"{path}: can't be read ({error.strerror or error})") from None
    if len(data) > most_bytes:
        raise ValueError(f"{path}: more than the {most_bytes:,} bytes that are read")
    return data


def kind_of(path: Path | str) -> str:
    """Return what a path is that is no regular file ("a pipe"); "" of a regular one, and if nothing is there."""
    try:
        return _kind(os.stat(path).st_mode)
    except OSError:
        return ""


COPIES = frozenset({"mlartifacts", "mlruns"})
"""Folders in which MLflow keeps copies of what commands wrote."""


def below(folder: Path, pattern: str) -> list[Path]:
    """Return the paths of a pattern below a folder, sorted, without MLflow's copies; none if it is no folder."""
    found = folder.rglob(pattern) if folder.is_dir() else ()
    return sorted(path for path in found if COPIES.isdisjoint(path.relative_to(folder).parts))


def leaves(path: Path, folder: Path) -> bool:
    """Return whether a path leads out of a folder: it is, or goes through, a link to somewhere else, or to nothing."""
    try:
        return not path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return True


def _kind(mode: int) -> str:
    return next((name for is_it, name in KINDS if is_it(mode)), "")
