"""Folders of what this program runs again later: no other user may put something there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def exposure(folder: Path) -> str:
    """Return who else can write to a folder, as a clause; "" if only this user and the system's administrator can.

    A folder that is missing has no exposure of its own. A folder above that all users can write to counts, for there
    the folder itself can be replaced, unless its sticky bit says that only owners rename (as in /tmp). Access lists are
    unknown to this check, and so is a group that can write to a folder above.
    """
    folder = folder.absolute()
    for place in (folder, *folder.parents):
        try:
            found = place.stat()
        except OSError:
            continue
        if place == folder:
            if found.st_uid not in (os.geteuid(), 0):
                return f"belongs to another user (number {found.st_uid})"
            if found.st_mode & _WRITABLE_BY_OTHERS:
                return f"can be written to by other users (mode {stat.S_IMODE(found.st_mode):04o})"
        elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return f"can be replaced by other users, who can write to {place} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def is_ours(descriptor: int) -> bool:
    """Whether only this user and the system's administrator can have written an open file."""
    found = os.fstat(descriptor)
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & _WRITABLE_BY_OTHERS


def make_private(folder: Path) -> None:
    """Make a folder, and the missing ones above it, for this user alone. Raises OSError if that is not possible."""
    missing = []
    place = folder.absolute()
    while not place.exists():
        missing.append(place)
        place = place.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))
