"""The lock of a records folder: held by the process whose command writes there, gone when that process is.

It is a lock of the operating system on a file in the folder. The file alone means nothing: a killed process leaves it
behind, and the next one takes the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

LOCK_NAME = ".lock.tmp"
"""Named like a file that is still being written, which manifests leave out (reports/record/seal.py)."""


class FolderInUse(RuntimeError):
    """Another process holds the lock; the message is a clause that names it."""


class FolderLock:
    """The lock of one folder, held from construction to release. As a context manager it is released at the end."""

    def __init__(self, folder: Path) -> None:
        """Take the lock at once. Raises FolderInUse if another process holds it, OSError if there can be no lock."""
        self._path = folder / LOCK_NAME
        self._descriptor: int | None = None
        while self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if self._is_taken(descriptor):
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with contextlib.suppress(OSError):  # only for the message; a full disk does not matter
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
def held_if_possible(folder: Path) -> Iterator[None]:
    """Within, hold the lock of a new folder. On a file system without locks the work goes on without."""
    try:
        lock = FolderLock(folder)
    except OSError:
        yield
        return
    with lock:
        yield
