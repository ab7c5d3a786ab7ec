"""Files of reports, written in one step."""

from __future__ import annotations

import os
from pathlib import Path

from memory.atomic_file import replacing


def write_file(path: Path, data: bytes) -> None:
    """Replace a file in one step: there in full or not at all. ValueError naming it when that can't be done, and for a
    device or a pipe, which a file would take the place of."""
    try:
        _refuse_devices(path)
        with replacing(path) as beside:
            beside.write_bytes(data)
    except OSError as error:
        raise ValueError(f"{path}: can't be written ({error.strerror or error})") from None


def can_be_written(path: Path) -> None:
    """ValueError where write_file would fail: said before the work, not after it."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise ValueError(f"{path}: can't be written (there is no such folder)")
        if path.is_dir():
            raise ValueError(f"{path}: can't be written (it is a folder)")
        _refuse_devices(path)
    except OSError as error:  # of a name that is too long
        raise ValueError(f"{path}: can't be written ({error.strerror or error})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: can't be written (the folder is not for this user to write to)")


def _refuse_devices(path: Path) -> None:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: can't be written (it is no ordinary file)")
