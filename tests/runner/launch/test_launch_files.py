"""The files between a command and its workers: each job is taken once; states are read whole."""

import subprocess
import sys

from runner.launch.files import LaunchFiles, WorkerState

CLAIM_ALL = """
import sys
from pathlib import Path
from runner.launch.files import LaunchFiles
files = LaunchFiles(Path(sys.argv[1]))
print(*(job for job in range(300) if files.claim(job, int(sys.argv[2]))))
"""


def test_each_job_is_taken_once(tmp_path):
    files = LaunchFiles(tmp_path)
    files.create("token")
    started = [
        subprocess.Popen([sys.executable, "-c", CLAIM_ALL, str(tmp_path), str(worker)], stdout=subprocess.PIPE)
        for worker in range(4)
    ]
    taken = {worker: list(map(int, process.communicate()[0].split())) for worker, process in enumerate(started)}
    assert sorted(job for jobs in taken.values() for job in jobs) == list(range(300))
    assert files.claims() == {job: worker for worker, jobs in taken.items() for job in jobs}


def test_a_state_comes_back_as_it_was(tmp_path):
    files = LaunchFiles(tmp_path)
    files.create("token", "joblib sweep")
    state = WorkerState(2, host="here", job=4, lost={3: "killed", 5: "no GPU"}, starts=2)
    files.write_state(state)
    assert files.state(2) == state
    assert files.states() == [state]
    assert files.state(3) is None
    assert files.name == ("joblib", "sweep")
    (files.folder / "worker-3.state").write_text('{"numb')
    assert files.state(3) is None
