"""Which fabric a request means, why, and a world on it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from cases.record.nccl_settings import OWN_CHOICE, NcclSettings
from cases.record.record import SHARE_GPUS
from kernels.toolkit import version_of
from reports.table.text import counted
from runner.request_error import RequestError
from simulator.gpu import Gpu
from simulator.options import Interleaving, Memory, MultimemModel
from symlab.rooms import check, has

if TYPE_CHECKING:
    from memory.meeting import Store
    from memory.nvshmem_fabric import NvshmemFabric
    from runner.world.launched import Leader
    from runner.world.launcher import Outer
    from runner.world.preload import Preloaded
    from runner.world.rank import FabricOpener
    from runner.world.world import World
    from simulator.world import SimulatorOptions


SIMULATED_HEAP_BYTES, DEVICE_HEAP_BYTES = 1 << 28, 1 << 33
"""What fabric.heap_bytes=null means: simulated, on GPUs."""


class FabricName(StrEnum):
    """What a request can run on. Members are named as they are written: OmegaConf reads names."""

    auto = "auto"
    """NVSHMEM where it can be, else the simulator: see resolve."""
    simulator = "simulator"
    nvshmem = "nvshmem"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricRequest(Interleaving):
    """The fabric section, checked. step_budget None takes the simulator's own; heap_given None the fabric's. gpu: whose
    limits the simulated GPUs have; None: no limits. races: whether the simulator looks for races (check.races);
    None: it does, and no GPU is passed over for it.
    nccl: the library that the ranks load in place of torch's. nccl_settings: what NCCL is restricted to.
    heap_free: the heap takes what GPUs have free, at most heap_given (fabric.heap_bytes=auto). share_gpus: several
    ranks may have the same GPU, and nothing is timed."""

    name: FabricName
    arch: str
    heap_given: int | None
    multicast: bool
    multimem: MultimemModel
    step_budget: int | None
    gpu: Gpu | None = None
    races: bool | None = False
    memory: Memory = Memory.strong
    nccl: Preloaded | None = None
    nccl_settings: NcclSettings = OWN_CHOICE
    heap_free: bool = False
    share_gpus: bool = False

    @property
    def simulated(self) -> bool:
        """Whether it is the simulator; "auto" counts as the simulator until it is resolved."""
        return self.name != FabricName.nvshmem

    @property
    def heap_bytes(self) -> int:
        """One rank's symmetric heap: as given, else what suits the fabric."""
        if self.heap_given is not None and not (self.heap_free and self.simulated):
            return self.heap_given
        return SIMULATED_HEAP_BYTES if self.simulated else DEVICE_HEAP_BYTES


HEAP_OF_FREE_BYTES = 0
"""The heap of an opener whose fabric takes what GPUs have free."""


class WorldMaker(Protocol):
    """Makes a world of that many ranks on the (resolved) fabric. say takes a line where that lasts.

    Raises WorldFailure if the world can't be started.
    """

    def __call__(self, fabric: FabricRequest, world_size: int, say: Callable[[str], None]) -> World: ...


@dataclass(frozen=True, slots=True)
class HostOffer:
    """What this machine offers to the NVSHMEM fabric. driver_problem is "" when a GPU driver answers.

    torch_problem is "" when the installed torch can use GPUs. devices: the names of the GPUs as CUDA reports them; none
    if they are unknown.
    """

    gpu_count: int
    driver_problem: str
    gpu_extra: bool
    torch_problem: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NvshmemOpener:
    """Opens NVSHMEM's fabric in a rank's process; joined: in one that a launcher started, not this program. With
    share_gpus the ranks go round as many of the GPUs as shared_gpus says."""

    heap_bytes: int
    joined: bool = False
    share_gpus: bool = False

    def __call__(self, store: Store, rank: int, world_size: int) -> NvshmemFabric:
        import torch

        device = _joined_device(self.share_gpus) if self.joined else rank
        if self.share_gpus:
            device %= shared_gpus(world_size, torch.cuda.device_count())  # asks NVML, not the driver
        # Before anything touches the driver: what does, makes a context on the device that is set.
        torch.cuda.set_device(device)
        from memory.nvshmem import open_fabric

        return open_fabric(store, rank, world_size, device, self.heap_bytes, share_gpus=self.share_gpus)


def shared_gpus(world_size: int, gpu_count: int) -> int:
    """Return how many of the GPUs are used by ranks that share them: as many as give each the same number of ranks.

    NVSHMEM does not start where some have more ranks than others: 5 ranks on 4 H100 waited in its start for ever.
    """
    return next(count for count in range(min(world_size, gpu_count), 0, -1) if world_size % count == 0)


