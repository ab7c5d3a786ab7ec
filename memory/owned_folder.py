"""Temporary folders that name the process which made them, so that those of killed processes can be removed.

In the lowest room because kernels and the runner make such folders; and because both have to know whether a process is
still the one that it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path


def owned_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary folder of this process, and remove those of this prefix whose processes are gone.

    Its name has the machine, the process, and when that began. Folders of other users and machines are left alone.
    """
    machine = hashlib.sha256(machine_of_this_process().encode()).hexdigest()[:8]
    form = re.compile(rf"{re.escape(prefix)}{machine}-(\d+)-(\d+)-\w+")
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            owner = form.fullmatch(path.name)
            if owner and path.lstat().st_uid == os.getuid() and not is_alive(int(owner[1]), int(owner[2])):
                shutil.rmtree(path, ignore_errors=True)
    process = os.getpid()
    return tempfile.TemporaryDirectory(prefix=f"{prefix}{machine}-{process}-{began_at(process) or 0}-")


def machine_of_this_process() -> str:
    """This machine, and where process numbers of one machine differ, the part of it where ours are known."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _stat(process: int) -> list[str] | None:
    """The fields of /proc/<process>/stat after the name; None where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def began_at(process: int) -> int | None:
    """When a process began, in clock ticks; None if it is gone, or is dead and its parent has not noticed."""
    fields = _stat(process)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def is_alive(process: int, began: int = 0) -> bool:
    """Return whether a process runs, and is still the one that began then: numbers are given again. began: 0 if that is
    unknown."""
    if began:
        return began_at(process) == began
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
