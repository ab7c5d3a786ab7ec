"""Sweeps whose workers have real GPUs, of joblib and of a Slurm that counts them: no GPU is two jobs' at once."""

import os
import subprocess
import sys
from datetime import datetime
from itertools import combinations

import pytest

from cases.record.record import Status, load
from reports.record.bundle import record_files
from tests.patience import NEVER_S, PATIENCE_S
from tests.runner.launch.slurm_cluster import cluster, why_not

pytestmark = pytest.mark.gpu

JOBS = 4
NOT_AUDITABLE = 2
"""symlab audit's exit code for a wrong request, and for a set of which nothing was recomputed."""

SWEEP = ("sizes=[64K]", "algorithms=[one_shot]", "baselines=[]", "fabric=nvshmem", "timing.mode=none", "track=none")


def gpus():
    """The number of GPUs, by nvidia-smi: torch would take memory on one of them in this process."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(said.splitlines())


def swept(folder, environment, *words):
    """The records of a sweep over seeds, all of whose cases passed and whose audit has no finding."""
    environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # gpus() counts all
    seeds = "seed=" + ",".join(map(str, range(1, JOBS + 1)))
    line = [sys.executable, "-m", "symlab", "run", "-m", *SWEEP, seeds, *words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=NEVER_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (records,) = (folder / "records").iterdir()
    audited = subprocess.run(
        [sys.executable, "-m", "symlab", "audit", str(records)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=NEVER_S,
    )
    assert audited.returncode != NOT_AUDITABLE, audited.stdout + audited.stderr
    assert "who vouches" in audited.stdout, audited.stdout + audited.stderr
    assert "FINDING" not in audited.stdout.replace("0 FINDING", ""), audited.stdout
    found = [load(path) for path in record_files(records)]
    assert [one.status for one in found] == [Status.PASSED] * JOBS
    return found


def gpus_of(record):
    """The GPUs of the worker that a record is of."""
    return set((record.environment.launch or {})["worker"]["gpus"].split(","))


def check_none_shared(records):
    """Cases that ran at the same time had no GPU in common."""
    for one, other in combinations(records, 2):
        times = [datetime.fromisoformat(text) for text in (one.started, one.ended, other.started, other.ended)]
        if times[0] < times[3] and times[2] < times[1]:
            assert not gpus_of(one) & gpus_of(other), (one.id, other.id)


def test_workers_of_joblib_have_gpus_of_their_own(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    if not (count := gpus()):
        pytest.skip("no GPU")
    most = ("hydra/launcher=joblib", f"hydra.launcher.n_jobs={JOBS}")
    records = swept(tmp_path, dict(os.environ), "world_size=1", *most)
    check_none_shared(records)
    assert set().union(*map(gpus_of, records)) <= {str(number) for number in range(min(count, JOBS))}


@pytest.fixture(scope="module")
def slurm_of_gpus(tmp_path_factory):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    if reason := why_not():
        pytest.skip(reason)
    if not (count := gpus()):
        pytest.skip("no GPU")
    with cluster(tmp_path_factory.mktemp("slurm-gpus") / "cluster", nodes=2, cores=8, gpus=count) as made:
        yield made


def test_slurm_gives_no_gpu_to_two_workers(slurm_of_gpus, tmp_path):
    """More workers are asked for than there are GPUs, so some have to wait for others' GPUs."""
    workers = min(JOBS, gpus() + 1)
    most = ("hydra/launcher=submitit_slurm", f"hydra.launcher.array_parallelism={workers}")
    found = swept(tmp_path, slurm_of_gpus.environment, "world_size=1", *most)
    assert {len(gpus_of(one)) for one in found} == {1}
    check_none_shared(found)
    assert slurm_of_gpus.queue() == []


def test_ranks_that_srun_started_are_joined(slurm_of_gpus, tmp_path):
    if (ranks := gpus()) < 2:
        pytest.skip("needs two GPUs: a world of one rank is joined to nothing")
    most = ("hydra/launcher=submitit_slurm", "hydra.launcher.array_parallelism=1")
    each = (f"world_size={ranks}", f"hydra.launcher.tasks_per_node={ranks}")
    records = swept(tmp_path, slurm_of_gpus.environment, *each, *most)
    assert {len(gpus_of(one)) for one in records} == {ranks}
    assert {one.case.world_size for one in records} == {ranks}