def look() -> HostOffer:
    """Ask the machine, without torch: the driver for its GPUs, the import system for the packages."""
    devices, problem = _devices()
    return HostOffer(
        gpu_count=len(devices),
        driver_problem=problem,
        gpu_extra=all(map(_installed, ("nvshmem", "cuda"))),
        torch_problem=_torch_problem(),
        devices=tuple(filter(None, devices)),
    )


def resolve(
    fabric: FabricRequest,
    world_size: int,
    machine: Callable[[], HostOffer] = look,
    outer: Outer | None = None,
) -> tuple[FabricRequest, str]:
    """The fabric with "auto" decided for a world of that size, and why. RequestError if an explicit wish can't be met.

    A world of one rank is possible on NVSHMEM as well: it needs one GPU. races is decided, too.
    """
    decided, why = _named(fabric, world_size, machine, outer)
    if fabric.races:
        check("check.races")
    races = decided.simulated and has("check.races") if fabric.races is None else fabric.races
    return replace(decided, races=races), why


def _named(
    fabric: FabricRequest, world_size: int, machine: Callable[[], HostOffer], outer: Outer | None
) -> tuple[FabricRequest, str]:
    """The fabric with its name decided, and why."""
    if fabric.name == FabricName.simulator:
        return fabric, "asked for"
    if fabric.gpu is not None and fabric.name == FabricName.auto:
        return replace(fabric, name=FabricName.simulator), "fabric.gpu asked for"
    if fabric.races:
        return replace(fabric, name=FabricName.simulator), "check.races asked for"
    if outer is not None and not _has_them_already(fabric):
        raise RequestError(_started_before(fabric, outer.launcher))
    if fabric.nccl is not None or not fabric.nccl_settings.is_own_choice or fabric.share_gpus:
        fabric = replace(fabric, name=FabricName.nvshmem)
    found = machine()
    missing, remedy = _missing(found)
    if fabric.name == FabricName.auto and missing:
        return replace(fabric, name=FabricName.simulator), f"{missing}: {remedy}" if found.gpu_count else missing
    if missing:
        raise RequestError(f"{missing} (fabric=nvshmem), {remedy}, or use fabric=simulator")
    if outer is not None:
        if world_size != outer.world_size:
            raise RequestError(
                f"world_size is {world_size}, but {outer.launcher} started {counted(outer.world_size, 'rank')} "
                f"(world_size), give {outer.world_size}"
            )
    elif world_size > found.gpu_count and not fabric.share_gpus:
        are = f"{counted(found.gpu_count, 'GPU')} {'is' if found.gpu_count == 1 else 'are'} here"
        if fabric.name == FabricName.auto:
            return replace(fabric, name=FabricName.simulator), f"world_size is {world_size}, and {are}"
        most = f"give 2 to {found.gpu_count}" if found.gpu_count > 2 else f"give {found.gpu_count}"
        raise RequestError(
            f"world_size is {world_size}, but {are} (world_size, fabric=nvshmem), {most}, start it with torchrun, or "
            "let ranks share them, untimed: fabric.share_gpus=true"
        )
    gpus = counted(found.gpu_count, "GPU")
    why = f"{gpus} and the gpu extra found" if fabric.name == FabricName.auto else "asked for"
    if fabric.share_gpus and world_size > found.gpu_count > 1:
        why += f"; {counted(world_size, 'rank')} on {shared_gpus(world_size, found.gpu_count)} of {gpus}, evenly"
    joined = f"; {outer.launcher} started {counted(outer.world_size, 'rank')}" if outer is not None else ""
    return replace(fabric, name=FabricName.nvshmem), why + joined


def _has_them_already(fabric: FabricRequest) -> bool:
    """Whether the environment that a launcher gave this process already tells NCCL what a request asks for."""
    wanted = fabric.nccl_settings.variables.items()
    return fabric.nccl is None and all(os.environ.get(name) == value for name, value in wanted)


def _started_before(fabric: FabricRequest, launcher: str) -> str:
    """Why ranks that a launcher started have their NCCL and its settings already."""
    if fabric.nccl is not None:
        return (
            f"{launcher} started the ranks with an NCCL (library.nccl), leave it out, and set LD_PRELOAD for {launcher}"
        )
    variables = " ".join(f"{name}={value}" for name, value in fabric.nccl_settings.variables.items())
    return f"{launcher} started the ranks with their settings of NCCL (library), leave them out, and set {variables}"


