"""The machine that a command runs on, as the kernel tells of it: cores, memory, and how busy it is.

`missing` lists what is unavailable and why; nothing here raises.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")
_FILES = {"cpu": ("cpu.max",), "memory": ("memory.max", "memory.current", "inactive_file")}
"""By controller: of memory the limit, what is used, and in memory.stat what could be given back."""
_FILES_OF_VERSION_1 = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
UNLIMITED = 1 << 60
"""Bytes; above it an older kernel's limit of a control group means none."""


def now_text() -> str:
    """Return this moment, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def host(missing: dict[str, str]) -> dict[str, Any]:
    """Names, system, processors, memory and container of this machine, and its load of now."""
    return {
        "name": socket.gethostname(),
        "user": _tried("user", _user, missing),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _tried("cpu_model", _cpu_model, missing),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "numa_nodes": _tried("numa_nodes", _numa_nodes, missing),
        "memory_bytes": _tried("memory_bytes", _memory_bytes, missing),
        "container": container(missing),
        "load": load(),
    }


def load() -> list[float] | None:
    """Mean numbers of processes that ran or waited, over 1, 5 and 15 minutes; None if the system does not report them.

    On a machine that is one's own it is about what one's own command needs.
    """
    try:
        return [round(one, 2) for one in os.getloadavg()]
    except OSError:
        return None


def container(missing: dict[str, str], groups: Path = GROUPS, own: Path = OWN_GROUPS) -> dict[str, Any]:
    """Whether this looks like a container, and what its control groups permit: cores and bytes; None: all of them."""
    found: dict[str, Any] = {"inside": any(Path(name).exists() for name in CONTAINER_FILES)}
    try:
        folders, names = _files(groups, own, "cpu")
        cores = [_cores(*(word for name in names for word in _words(folder / name))) for folder in folders]
        folders, (limit, *_) = _files(groups, own, "memory")
        limits = [_bytes(*_words(folder / limit)) for folder in folders]
    except (OSError, ValueError) as error:
        missing["container"] = f"its control groups: {error}"
        return found | {"cores": None, "memory_bytes": None}
    return found | {"cores": _least(cores), "memory_bytes": _least(limits)}


def available_bytes(groups: Path = GROUPS, own: Path = OWN_GROUPS, meminfo: Path = MEMINFO) -> int | None:
    """Return the memory that this process can still take without swapping; None if the system does not report it.

    That is the least of what the kernel calls available, and of what is left below the limits of the process's control
    groups. File pages that a group could give back count as left.
    """
    left: list[int | None] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        left = [int(fields["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in fields else []
    with contextlib.suppress(OSError, ValueError):
        folders, names = _files(groups, own, "memory")
        left += [_left(folder, *names) for folder in folders]
    least: int | None = _least(left)
    return least


def launch(environment: Mapping[str, str]) -> dict[str, Any]:
    """Who started this process: torchrun, srun or neither ("none"); the job's id, nodes and ranks, if any."""
    slurm = environment.get("SLURM_JOB_ID", "")
    elastic = "TORCHELASTIC_RUN_ID" in environment or {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= set(environment)
    return {
        "launcher": "torchrun" if elastic else "srun" if environment.get("SLURM_STEP_ID") else "none",
        "job_id": slurm or environment.get("TORCHELASTIC_RUN_ID", ""),
        "nodes": _number(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_JOB_NUM_NODES")),
        "node_names": environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", ""),
        "ranks": _number(environment.get("WORLD_SIZE") or environment.get("SLURM_NTASKS")),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _tried(name: str, read: Callable[[], Any], missing: dict[str, str]) -> Any:
    """What read gives; None, with the reason in missing, where it fails or has nothing."""
    try:
        found = read()
    except (OSError, ValueError, KeyError, ImportError, IndexError) as error:
        missing[name] = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return None
    if found in (None, "", {}):
        missing[name] = "the system does not say"
        return None
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise OSError("this process's user has no name") from None


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = ((key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines))
    return next((value for key, value in pairs if key in ("model name", "Model", "Processor") and value), "")


def _numa_nodes() -> dict[str, str]:
    """The cores of each node, as the kernel lists them: {"node0": "0-31"}."""
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist"))
    return {path.parent.name: path.read_text(encoding="ascii").strip() for path in nodes}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _files(groups: Path, own: Path, controller: str) -> tuple[list[Path], tuple[str, ...]]:
    """The folders of this process's control groups that a controller limits, its own first, and the files there. That
    of version 2 has no controller in its name."""
    lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    if (groups / "cgroup.controllers").exists():
        return _upwards(groups, paths.get("", "/")), _FILES[controller]
    return _upwards(groups / controller, paths.get(controller, "/")), _FILES_OF_VERSION_1[controller]


def _left(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    """Bytes that a control group may still take; None if it has no limit."""
    limit, usage = _bytes(*_words(folder / limit_name)), _words(folder / usage_name)
    if limit is None or not usage:
        return None
    statistics = _words(folder / "memory.stat")
    cache = dict(zip(statistics[::2], statistics[1::2], strict=False)).get(cache_name, "0")
    return max(limit - int(usage[0]) + int(cache), 0)


def _upwards(top: Path, path: str) -> list[Path]:
    """A control group's folder and those of all groups that it is in: each of them may limit it."""
    folder = top / path.lstrip("/")
    return [folder, *(one for one in folder.parents if one == top or top in one.parents)]


def _words(path: Path) -> list[str]:
    """The words of a small file; none where there is no such file."""
    try:
        return path.read_text(encoding="ascii").split()
    except (FileNotFoundError, NotADirectoryError):
        return []


def _cores(quota: str = "max", period: str = "100000") -> float | None:
    return None if quota == "max" or int(quota) <= 0 else round(int(quota) / int(period), 2)


def _bytes(limit: str = "max") -> int | None:
    return None if limit == "max" or int(limit) >= UNLIMITED else int(limit)


def _least(found: list[Any]) -> Any:
    return min((one for one in found if one is not None), default=None)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
