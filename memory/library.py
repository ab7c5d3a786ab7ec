"""What NvshmemFabric uses of NVSHMEM, and finding out what it can do on the machine at hand: by trying, not by asking.

The attribute "multicast" has been seen set where no multicast address was available. So the probe allocates
a little memory and asks for the addresses that kernels will need.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from memory.driver import CudaDriver
from memory.fabric import FabricError, LibraryCall, Traits
from memory.meeting import Meeting
from memory.nccl import loaded_version
from memory.placing import NVSHMEM
from memory.ranks import named

if TYPE_CHECKING:
    import torch

GRANULE_BYTES = NVSHMEM.granule_bytes
"""What the library rounds sizes up to, and aligns to."""


STEP_BYTES = 512 << 20
"""By what the library's heap grows; the GPU's memory is taken from others then."""

HEAP_SHARE = 0.5
"""What of a GPU's free memory is for the heap, where it is to take what is free: inputs, references, comparisons and
the libraries' own buffers need as much again."""


_IN_C = {"float16": "half", "float32": "float", "float64": "double"}
_OTHERS = ("bfloat16", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
TYPES = {f"torch.{name}": _IN_C.get(name, name) for name in (*_IN_C, *_OTHERS)}
"""What the library's host-side collectives call our dtypes."""


class Library:
    """The functions of nvshmem.core that are used, on tensors of bytes, for one GPU of this process, which is current
    already. They raise whatever they like. tensor, free_tensor, init and finalize are collective.
    """

    def __init__(self, device_index: int) -> None:
        import nvshmem.bindings
        import nvshmem.core
        from cuda.core import Device

        self._core = nvshmem.core
        self._bindings = nvshmem.bindings
        self._device = Device(device_index)
        self._device.set_current()

    def versions(self) -> tuple[str, str]:
        version = self._core.get_version()
        return str(version.libnvshmem_version), str(version.nvshmem4py_version)

    def unique_id(self) -> bytes:
        identity = self._core.get_unique_id()
        return ctypes.string_at(identity.ptr, _size_bytes(identity))

    def init(self, unique_id: bytes, rank: int, world_size: int) -> None:
        identity = self._core.get_unique_id(empty=True)
        size_bytes = _size_bytes(identity)
        if len(unique_id) != size_bytes:
            raise ValueError(
                f"rank 0's unique id has {len(unique_id)} bytes, rank {rank}'s NVSHMEM takes {size_bytes}: "
                "all ranks need the same version"
            )
        ctypes.memmove(identity.ptr, unique_id, size_bytes)
        self._core.init(device=self._device, uid=identity, rank=rank, nranks=world_size, initializer_method="uid")

    def finalize(self) -> None:
        self._core.finalize()

    def tensor(self, size_bytes: int) -> torch.Tensor:
        import torch

        # A tensor that is collected without free_tensor leaks with a log line; it would raise in its destructor.
        tensor: torch.Tensor = self._core.tensor((size_bytes,), dtype=torch.uint8, except_on_del=False)
        return tensor

    def free_tensor(self, tensor: torch.Tensor) -> None:
        self._core.free_tensor(tensor)

    def get_peer_tensor(self, tensor: torch.Tensor, peer: int) -> torch.Tensor:
        child: torch.Tensor = self._core.get_peer_tensor(tensor, peer)
        return child

    def get_multicast_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        child: torch.Tensor = self._core.get_multicast_tensor(self._core.Teams.TEAM_WORLD, tensor)
        return child

    def library_init(self, handle: int) -> None:
        self._core.library_init(self._core.NvshmemKernelObject.from_handle(handle))

    def library_finalize(self, handle: int) -> None:
        self._core.library_finalize(self._core.NvshmemKernelObject.from_handle(handle))

    def barrier_on_stream(self, stream: int) -> None:
        self._bindings.barrier_all_on_stream(stream)

    def collective_on_stream(self, call: LibraryCall, destination: int, source: int, stream: int) -> None:
        if call.dtype not in TYPES:
            raise ValueError(f"NVSHMEM's {call.collective} does not take {call.dtype}: it takes {', '.join(TYPES)}")
        name = "_".join(part for part in (TYPES[call.dtype], call.reduction, call.collective, "on_stream") if part)
        function = getattr(self._bindings, name, None)
        if function is None:
            raise ValueError(f"NVSHMEM has no {name}")
        root = (call.root,) if call.collective == "broadcast" else ()
        function(int(self._core.Teams.TEAM_WORLD), destination, source, call.count, *root, stream)


SWITCH_OFF = "NVSHMEM_DISABLE_NVLS"
"""What users turn NVSHMEM's multicast off with: its error does not tell that from a machine without a switch."""


def probe(
    library: Library, driver: CudaDriver, meeting: Meeting, heap_bytes: int, ranks_on_gpu: int = 1
) -> tuple[Traits, frozenset[int]]:
    """Collective, once, after init: the world's traits, and the peers whose memory this rank does not see. heap_bytes:
    the cap of what a rank allocates at a time; 0: HEAP_SHARE of what the GPU with the least memory has free, in even
    parts for the ranks that share it."""
    try:
        tensor = library.tensor(GRANULE_BYTES)
    except Exception as error:
        message = f"rank {meeting.rank}: NVSHMEM's first allocation failed: {described(error)}"
        raise FabricError(message, rank=meeting.rank) from error
    children: list[torch.Tensor] = []
    unmapped: list[int] = []
    for peer in range(meeting.world_size):
        # Never the own rank's: the library would count a second owner of the memory, and not free it.
        if peer != meeting.rank and _tried(library.get_peer_tensor, children, tensor, peer):
            unmapped.append(peer)
    reason = _tried(library.get_multicast_tensor, children, tensor)
    switch = os.environ.get(SWITCH_OFF, "0")
    if reason and switch != "0":
        reason += f" ({SWITCH_OFF}={switch} is set)"
    mine = [unmapped, reason, loaded_version(), driver.free_bytes()]
    answers = [json.loads(note) for note in meeting.exchange("probe", json.dumps(mine))]
    while children:
        library.free_tensor(children.pop())
    library.free_tensor(tensor)
    traits = _traits(library, driver, meeting.world_size, (heap_bytes, ranks_on_gpu), answers)
    return traits, frozenset(unmapped)


def _traits(
    library: Library,
    driver: CudaDriver,
    world_size: int,
    heap: tuple[int, int],
    answers: Sequence[tuple[list[int], str, str, int]],
) -> Traits:
    """What all ranks together can do. heap: the cap in bytes, 0 for what is free, and the number of ranks on a GPU.
    answers: each rank's unseen peers, its reason for having no multicast, the version of its NCCL, and the free bytes
    of its GPU."""
    heap_bytes, ranks_on_gpu = heap
    every_unmapped, reasons, versions, free = zip(*answers, strict=True)
    unmapped = [f"rank {rank} can't reach {named(peers)}" for rank, peers in enumerate(every_unmapped) if peers]
    without = [f"rank {rank} no multicast address: {reason}" for rank, reason in enumerate(reasons) if reason]
    of_library, of_python = library.versions()
    return Traits(
        name="nvshmem",
        arch=driver.arch,
        world_size=world_size,
        heap_bytes=heap_bytes or max(int(min(free) * HEAP_SHARE / ranks_on_gpu) // STEP_BYTES, 1) * STEP_BYTES,
        multicast=not without,
        multicast_reason=f"NVSHMEM gave {without[0]}" if without else "",
        description=", ".join(
            [
                driver.name,
                f"libnvshmem {of_library}",
                f"nvshmem4py {of_python}",
                *([f"up to {ranks_on_gpu} ranks on a GPU"] if ranks_on_gpu > 1 else []),
            ]
        ),
        unmapped="; ".join(unmapped),
        l2_bytes=driver.l2_bytes,
        multiprocessors=driver.multiprocessors,
        library=f"NVSHMEM {of_library}",
        block_shared_bytes=driver.block_shared_bytes,
        nccl=" and ".join(dict.fromkeys(filter(None, versions))),
        ranks_on_gpu=ranks_on_gpu,
    )


def _tried(look_up: Callable[..., torch.Tensor], found: list[torch.Tensor], *arguments: Any) -> str:
    """Add what a look-up gave to found; "" then, or why it gave nothing."""
    try:
        found.append(look_up(*arguments))
    except Exception as error:
        return described(error)
    return ""


def described(error: BaseException) -> str:
    """ "NvshmemError: Failed to ...": some of the library's errors keep their text to themselves."""
    text = str(error) or str(getattr(error, "msg", ""))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _size_bytes(identity: object) -> int:
    """How long a unique id is: bindings.uniqueid keeps it in an array."""
    return int(identity._data.nbytes)  # type: ignore[attr-defined]
