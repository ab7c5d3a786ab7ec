"""Workers of a pool end with the process that started them, also when that is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memory.worker_process import end_with_parent, start_worker
from tests.golden import refused
from tests.patience import NEVER_S, until
from tests.processes import begun, ran
from tests.runner.conftest import is_running

PROGRAM = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor

from memory.worker_process import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(3600)
"""


def killed_beside_its_worker(script, *lines):
    """Kill a script that has printed these lines and the number of a worker, in a process group of its own if there are
    such lines; the worker ends, too."""
    # Multiprocessing's tracker says as an error what the killed one had.
    parent = begun(str(script), stderr=subprocess.DEVNULL)
    with parent.stdout:
        assert [parent.stdout.readline() for _ in lines] == list(lines)
        worker = int(parent.stdout.readline())
        try:
            assert is_running(worker)
            assert not lines or os.getpgid(worker) == worker, "Ctrl-C in a terminal is not for it"
            parent.kill()
            parent.wait()
            until(lambda: not is_running(worker), "the worker's end")
        finally:
            if is_running(worker):
                os.kill(worker, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_worker_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    killed_beside_its_worker(tmp_path / "program.py")


def test_only_a_worker_has_a_parent_to_end_with():
    with refused():
        end_with_parent()


SCRIPT = """
import time

from memory.worker_process import start_worker

print("the script runs", flush=True)
process, connection = start_worker("busy")
print(connection.recv(), flush=True)
time.sleep(3600)
"""
"""It has no guard against being imported again."""

BUSY = """
import os, re
from multiprocessing.connection import Connection

def main(descriptor):
    Connection(descriptor).send(os.getpid())
    re.match("(a+)+b", "a" * 100)
"""
"""A worker at work that lets no other thread run, as the compiler does."""


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends it on Linux only")
def test_a_worker_at_work_ends_when_its_parent_is_killed_and_runs_no_script_again(tmp_path):
    (tmp_path / "busy.py").write_text(BUSY)
    (tmp_path / "script.py").write_text(SCRIPT)
    killed_beside_its_worker(tmp_path / "script.py", "the script runs\n")


def test_a_worker_whose_parent_is_gone_before_it_looks_ends():
    code = "import os; from memory.worker_process import kill_with; kill_with(os.getppid() + 1); print('it goes on')"
    done = ran("-c", code)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_file_of_the_working_folder_is_no_module_of_a_worker(tmp_path, monkeypatch):
    """The folder of what a worker runs is on this process's path; the working folder is not."""
    modules, folder = tmp_path / "modules", tmp_path / "folder"
    modules.mkdir()
    folder.mkdir()
    (modules / "says_hello.py").write_text(HELLO)
    (folder / "json.py").write_text("raise SystemExit('this file was executed')")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.chdir(folder)
    process, connection = start_worker("says_hello", is_quiet=True)
    with connection:
        assert connection.recv() == "hello"
    assert process.wait(NEVER_S) == 0


HELLO = """
from multiprocessing.connection import Connection

def main(descriptor):
    with Connection(descriptor) as connection:
        connection.send("hello")
"""
