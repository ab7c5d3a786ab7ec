"""Where a run took place: everything that a reader of its records would ask for, as far as it can be had here.

Read, never guessed: what could not be had is listed under "not_captured" with the reason, so that a gap can't be
taken for a fact. Of the process environment only variables of an allow-list are kept, and of those no value that
looks like a secret; the rest is only counted. Names of people and of home folders stay out, but for the user's login
name.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from runner.secrets import WITHHELD, is_secret, scrubbed

PACKAGES = (
    "torch",
    "numpy",
    "ml_dtypes",
    "nvidia-cutlass-dsl",
    "nvidia-cutlass-dsl-libs-base",
    "nvidia-cutlass-dsl-libs-core",
    "nvidia-cutlass-dsl-libs-cu12",
    "nvidia-cutlass-dsl-libs-cu13",
    "cuda-python",
    "cuda-bindings",
    "cuda-core",
    "nvshmem4py-cu13",
    "nvidia-nvshmem-cu13",
    "nvidia-nccl-cu13",
    "triton",
    "hydra-core",
    "omegaconf",
    "mlflow",
    "mlflow-skinny",
    "rich",
    "symlab",
)
"""Distributions whose version can change a result or how it is kept; null in a record says: not installed."""

ALLOWED = ("NCCL_", "NVSHMEM_", "CUDA_", "TORCH_", "CUTE_", "SLURM_")
"""Beginnings of the names of variables whose values are kept."""

DRIVER = Path("/proc/driver/nvidia")
"""Where the NVIDIA driver tells of itself."""

LOOKS_SECRET = f"{WITHHELD}: looks like a secret"

_kept: dict[Path, dict[str, Any]] = {}
_lock = threading.Lock()


def capture(root: Path | str) -> dict[str, Any]:
    """What surrounds this process, as plain JSON values; root is the project's folder. Read once a process and
    root."""
    root = Path(root).absolute()
    with _lock:
        if root not in _kept:
            _kept[root] = _capture(root)
        return _kept[root]


def _capture(root: Path) -> dict[str, Any]:
    missing: dict[str, str] = {}
    return {
        "git": _git(root, missing),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "prefix_is_virtual": sys.prefix != sys.base_prefix,
        },
        "packages": _packages(),
        "host": _host(missing),
        "gpus": _gpus(missing),
        "variables": _variables(os.environ),
        "not_captured": missing,
    }


def _git(root: Path, missing: dict[str, str]) -> dict[str, Any] | None:
    """Commit, branch, and whether anything differs from it: diff_digest is over the tracked changes ("" when
    clean)."""
    try:
        lines = _run_git(root, "status", "--porcelain=v2", "--branch", "--untracked-files=normal").splitlines()
        head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
        changed = [line for line in lines if line[:1] in "12u"]
        untracked = [line for line in lines if line.startswith("?")]
        difference = _run_git(root, "diff", "HEAD", "--no-ext-diff", "--no-color") if changed else ""
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        missing["git"] = (detail.strip().splitlines() or [type(error).__name__])[0]
        return None
    return {
        "commit": head.get("branch.oid", ""),
        "branch": head.get("branch.head", ""),
        "dirty": bool(changed or untracked),
        "changed_files": len(changed),
        "untracked_files": len(untracked),
        "diff_digest": f"sha256:{hashlib.sha256(difference.encode()).hexdigest()}" if difference else "",
    }


def _run_git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "--no-optional-locks", *arguments],
        cwd=root,
        check=True,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=5,
    )
    return done.stdout.encode(errors="surrogateescape").decode(errors="replace")


def _packages() -> dict[str, str | None]:
    """Versions as installed, without importing anything. torch's has its build, such as 2.13.0+cpu."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _host(missing: dict[str, str]) -> dict[str, Any]:
    try:
        user: str | None = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = None
        missing["user"] = "this process's user has no name"
    return {
        "name": socket.gethostname(),
        "user": user,
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(missing),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "numa_nodes": _numa_nodes(missing),
        "memory_bytes": _memory_bytes(missing),
    }


def _cpu_model(missing: dict[str, str]) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        missing["cpu_model"] = str(error.strerror)
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Processor") and value.strip():
            return value.strip()
    missing["cpu_model"] = "the kernel names none"
    return None


def _numa_nodes(missing: dict[str, str]) -> dict[str, str] | None:
    """The cores of each node, as the kernel lists them: {"node0": "0-31"}."""
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*/cpulist"))
    try:
        found = {path.parent.name: path.read_text(encoding="ascii").strip() for path in nodes}
    except OSError as error:
        missing["numa_nodes"] = str(error.strerror)
        return None
    if not found:
        missing["numa_nodes"] = "the kernel lists none"
        return None
    return found


def _memory_bytes(missing: dict[str, str]) -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        missing["memory_bytes"] = "the system does not say"
        return None


def _gpus(missing: dict[str, str], driver: Path = DRIVER) -> list[dict[str, str]] | None:
    """GPUs as the NVIDIA driver lists them in /proc; null where there is no driver, which is no proof of no GPU.

    Clocks, links and MIG need the driver's library, and belong to the fabric that runs on them. All of this machine's
    GPUs are listed; which of them a rank had, timing.devices says.
    """
    if not driver.is_dir():
        missing["gpus"] = "no driver"
        return None
    found = []
    for path in sorted(driver.glob("gpus/*/information")):
        try:
            pairs = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
            fields = {key.strip(): value.strip() for key, _, value in pairs}
        except (OSError, UnicodeDecodeError) as error:
            missing[f"gpus/{path.parent.name}"] = str(error)
            continue
        found.append({"bus": path.parent.name, "model": fields.get("Model", ""), "uuid": fields.get("GPU UUID", "")})
    try:
        version = (driver / "version").read_text(encoding="utf-8").splitlines()[0]
        found = [{**gpu, "driver": " ".join(version.split())} for gpu in found]
    except (OSError, IndexError):
        missing["gpu_driver_version"] = "the driver does not say"
    missing["gpu_clocks"] = "read where something is timed: timing.devices"
    missing["gpu_links"] = "not read by this version; timing.limit is what copies over them reached"
    return found


def _variables(environment: Mapping[str, str]) -> dict[str, Any]:
    """The allowed variables with their values, secrets replaced, home folders as ~; of all others only their
    number."""
    kept = {}
    for name, value in sorted(environment.items()):
        if name.startswith(ALLOWED):
            kept[name] = LOOKS_SECRET if is_secret(name, value) else scrubbed(value)
    return {"allowed": kept, "withheld": len(environment) - len(kept)}
