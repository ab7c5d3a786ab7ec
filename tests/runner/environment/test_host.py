"""The machine: what the kernel tells is told, what it doesn't is named; control groups of both versions."""

import os
import platform
from unittest.mock import Mock

import pytest

from runner.environment.host import available_bytes, container, host, launch

MAY_BE_ABSENT = {"numa_nodes", "cpu_model", "container"}


def test_it_is_this_machine():
    missing = {}
    found = host(missing)
    assert found["cores"] == os.cpu_count()
    assert found["kernel"] == platform.release()
    assert found["memory_bytes"] > 1 << 28
    assert len(found["load"]) == 3
    assert set(missing) <= MAY_BE_ABSENT
    for name in ("user", "cpu_model", "numa_nodes"):
        assert (found[name] is None) == (name in missing)


def test_what_fails_is_a_reason(monkeypatch):
    fails = Mock(side_effect=OSError("not today"))
    for name in ("getpass.getuser", "Path.read_text", "os.sysconf", "os.getloadavg"):
        monkeypatch.setattr(f"runner.environment.host.{name}", fails)
    missing = {}
    found = host(missing)
    assert missing["user"] == "this process's user has no name"
    assert missing["memory_bytes"] == "not today"
    assert {"cpu_model", "container"} <= set(missing)
    assert found["user"] is found["cpu_model"] is found["memory_bytes"] is found["load"] is None


def groups(tmp_path, files, own):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    missing = {}
    found = container(missing, tmp_path, tmp_path / "own")
    return {"cores": found["cores"], "memory_bytes": found["memory_bytes"], "why": missing.get("container", "")}


def test_control_groups_of_version_2_count_upwards(tmp_path):
    files = {"slurm/cpu.max": "350000 100000", "slurm/job/cpu.max": "max 100000"}
    files |= {"slurm/memory.max": "max", "slurm/job/memory.max": "1048576", "cgroup.controllers": "cpu memory"}
    assert groups(tmp_path, files, "0::/slurm/job/step\n") == {"cores": 3.5, "memory_bytes": 1 << 20, "why": ""}
    assert groups(tmp_path, files, "0::/\n") == {"cores": None, "memory_bytes": None, "why": ""}


def test_control_groups_of_version_1(tmp_path):
    files = {
        "cpu/box/cpu.cfs_quota_us": "200000",
        "cpu/box/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_quota_us": "-1",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/box/memory.limit_in_bytes": "4194304",
    }
    own = "5:memory:/box\n3:cpu,cpuacct:/box\n0::/\n"
    assert groups(tmp_path, files, own) == {"cores": 2.0, "memory_bytes": 4 << 20, "why": ""}


def test_control_groups_that_make_no_sense(tmp_path):
    found = groups(tmp_path, {"cgroup.controllers": "", "cpu.max": "many 100000"}, "0::/\n")
    assert "many" in found["why"]
    assert found["cores"] is None


def available(tmp_path, files, own):
    groups(tmp_path, files, own)
    return available_bytes(tmp_path, tmp_path / "own", tmp_path / "meminfo")


def test_available_memory_is_the_least_that_host_and_groups_leave(tmp_path):
    meminfo = {"meminfo": "MemTotal:  9000 kB\nMemAvailable:   4000 kB\nHugePages_Total:  0"}
    assert available(tmp_path, meminfo, "0::/\n") == 4000 << 10, "no group has a limit"
    files = meminfo | {
        "cgroup.controllers": "memory",
        "job/memory.max": "3000000",
        "job/memory.current": "2500000",
        "job/memory.stat": "anon 2000000\nfile 500000\ninactive_file 300000",
        "job/step/memory.max": "max",
        "job/step/memory.current": "100",
    }
    assert available(tmp_path, files, "0::/job/step\n") == 800_000, (
        "the group of the group, with pages it can give back"
    )
    files["job/memory.current"] = "3600000"
    assert available(tmp_path, files, "0::/job/step\n") == 0
    files["job/memory.max"] = "30000000000"
    assert available(tmp_path, files, "0::/job/step\n") == 4000 << 10


def test_available_memory_with_control_groups_of_version_1(tmp_path):
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/memory.usage_in_bytes": "5",
        "memory/box/memory.limit_in_bytes": "4000000",
        "memory/box/memory.usage_in_bytes": "1000000",
        "memory/box/memory.stat": "cache 7\ntotal_inactive_file 50",
    }
    assert available(tmp_path, files, "5:memory:/box\n0::/\n") == 3_000_050


def test_unknown_memory_is_none(tmp_path):
    assert available(tmp_path, {}, "0::/\n") is None
    assert available(tmp_path, {"meminfo": "MemTotal: 1 kB", "cgroup.controllers": ""}, "nothing") is None
    broken = {"cgroup.controllers": "", "memory.max": "many", "memory.current": "1"}
    assert available(tmp_path, broken, "0::/\n") is None
    found = available_bytes()
    assert found is None or found > 1 << 20


STEP = "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_JOB_NODELIST=node[1-4] SLURM_STEP_NODELIST=node[1-2]"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("", ("none", "", None, "", None)),
        ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=r7", ("torchrun", "r7", None, "", 8)),
        (f"SLURM_JOB_ID=42 {STEP} SLURM_NTASKS=16", ("srun", "42", 2, "node[1-2]", 16)),
        ("SLURM_JOB_ID=42 SLURM_JOB_NUM_NODES=1", ("none", "42", 1, "", None)),
    ],
)
def test_who_started_it(variables, expected):
    found = launch(dict(word.split("=") for word in variables.split()))
    assert tuple(found[name] for name in ("launcher", "job_id", "nodes", "node_names", "ranks")) == expected
