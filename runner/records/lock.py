"""The locks of a records folder: held by the process whose command writes there, and by the process that sends its
records to MLflow; each is gone when its process is.

Each is a lock of the operating system on a file in the folder. The file alone means nothing: a killed process leaves it
behind, and the next one takes the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_NAME = ".lock.tmp"
"""Named like a file that is still being written, which manifests leave out (reports/record/seal.py)."""

MIRROR_LOCK_NAME = ".mirror.tmp"
"""Of the lock that the process which sends the records to MLflow holds: it can outlive the command."""


_LOOK_AGAIN_S = 0.1


class FolderInUse(RuntimeError):
    """Another process holds the lock; the message is a clause that names it."""


class FolderLock:
    """The lock of one folder, held from construction to release. As a context manager it is released at the end."""

    def __init__(self, folder: Path, name: str = LOCK_NAME) -> None:
        """Take the lock at once. Raises FolderInUse if another process holds it, OSError if there can be no lock."""
        self._path = folder / name
        self._descriptor: int | None = None
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if self._is_taken(descriptor):
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with contextlib.suppress(OSError):  # it is only for the message; a full disk does not matter
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the lock back and remove its file. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            self._path.unlink()  # while it is held: a process that waits for this file notices that it is gone
        os.close(descriptor)

    def _is_taken(self, descriptor: int) -> bool:
        """Lock an opened file. False if its holder has removed it meanwhile. Raises FolderInUse."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            raise FolderInUse(f"{holder} still works in {self._path.parent.name}") from None
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False


@contextlib.contextmanager
def held_if_possible(folder: Path, name: str = LOCK_NAME, patience_s: float = 0.0) -> Iterator[None]:
    """Within, hold a lock of a folder. Where there can be no lock the work goes on without. Raises FolderInUse if
    another process still holds it after patience_s."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            lock = FolderLock(folder, name)
            break
        except OSError:
            yield
            return
        except FolderInUse:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_LOOK_AGAIN_S)
    with lock:
        yield