def _missing(machine: HostOffer) -> tuple[str, str]:
    """Why the NVSHMEM fabric can't run here, and what to do about it; "" when it can."""
    if machine.driver_problem or machine.gpu_count < 1:
        return machine.driver_problem or "no GPU found", "run it on a machine with NVIDIA GPUs and their driver"
    if not machine.gpu_extra:
        return f"{counted(machine.gpu_count, 'GPU')} found, but not the gpu extra", "pip install 'symlab[gpu]'"
    return machine.torch_problem, "install torch for CUDA" if machine.torch_problem else ""


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _torch_problem() -> str:
    """Why the installed torch can't use a GPU, as far as its version tells."""
    version = version_of("torch")
    if not version:
        return "torch is not installed"
    return f"torch {version} is built for CPUs only" if version.endswith("+cpu") else ""


def _joined_device(share_gpus: bool) -> int:
    """The GPU of this process in a launcher's world, by its number on this machine. With share_gpus it may be beyond
    those that there are.

    A launcher may show each process its own GPU alone: then that is number 0. (If it is not its own, the ranks find
    that out when they meet: memory.nvshmem_fabric.connect.)
    """
    import torch

    from runner.world.launcher import find

    outer = find(os.environ)
    assert outer is not None
    count = torch.cuda.device_count()  # asks NVML, not the driver
    if outer.local_rank < count or share_gpus:
        return outer.local_rank
    if count == 1:
        return 0
    raise RequestError(
        f"rank {outer.rank} is number {outer.local_rank} on its machine, and {counted(count, 'GPU')} can be seen "
        "there, start one process a GPU"
    )


def _devices() -> tuple[list[str], str]:
    """Names of the GPUs that the CUDA driver shows, "" for one that it does not name; and why it shows none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "no GPU driver found"
    if driver.cuInit(0) != 0:
        return [], "the GPU driver shows no GPU"
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return [], "the GPU driver does not answer"
    return [_device_name(driver, number) for number in range(count.value)], ""


def _device_name(driver: ctypes.CDLL, number: int) -> str:
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
    if driver.cuDeviceGet(ctypes.byref(device), number) or driver.cuDeviceGetName(name, len(name), device):
        return ""
    return name.value.decode(errors="replace")


def make_world(fabric: FabricRequest, world_size: int, say: Callable[[str], None]) -> World:
    """A new world of world_size ranks on a resolved fabric. Raises WorldFailure if its ranks can't be started."""
    if fabric.name == FabricName.nvshmem:
        from runner.world.processes import ProcessWorld

        return ProcessWorld(
            world_size,
            NvshmemOpener(_opened_bytes(fabric), share_gpus=fabric.share_gpus),
            say=say,
            nccl=fabric.nccl,
            variables=fabric.nccl_settings.variables,
        )
    return _simulated(fabric, world_size)


def joining(leader: Leader) -> WorldMaker:
    """A maker of worlds for rank 0 of a launcher's world: NVSHMEM's is that one."""

    def make(fabric: FabricRequest, world_size: int, say: Callable[[str], None]) -> World:
        if fabric.name == FabricName.nvshmem:
            return leader.world(joined_opener(fabric))
        return _simulated(fabric, world_size)

    return make


def joined_opener(fabric: FabricRequest) -> FabricOpener:
    """What opens NVSHMEM's fabric in each process of a launcher's world."""
    heap_bytes = _opened_bytes(replace(fabric, name=FabricName.nvshmem))
    return NvshmemOpener(heap_bytes, joined=True, share_gpus=fabric.share_gpus)


def _opened_bytes(fabric: FabricRequest) -> int:
    """The heap that GPUs are asked for."""
    return HEAP_OF_FREE_BYTES if fabric.heap_free else fabric.heap_bytes


def _simulated(fabric: FabricRequest, world_size: int) -> World:
    from runner.world.threads import ThreadWorld

    return ThreadWorld(world_size, simulator_options(fabric))


def simulator_options(fabric: FabricRequest) -> SimulatorOptions:
    """How the simulated world of a request is made."""
    from simulator.world import SimulatorOptions

    names = ["arch", "heap_bytes", "multicast", "multimem", "gpu", "memory"]
    names += ["step_budget"] if fabric.step_budget is not None else []
    values = {name: getattr(fabric, name) for name in names}
    return SimulatorOptions(races=bool(fabric.races), **values).under(fabric)


def settings(fabric: FabricRequest) -> dict[str, object]:
    """What a record says about how the fabric was set, beside its traits."""
    if fabric.name != FabricName.simulator:
        return {SHARE_GPUS: True} if fabric.share_gpus else {}
    chosen = {"multimem": str(fabric.multimem), **fabric.settings, "memory": str(fabric.memory)}
    if fabric.step_budget is not None:
        chosen["step_budget"] = fabric.step_budget
    if fabric.gpu is not None:
        chosen["gpu"] = asdict(fabric.gpu)
    return chosen
