"""Folders of killed processes are removed by the next one that makes such a folder, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory.owned_folder import began_at, is_alive, owned_folder
from tests.patience import until

KILLED = """
import os, signal, sys, tempfile
sys.path[:] = sys.argv[2:]
from memory.owned_folder import owned_folder
tempfile.tempdir = sys.argv[1]
folder = owned_folder("symlab-ahead-")
open(os.path.join(folder.name, "file"), "w").close()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_folder_of_a_killed_process_is_removed(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), *sys.path], check=False)
    (left,) = tmp_path.iterdir()
    with owned_folder("symlab-other-"):
        assert left.exists(), "it is another program's"
    with owned_folder("symlab-ahead-") as ours:
        assert list(tmp_path.iterdir()) == [Path(ours)]
    assert list(tmp_path.iterdir()) == []


def test_folders_of_living_processes_and_of_others_stay(tmp_path, monkeypatch):
    (tmp_path / "symlab-ahead-named_otherwise").mkdir()
    with owned_folder("symlab-ahead-") as first:
        with owned_folder("symlab-ahead-"):
            assert Path(first).exists()
        monkeypatch.setattr("memory.owned_folder.is_alive", lambda process, began: False)
        monkeypatch.setattr("memory.owned_folder.machine_of_this_process", lambda: "another machine")
        with owned_folder("symlab-ahead-"):
            assert Path(first).exists()
    assert (tmp_path / "symlab-ahead-named_otherwise").exists()


def test_a_process_number_that_was_given_again_is_another_process():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = began_at(process.pid)
    assert is_alive(process.pid, began or 0)
    assert not began or not is_alive(process.pid, began + 1)
    process.kill()
    until(lambda: not is_alive(process.pid, began or 0) or began is None, "its end")
    process.communicate()


def test_a_process_that_is_dead_and_not_waited_for_is_no_owner():
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    began = began_at(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and stays in the list of processes
    if began is not None:  # where the system says so
        assert is_alive(os.getpid(), began_at(os.getpid()) or 0)
        assert not is_alive(process.pid, began)
    assert began_at(process.pid) is None
    process.communicate()
