"""Which fabric a request means, why, and a world on it."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner.config import FabricRequest, RequestError

if TYPE_CHECKING:
    from runner.world import World

WorldMaker = Callable[[FabricRequest, int], "World"]
"""Makes a world of that many ranks on the (resolved) fabric."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine offers to the NVSHMEM fabric. driver_problem is "" when a GPU driver answers."""

    gpu_count: int
    driver_problem: str
    gpu_extra: bool
    nvshmem_fabric: bool


def look() -> Machine:
    """Ask the machine, without torch: the driver for its GPUs, the import system for the packages."""
    gpu_count, problem = _count_gpus()
    return Machine(
        gpu_count=gpu_count,
        driver_problem=problem,
        gpu_extra=importlib.util.find_spec("nvshmem") is not None,
        nvshmem_fabric=importlib.util.find_spec("memory.nvshmem") is not None,
    )


def resolve(fabric: FabricRequest, machine: Callable[[], Machine] = look) -> tuple[FabricRequest, str]:
    """The fabric with "auto" decided, and why. RequestError where an explicit wish can't be met."""
    if fabric.name == "simulator":
        return fabric, "asked for"
    found = machine()
    missing = _missing(found)
    if fabric.name == "nvshmem":
        if not found.nvshmem_fabric:
            raise RequestError(
                "the NVSHMEM fabric is not in this version (fabric=nvshmem), use fabric=simulator, which runs the same "
                "kernels' PTX on the CPU"
            )
        if missing:
            raise RequestError(f"{missing} (fabric=nvshmem), use fabric=simulator")
        return fabric, "asked for"
    if missing:
        return replace(fabric, name="simulator"), missing
    return replace(fabric, name="nvshmem"), f"{found.gpu_count} GPUs and the gpu extra found"


def _missing(machine: Machine) -> str:
    """Why the NVSHMEM fabric can't run here; "" when it can."""
    if machine.driver_problem:
        return machine.driver_problem
    if machine.gpu_count < 2:
        return f"{machine.gpu_count or 'no'} GPU found; NVSHMEM needs two"
    if not machine.gpu_extra:
        return f"{machine.gpu_count} GPUs found, but not the gpu extra: pip install 'symlab[gpu]'"
    if not machine.nvshmem_fabric:
        return f"{machine.gpu_count} GPUs found, but the NVSHMEM fabric is not in this version"
    return ""


def _count_gpus() -> tuple[int, str]:
    """GPUs that the CUDA driver shows, and why it shows none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no GPU driver found"
    if driver.cuInit(0) != 0:
        return 0, "the GPU driver shows no GPU"
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0, "the GPU driver does not answer"
    return count.value, ""


def make_world(fabric: FabricRequest, world_size: int) -> World:
    """A new world of world_size ranks on a resolved fabric."""
    if fabric.name != "simulator":
        raise RequestError(f"no world on the fabric {fabric.name} (fabric), use fabric=simulator")
    from runner.threads import ThreadWorld
    from simulator.world import SimulatorOptions

    options = SimulatorOptions(
        arch=fabric.arch,
        heap_bytes=fabric.heap_bytes,
        multicast=fabric.multicast,
        multimem=fabric.multimem,
        schedule=fabric.schedule,
        seed=fabric.seed,
    )
    if fabric.step_budget is not None:
        options = replace(options, step_budget=fabric.step_budget)
    return ThreadWorld(world_size, options)


def settings(fabric: FabricRequest) -> dict[str, object]:
    """What a record says about how the fabric was set, beside its traits."""
    if fabric.name != "simulator":
        return {}
    chosen: dict[str, object] = {"multimem": fabric.multimem, "schedule": fabric.schedule, "seed": fabric.seed}
    if fabric.step_budget is not None:
        chosen["step_budget"] = fabric.step_budget
    return chosen
