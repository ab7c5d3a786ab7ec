"""What squeue and scancel say, from stand-ins for both: also nothing, and too late."""

import pytest

from runner.launch import slurm
from runner.launch.slurm import SlurmJob


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs, the first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def put(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_jobs_as_slurm_lists_them(programs):
    put(
        programs,
        "squeue",
        f'echo "$@" >{programs}/asked; printf "7_0|RUNNING|node1|None\\n7_1|PENDING||Resources\\n8|NODE_FAIL||x\\n"',
    )
    assert slurm.listed("sweep") == [
        SlurmJob("7_0", 0, "RUNNING", "node1", ""),
        SlurmJob("7_1", 1, "PENDING", "", "Resources"),
        SlurmJob("8", 0, "NODE_FAIL", "", "x"),
    ]
    assert "--name=sweep" in (programs / "asked").read_text()
    assert [job.is_gone for job in slurm.listed("sweep") or []] == [False, False, True]


def test_no_answer_is_no_empty_queue(programs):
    assert slurm.listed("sweep") is None
    put(programs, "squeue", "exit 1")
    assert slurm.listed("sweep") is None
    put(programs, "squeue", "true")
    assert slurm.listed("sweep") == []


@pytest.mark.slow
def test_cancelling_lasts_until_none_is_left(programs):
    """Jobs whose submission has just begun appear late: they are cancelled as well."""
    put(programs, "scancel", f'echo "$@" >>{programs}/cancelled')
    put(programs, "squeue", f'test "$(wc -l <{programs}/cancelled)" -ge 3 || echo "7_0|COMPLETING|node1|None"')
    assert slurm.cancelled("sweep", 30, lambda: False) == []
    assert (programs / "cancelled").read_text().split() == ["--name=sweep"] * 3
