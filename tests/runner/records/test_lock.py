"""The lock of a records folder: one process at a time, and a killed one does not hold it."""

import os
import signal

import pytest

from reports.record.seal import broken, seal
from runner.records.lock import LOCK_NAME, FolderInUse, FolderLock, held_if_possible
from tests.patience import SOON_S
from tests.processes import begun

HOLDER = """
import sys, time
from pathlib import Path
from runner.records.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def holder(folder):
    """Another process that holds the lock."""
    process = begun("-c", HOLDER, str(folder))
    assert process.stdout.readline() == "held\n"
    return process


def test_a_killed_process_leaves_a_file_and_no_lock(tmp_path):
    process = holder(tmp_path)
    try:
        with pytest.raises(FolderInUse, match=f"^process {process.pid} on .* still works in {tmp_path.name}$"):
            FolderLock(tmp_path)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (tmp_path / LOCK_NAME).exists()
    with FolderLock(tmp_path), pytest.raises(FolderInUse, match=f"process {os.getpid()} on "):
        FolderLock(tmp_path)
    assert not (tmp_path / LOCK_NAME).exists()


def test_a_lock_whose_file_was_removed_is_taken_again(tmp_path, monkeypatch):
    """A process that opened the file before its holder removed it must not work beside the next holder."""
    first = FolderLock(tmp_path)
    opened = os.open
    released = []

    def late(path, *arguments):
        descriptor = opened(path, *arguments)
        if not released:
            released.append(path)
            first.release()
        return descriptor

    monkeypatch.setattr(os, "open", late)
    with FolderLock(tmp_path):
        monkeypatch.undo()
        assert (tmp_path / LOCK_NAME).exists()
        with pytest.raises(FolderInUse):
            FolderLock(tmp_path)


def test_a_manifest_leaves_the_lock_out(tmp_path):
    with FolderLock(tmp_path):
        seal(tmp_path)
    assert broken(tmp_path) == []


def test_without_locks_the_work_goes_on(tmp_path, monkeypatch):
    def unsupported(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with held_if_possible(tmp_path):
        pass
    with pytest.raises(OSError, match="not supported"):
        FolderLock(tmp_path)


def test_a_lock_is_waited_for_as_long_as_said(tmp_path):
    with FolderLock(tmp_path), pytest.raises(FolderInUse), held_if_possible(tmp_path, patience_s=SOON_S):
        pass
