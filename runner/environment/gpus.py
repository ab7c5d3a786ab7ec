"""The GPUs of this machine: what the driver's library NVML tells of them, and what a rank has of them.

NVML is only read, never changed. What it does not answer is named with the reason, in a GPU's "not_captured" or in the
capture's; nothing here raises. Clocks, temperatures and power of the moment belong to what is timed:
runner.timing.gpu_state.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memory.nccl import loaded_version
from runner.environment.driver import DRIVER, LIBRARY, has_driver, no_gpus
from runner.environment.nvml import answers, reason, session

CUDA_LIBRARY = "libcuda.so.1"

FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


def gpus(missing: dict[str, str], driver: Path = DRIVER, library: str = LIBRARY) -> dict[str, Any]:
    """{"gpus": one dict each, "cuda_driver": "13.0"}, each None where unknown.

    All of this machine's GPUs are listed; which of them a rank had, world.ranks and timing.devices say. No driver is no
    proof of no GPU.
    """
    if not has_driver(driver, library):
        return no_gpus(missing)
    found: dict[str, Any] = {"gpus": None, "cuda_driver": None}
    missing["gpu_clocks"] = "read where something is timed: timing.devices"
    try:
        with session() as nvml:
            _ask(nvml, found, missing)
    except Exception as error:
        missing["gpus"] = missing["cuda_driver"] = reason(error)
    return found


def rank_facts(fabric: Any, _: object) -> dict[str, Any]:
    """A per-rank program that never fails: the rank's device, and the libraries as they are loaded in its process."""
    facts, missing = answers(_RANK_FACTS)
    found = {"rank": getattr(fabric, "rank", None), "process": os.getpid(), **facts}
    return {**found, "not_captured": missing} if missing else found


def _ask(nvml: Any, found: dict[str, Any], missing: dict[str, str]) -> None:
    """Take what NVML says."""
    version, why = answers({"driver": nvml.nvmlSystemGetDriverVersion, "cuda": nvml.nvmlSystemGetCudaDriverVersion_v2})
    missing.update({f"{name}_driver": text for name, text in why.items()})
    if "cuda" in version:
        found["cuda_driver"] = _cuda_version(version["cuda"])
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    found["gpus"] = []
    for handle in handles:
        gpu, why = answers(_questions(nvml, handle))
        found["gpus"].append({**gpu, "driver": version.get("driver", ""), **({"not_captured": why} if why else {})})


def _questions(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    """What a GPU is, what can be set on it, and what it is connected by: clocks in MHz, power in W."""
    return {
        "bus": lambda: str(nvml.nvmlDeviceGetPciInfo(handle).busId).lower(),
        "model": lambda: str(nvml.nvmlDeviceGetName(handle)),
        "uuid": lambda: str(nvml.nvmlDeviceGetUUID(handle)),
        "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
        "persistence": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "power_default_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
        "max_sm_mhz": lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "max_memory_mhz": lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        "application_sm_mhz": lambda: int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM)),
        "application_memory_mhz": lambda: int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_MEM)),
        "nvlink": lambda: _links(nvml, handle),
        "fabric": lambda: _fabric(nvml, handle),
        # Before a world is started: these processes are others'.
        "other_processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }


NO_SUCH_LINK = frozenset({"Invalid Argument", "Not Supported"})
"""NVML's answers about the state of a link that a GPU does not have."""


def _links(nvml: Any, handle: Any) -> dict[str, int]:
    """Return how many NVLinks there are, and how many are up. Raises NVML's error if it can't say whether one is up."""
    found = {"count": 0, "active": 0}
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            found["active"] += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except Exception as error:
            if reason(error) not in NO_SUCH_LINK:
                raise  # unknown is not none: the caller says why
            continue
        found["count"] += 1
    return found


def _fabric(nvml: Any, handle: Any) -> dict[str, Any]:
    """The NVLink domain that a fabric manager has put the GPU in."""
    info = nvml.c_nvmlGpuFabricInfoV_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return {
        "state": FABRIC_STATES.get(int(info.state), f"unknown ({int(info.state)})"),
        "status": int(info.status),
        "clique": int(info.cliqueId),
        "cluster": bytes(info.clusterUuid).hex(),
    }


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel lists them: "0-3,8"."""
    known = set(numbers)
    starts = sorted(one for one in known if one - 1 not in known)
    ends = sorted(one for one in known if one + 1 not in known)
    pairs = zip(starts, ends, strict=True)
    return ",".join(f"{start}" if start == end else f"{start}-{end}" for start, end in pairs)


def _device() -> dict[str, Any]:
    import torch

    device = torch.device("cuda", torch.cuda.current_device())
    known = torch.cuda.get_device_properties(device)
    identity = str(known.uuid)
    return {
        "index": device.index,
        "name": known.name,
        "uuid": identity if identity.startswith(("GPU-", "MIG-")) else f"GPU-{identity}",
        "capability": f"{known.major}.{known.minor}",
        "multiprocessors": int(known.multi_processor_count),
        "memory_bytes": int(known.total_memory),
        "l2_bytes": int(known.L2_cache_size),
    }


def _torch_cuda() -> str:
    import torch

    return str(torch.version.cuda)


def _nccl() -> str:
    version = loaded_version()
    if not version:
        raise OSError("no NCCL is loaded")
    return version


def _nvshmem() -> str:
    version = sys.modules["nvshmem.core"].get_version()
    return f"libnvshmem {version.libnvshmem_version}, nvshmem4py {version.nvshmem4py_version}"


def _cuda_driver() -> str:
    number = ctypes.c_int()
    code = ctypes.CDLL(CUDA_LIBRARY).cuDriverGetVersion(ctypes.byref(number))
    if code:
        raise OSError(f"cuDriverGetVersion gave {code}")
    return _cuda_version(number.value)


_RANK_FACTS: dict[str, Callable[[], Any]] = {
    "host": lambda: os.uname().nodename,
    "cores": lambda: _ranges(os.sched_getaffinity(0)),
    "device": _device,
    "torch_cuda": _torch_cuda,
    "nccl": _nccl,
    "nvshmem": _nvshmem,
    "cuda_driver": _cuda_driver,
}
