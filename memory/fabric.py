"""The Fabric contract: what a rank needs from a world with symmetric memory that can run a compiled kernel.

Two fabrics keep it: NVSHMEM on GPUs, and the simulator, which interprets the kernel's PTX. Everything above this file
(pool, kernels, runner) is written against the contract alone. Addresses are plain integers: kernels take them so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class FabricError(RuntimeError):
    """Something the machine or a kernel did; the world it happened in is not to be used again."""


class DeviceFault(FabricError):
    """A kernel did something illegal: a wrong address, misalignment, a read of poison, an unknown instruction."""


class Deadlock(FabricError):
    """Every thread waits and nothing can change any more."""


class DeadlineExceeded(FabricError):
    """The time or the step budget given to a piece of work ran out."""


class PeerLost(FabricError):
    """Another rank failed or left, so that what this rank waits for can't happen any more."""


class Disagreement(ValueError):
    """The ranks called different collective operations, or the same one with different arguments."""


class HeapFull(ValueError):
    """The symmetric heap has no room for an allocation; the message says what would fit."""


class NoMulticast(ValueError):
    """This fabric can't give a multicast address; the message says why."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a fabric can do, as far as a kernel's or a case's fitness depends on it.

    heap_bytes is the capacity of one rank's symmetric heap. multicast_reason says why multicast is False, else is "".
    unmapped names the ranks whose memory others can't address directly ("rank 0 can't reach ranks 8, 9"); "" when every
    rank reaches every other. l2_bytes is the size of a GPU's L2 cache, multiprocessors the number of its
    SMs, 0 where there are none. library is the one behind
    the fabric as it was loaded, with its version ("NVSHMEM 3.8.0"), "" where there is none. Simulated fabrics have no
    clock of real hardware: nothing that ran on them publishes a time or a bandwidth.
    """

    name: str
    arch: str
    world_size: int
    heap_bytes: int
    multicast: bool
    multicast_reason: str = ""
    simulated: bool = False
    description: str = ""
    unmapped: str = ""
    l2_bytes: int = 0
    multiprocessors: int = 0
    library: str = ""


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled kernel: the PTX that both fabrics can run, and the machine code made from it.

    name is the catalogue's ("all_reduce/one_shot"), entry the symbol in the PTX. digest is the SHA-256 of the PTX text
    ("sha256:<hex>") and so names what ran. cubin is for GPUs; the simulator does not look at it.
    """

    name: str
    entry: str
    arch: str
    ptx: str
    digest: str
    cubin: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Region:
    """One symmetric allocation as its own rank sees it: size_bytes at address, with the name that messages use."""

    name: str
    address: int
    size_bytes: int


class Fabric(Protocol):
    """One rank's view of a world. All methods raise FabricError, or one of its kinds, when the world is broken.

    Collective calls (exchange, barrier, allocate, free) are made by all ranks, in the same order. A fabric never hangs
    on ranks that disagree or are gone: it raises Disagreement or PeerLost, naming them.
    """

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def traits(self) -> Traits: ...

    def exchange(self, note: str) -> tuple[str, ...]:
        """Collective: give a short text, get everyone's, by rank. A barrier too. It's how ranks agree on something."""
        ...

    def barrier(self) -> None:
        """Collective: no rank goes on before all ranks are here; work launched before is not waited for."""
        ...

    def allocate(self, size_bytes: int, alignment_bytes: int, name: str) -> Region:
        """Collective: size_bytes on every rank at the same offset of its heap; fresh memory holds poison.

        The caller has made sure that the ranks agree (SymmetricPool does). Raises HeapFull.
        """
        ...

    def free(self, region: Region) -> None:
        """Collective: wait for this rank's work, for all ranks, then give the memory back.

        Raises ValueError naming the region if a view() of it is still held and the fabric can tell.
        """
        ...

    def drop(self, region: Region) -> None:
        """Give the memory up and wait for nobody: the way out after a failure.

        Never raises: neither in a broken world, nor for a region that is free already.
        """
        ...

    def peer_address(self, region: Region, peer: int) -> int:
        """Where this rank sees the same allocation of another rank; for its own rank, region.address."""
        ...

    def multicast_address(self, region: Region) -> int:
        """The address at which multimem instructions reach all ranks' replicas. Raises NoMulticast with the reason."""
        ...

    def view(self, region: Region) -> torch.Tensor:
        """The rank's own bytes, flat uint8, shared, not copied. Whoever takes it is taken to have written it all."""
        ...

    def write(self, region: Region, offset_bytes: int, data: torch.Tensor) -> None:
        """Copy a flat uint8 host tensor into the rank's own memory, in order with its launches."""
        ...

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        """A host copy (flat uint8) of the rank's own memory after all launched so far. Poison reads as 0xFF bytes."""
        ...

    def inspect(self, region: Region) -> torch.Tensor:
        """The rank's own bytes (flat uint8) after all launches so far, to be looked at, never written: on a GPU its
        memory itself, in the simulator a copy. Poison reads as 0xFF bytes.
        """
        ...

    def launch(self, executable: Executable, grid: int, block: int, arguments: Sequence[int]) -> None:
        """Queue a kernel with grid blocks of block threads; one integer for each of its parameters. Returns at once."""
        ...

    def synchronize(self) -> None:
        """Wait until everything this rank launched is done. Raises DeviceFault, Deadlock or DeadlineExceeded."""
        ...


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """One of NVSHMEM's own collectives, by its names for them: "reduce" (to all ranks), "reducescatter", "fcollect"
    (all ranks' pieces to all), "alltoall" or "broadcast".

    dtype is torch's name, such as "torch.float16"; reduction "sum", "min" or "max", "" where nothing is reduced. count
    is the elements of what one rank gives to one other: of a chunk, or of the whole buffer (reduce, broadcast).
    """

    collective: str
    dtype: str
    count: int
    reduction: str = ""
    root: int = 0


class DeviceFabric(Fabric, Protocol):
    """A Fabric on a real GPU: what timing and baselines need beside the contract.

    All work is queued on torch's current stream of the device (torch.cuda.current_stream()), so that it can be captured
    in a CUDA graph. Addresses are this rank's own, or its peers' as peer_address gives them.
    """

    @property
    def device(self) -> torch.device: ...

    def queue_barrier(self) -> None:
        """Queue a barrier over all ranks on the device: work queued after it starts when all ranks' got there."""
        ...

    def queue_copy(self, destination: int, source: int, size_bytes: int) -> None:
        """Queue a copy between two addresses, by the copy engine."""
        ...

    def queue_library(self, call: LibraryCall, destination: int, source: int) -> None:
        """Queue one of NVSHMEM's own host-side collectives over all ranks, on symmetric addresses. ValueError where it
        has none such."""
        ...
