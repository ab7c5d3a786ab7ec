"""The NVSHMEM fabric on the installed library: nvshmem4py and the libnvshmem that it finds.

torch.distributed carries the unique id from rank 0 to the others: not a broadcast of a process group, but its store,
because waits on a store can be interrupted and name the rank that never came (memory/meeting.py).

NVSHMEM is started once in a process and for one world size: a second start in the same process is not defined.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from memory.driver import CudaDriver
from memory.fabric import LibraryCall
from memory.meeting import Meeting, Store
from memory.nvshmem_fabric import NvshmemFabric, connect

if TYPE_CHECKING:
    import torch

__all__ = ["InstalledLibrary", "NvshmemFabric", "open_fabric"]

TYPES = {
    "torch.float16": "half",
    "torch.bfloat16": "bfloat16",
    "torch.float32": "float",
    "torch.float64": "double",
    "torch.int8": "int8",
    "torch.int16": "int16",
    "torch.int32": "int32",
    "torch.int64": "int64",
    "torch.uint8": "uint8",
    "torch.uint16": "uint16",
    "torch.uint32": "uint32",
    "torch.uint64": "uint64",
}
"""What the library's host-side collectives call our dtypes."""

OPENING_S = 60.0
"""How long ranks wait for each other before the first program: importing torch on a busy machine takes its time."""


class InstalledLibrary:
    """memory.library.Library over nvshmem4py, for one GPU of this process, which is current already."""

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


def open_fabric(
    store: Store,
    rank: int,
    world_size: int,
    device_index: int,
    heap_bytes: int,
    *,
    share_gpus: bool = False,
    deadline_s: float = OPENING_S,
) -> NvshmemFabric:
    """Collective: this process's NvshmemFabric, on the GPU device_index, which need not be the rank.

    store is this process's own client of the store that all ranks share. heap_bytes caps what each rank allocates at a
    time; 0: see probe. Raises FabricError with what the library said, PeerLost and DeadlineExceeded naming ranks that
    did not come, and FabricError if two ranks have the same GPU, unless share_gpus lets them.
    """
    meeting = Meeting(store, rank, world_size)
    meeting.set_deadline(time.monotonic() + deadline_s)
    # The GPU is made current before anything else touches the driver in this process.
    driver = CudaDriver(device_index, rank)
    fabric = connect(InstalledLibrary(device_index), driver, meeting, heap_bytes, share_gpus)
    fabric.set_deadline(None)
    return fabric


def _size_bytes(identity: object) -> int:
    """How long a unique id is: bindings.uniqueid keeps it in an array."""
    return int(identity._data.nbytes)  # type: ignore[attr-defined]
