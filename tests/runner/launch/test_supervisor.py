"""A worker's supervisor: a job that takes its process with it costs that job, and the worker ends when it must."""

import pickle
import socket
import subprocess
import sys
import threading

import pytest

from memory.owned_folder import began_at
from runner.launch.files import LaunchFiles
from runner.launch.supervisor import MOST_STARTS_BETWEEN, Supervisor
from tests.patience import PATIENCE_S, until

STUB = "tests.runner.launch.stub_worker"


def supervised(folder, steps, **changes):
    """What worker 3 returns, of a launch whose first worker it is, after these steps."""
    LaunchFiles(folder).create("a token")
    fields = {"token": "a token", "first": 3, **changes}
    return Supervisor(STUB, pickle.dumps(steps), str(folder), **fields)(3)


def ended(work, meanwhile=lambda: None):
    """The last state of a worker that would wait for ever. It works in a thread, so that the test ends if nothing ends
    the worker."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    meanwhile()
    thread.join(PATIENCE_S)
    assert found, "the worker does not end"
    return found[0]


def test_a_job_that_kills_its_process_costs_that_job_alone(tmp_path):
    given = ({"GIVEN": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"},)
    returned = supervised(tmp_path, [("job", 0), ("die", 1), ("die", 4), ("job", 5)], environments=given)
    state = LaunchFiles(tmp_path).state(3)
    assert state == returned
    assert (state.how, state.starts, state.job, state.gpus) == ("finished", 1, None, "2,3")
    killed = "its process ended by SIGKILL"
    assert state.lost == {1: killed, 4: killed}
    assert (tmp_path / "did-5.json").read_text() == "2,3"


def launched(folder, *steps):
    LaunchFiles(folder).create("a token")
    return Supervisor(STUB, pickle.dumps(list(steps)), str(folder), "a token")


def test_a_process_that_ends_before_any_job_is_not_started_again(tmp_path):
    state = supervised(tmp_path, [("code", 1)])
    assert state.how == "its process ended with exit code 1: what it said last"


def test_a_process_that_is_killed_between_jobs_is_started_again(tmp_path):
    """And not without end: what kills each of them may be the machine."""
    killed = [("killed",)] * MOST_STARTS_BETWEEN
    assert launched(tmp_path / "one", *killed[1:], ("job", 1))(0).how == "finished"
    assert (tmp_path / "one" / "did-1.json").exists()
    assert launched(tmp_path / "other", *killed)(1).how == "its process ended by SIGKILL"


def test_a_stopped_launch_ends_its_processes(tmp_path):
    files = LaunchFiles(tmp_path)

    def stop():
        until((tmp_path / "did-0.json").exists, "the worker's start")
        files.stop()

    assert ended(lambda: supervised(tmp_path, [("job", 0), ("wait",)]), stop).how == "SIGINT"


def test_a_worker_ends_with_its_command(tmp_path):
    """Also with one whose parent has not noticed yet: that may wait for the workers, which have its output."""
    command = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here, began = socket.gethostname(), began_at(command.pid) or 0
    command.kill()
    until(lambda: began_at(command.pid) is None, "the command's end")
    fields = {"host": here, "process": command.pid, "began": began}
    assert ended(lambda: supervised(tmp_path, [("wait",)], **fields)).how == "SIGINT"
    command.wait()


def test_a_worker_without_the_commands_file_system_ends(tmp_path):
    launch = Supervisor(STUB, pickle.dumps([("job", 7)]), str(tmp_path / "elsewhere" / "20260101-x"), "a token")
    with pytest.raises(RuntimeError, match="workers need the command's file system"):
        launch(0)
    assert not (tmp_path / "elsewhere").exists()
