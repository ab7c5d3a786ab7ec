"""The Fabric contract: what a rank needs from a world with symmetric memory that can run a compiled kernel.

Two fabrics keep it: NVSHMEM on GPUs, and the simulator, which interprets the kernel's PTX. Everything above this file
(pool, kernels, runner) is written against the contract alone. Addresses are plain integers: kernels take them so.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import torch


AWAITS_LAUNCHES = "griddepcontrol.wait"
"""The PTX instruction by which a kernel waits for the launches before it on its stream."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread of a kernel is.

    block and thread are numbers in x-major order. ptx_line counts from 1; 0: unknown. source is the line that the
    instruction was compiled from, "file.py:12", of inlined functions the innermost; "" without line information.
    launch counts the rank's launches from 0; stream is the launch's, None for the default one.
    """

    rank: int
    block: int
    thread: int
    ptx_line: int = 0
    source: str = ""
    launch: int = 0
    stream: int | None = None


class FabricError(RuntimeError):
    """Something the machine or a kernel did; the world it happened in is not to be used again.

    rank is the rank that the error is about, which the message names; None if the message names no single rank.
    places: the threads that it is about, as far as they are known: of a fault one, of a deadlock the first that wait.
    work names the work of this rank that did not end, where that is certain; "" elsewhere.
    """

    def __init__(
        self, message: str = "", rank: int | None = None, places: Sequence[Place] = (), work: str = ""
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.places = tuple(places)
        self.work = work


class DeviceFault(FabricError):
    """A kernel did something illegal: a wrong address, misalignment, a read of poison, an unknown instruction."""


class Deadlock(FabricError):
    """Every thread waits and nothing can change any more."""


class DeadlineExceeded(FabricError):
    """The time or the step budget given to a piece of work ran out."""


class PeerLost(FabricError):
    """Another rank failed or left, so that what this rank waits for can't happen any more."""


def work_of(error: BaseException) -> str:
    """Return the work that an error of a fabric says did not end; "" if it says none."""
    return error.work if isinstance(error, FabricError) else ""


class WrongCall(ValueError):
    """A call that the fabric can't do as asked; the caller corrects it. rank: as FabricError's."""

    def __init__(self, message: str = "", rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class Disagreement(WrongCall):
    """The ranks called different collective operations, or the same one with different arguments."""


class HeapFull(WrongCall):
    """The symmetric heap has no room for an allocation; the message says what would fit."""


class NoMulticast(WrongCall):
    """This fabric can't give a multicast address; the message says why."""


def rank_of(error: BaseException) -> int | None:
    """Return the rank that an error of this contract names in its message; None for any other error."""
    return error.rank if isinstance(error, (FabricError, WrongCall)) else None


@dataclass(frozen=True, slots=True)
class Traits:
    """What a fabric can do, as far as a kernel's or a case's fitness depends on it.

    heap_bytes is the capacity of one rank's symmetric heap. multicast_reason says why multicast is False, else is "".
    unmapped names the ranks whose memory others can't address directly ("rank 0 can't reach ranks 8, 9"); "" when every
    rank reaches every other. l2_bytes is the size of a GPU's L2 cache, multiprocessors the number of its SMs; 0: no GPU
    or, in the simulator, none whose limits hold. library is the one behind the fabric as it was loaded, with its
    version ("NVSHMEM 3.8.0"), "" where there is none. block_shared_bytes is the maximum shared memory of a block; 0:
    unknown. ranks_on_gpu is the maximum number of ranks that have the same GPU. nccl is the version of the NCCL that
    the ranks' processes have loaded, as that library names it ("2.28.9"); "" if none has one. Simulated fabrics have no
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
    block_shared_bytes: int = 0
    nccl: str = ""
    ranks_on_gpu: int = 1


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled kernel: the PTX that both fabrics can run, and the machine code made from it.

    name is the catalogue's ("all_reduce/one_shot"), entry the symbol in the PTX. digest is the SHA-256 of the PTX text
    ("sha256:<hex>") and so names what ran. cubin is for GPUs; the simulator does not look at it. assumptions names what
    the kernel relies on beyond PTX; the race checker reports what one of these alone explains as an advisory. host says
    how the host code of a CuTe DSL function launches it on each rank (kernels.own.functions.FunctionLaunch).
    """

    name: str
    entry: str
    arch: str
    ptx: str
    digest: str
    cubin: bytes = field(default=b"", repr=False)
    assumptions: tuple[str, ...] = ()
    host: Any = field(default=None, repr=False)


Dimensions = tuple[int, int, int]
"""Numbers of blocks or of threads in x, y and z."""

MAX_GRID: Dimensions = ((1 << 31) - 1, 65_535, 65_535)
MAX_BLOCK: Dimensions = (1024, 1024, 64)
MAX_THREADS_PER_BLOCK = 1024
MAX_STATIC_BYTES = 49_152
"""Shared memory that a kernel can declare itself, unless its PTX is for one architecture alone (sm_90a): so says ptxas
13.5, which takes no more for sm_75 to sm_120, and for sm_90a, sm_100a and sm_120a as much as a block can have."""
MAX_CLUSTER_BLOCKS = 8
"""Blocks of a cluster on every GPU that has clusters (CUDA C++ Programming Guide, "Thread Block Clusters")."""
FIRST_ARCH_WITH_CLUSTERS = 90


@dataclass(frozen=True, slots=True, init=False)
class Launch:
    """How a kernel is launched; a launch that no GPU can do raises ValueError when it is built.

    grid: blocks in x, y and z; block: threads of a block in x, y and z; cluster: blocks of a cluster in x, y and z,
    (1, 1, 1) for none. A number alone means that many in x. shared_bytes: dynamic shared memory of each block, beside
    what the kernel declares itself. stream: handle of the CUDA stream to launch on; None: torch's current stream.
    cooperative: all blocks are on the GPU at once, or the launch is refused. dependent: it may begin before the launch
    before it on its stream ends (programmatic dependent launch), for a kernel that waits for that end by itself.
    """

    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    cluster: Dimensions
    stream: int | None
    cooperative: bool
    dependent: bool

    def __init__(
        self,
        grid: int | Dimensions,
        block: int | Dimensions,
        shared_bytes: int = 0,
        cluster: int | Dimensions = 1,
        stream: int | None = None,
        cooperative: bool = False,
        dependent: bool = False,
    ) -> None:
        for name, value in (("grid", grid), ("block", block), ("cluster", cluster)):
            object.__setattr__(self, name, _dimensions(name, value))
        object.__setattr__(self, "shared_bytes", shared_bytes)
        object.__setattr__(self, "stream", stream)
        object.__setattr__(self, "cooperative", cooperative)
        object.__setattr__(self, "dependent", dependent)
        self._check()

    def _check(self) -> None:
        if not all(1 <= count <= most for count, most in zip(self.grid, MAX_GRID, strict=True)):
            raise ValueError(
                f"grid is {self.grid}: give 1 to {MAX_GRID[0]:,} blocks in x, 1 to {MAX_GRID[1]:,} in y, z"
            )
        within = all(1 <= count <= most for count, most in zip(self.block, MAX_BLOCK, strict=True))
        if not within or self.threads > MAX_THREADS_PER_BLOCK:
            raise ValueError(
                f"block is {self.block}: blocks have 1 to {MAX_THREADS_PER_BLOCK} threads, at most {MAX_BLOCK[2]} in z"
            )
        if min(self.cluster) < 1 or math.prod(self.cluster) > MAX_CLUSTER_BLOCKS:
            raise ValueError(f"cluster is {self.cluster}: clusters have 1 to {MAX_CLUSTER_BLOCKS} blocks")
        if any(blocks % size for blocks, size in zip(self.grid, self.cluster, strict=True)):
            raise ValueError(f"grid is {self.grid}, not a multiple of the cluster {self.cluster} in x, y and z")
        if type(self.shared_bytes) is not int or self.shared_bytes < 0:
            raise ValueError(f"shared_bytes is {self.shared_bytes!r}: give a whole number from 0")
        if self.stream is not None and type(self.stream) is not int:
            raise ValueError(f"stream is {self.stream!r}: give a number, on GPUs the handle of a CUDA stream, or None")
        for name, value in (("cooperative", self.cooperative), ("dependent", self.dependent)):
            if type(value) is not bool:
                raise ValueError(f"{name} is {value!r}: give true or false")

    @property
    def blocks(self) -> int:
        """Number of blocks in the grid."""
        return math.prod(self.grid)

    @property
    def threads(self) -> int:
        """Number of threads in a block."""
        return math.prod(self.block)


def _dimensions(name: str, value: int | Sequence[int]) -> Dimensions:
    """x, y and z; a number alone is x."""
    given = (value,) if not isinstance(value, Sequence) else tuple(value)
    if len(given) not in (1, 3) or not all(type(one) is int for one in given):
        raise ValueError(f"{name} is {value!r}: give x, or (x, y, z), as whole numbers")
    x, y, z = given if len(given) == 3 else (*given, 1, 1)
    return x, y, z


def check_cluster_arch(name: str, arch: str, blocks: int) -> None:
    """Raise ValueError if the kernel called name is to run in clusters of several blocks on a GPU that has none."""
    if blocks > 1 and int("".join(filter(str.isdigit, arch))) < FIRST_ARCH_WITH_CLUSTERS:
        raise ValueError(f"{name}: {arch} has no clusters; they need sm_{FIRST_ARCH_WITH_CLUSTERS} or later")


def check_dependent(launch: Launch, executable: Executable) -> None:
    """Raise ValueError for a dependent launch of a kernel that does not wait for the launches before it."""
    if launch.dependent and AWAITS_LAUNCHES not in executable.ptx:
        raise ValueError(
            f"{executable.name}: a dependent launch needs a kernel that waits for the launches before it, and its PTX "
            f"has no {AWAITS_LAUNCHES} (dependent): launch it without, or let it wait before it touches memory"
        )


def check_shared_bytes(name: str, launch: Launch, static_bytes: int, most_bytes: int, target: str = "") -> None:
    """Raise ValueError if a block of the kernel called name needs more shared memory than a block can have.

    static_bytes is what the kernel declares itself, most_bytes what the GPU gives a block at most, target that of PTX
    which no assembler has seen.
    """
    if unfit := refuses_shared_bytes(name, launch.shared_bytes, static_bytes, most_bytes, target):
        raise ValueError(f"{unfit[0]} (shared_bytes), {unfit[1]}")


def refuses_shared_bytes(
    name: str, dynamic_bytes: int, static_bytes: int, most_bytes: int, target: str = ""
) -> tuple[str, str] | None:
    """Return why a block of the kernel called name can't have its shared memory, and what would be right; None if it
    can. dynamic_bytes is what a launch asks for; the others: see check_shared_bytes."""
    if target and not target.endswith("a") and static_bytes > MAX_STATIC_BYTES:
        reason = f"{name} declares {static_bytes:,} bytes of shared memory; PTX for {target} has {MAX_STATIC_BYTES:,}"
        return reason, "declare it as .extern .shared and give shared_bytes"
    if static_bytes + dynamic_bytes <= most_bytes:
        return None
    if static_bytes > most_bytes:
        reason = f"{name} declares {static_bytes:,} bytes of shared memory, and a block can have {most_bytes:,}"
        return reason, "declare less"
    reason = (
        f"{name}: shared_bytes is {dynamic_bytes:,}; beside the kernel's own {static_bytes:,} bytes a block can have "
        f"{most_bytes - static_bytes:,}"
    )
    return reason, f"give at most {most_bytes - static_bytes}"


ArgumentKind = Literal["u8", "u16", "u32", "u64", "f32", "f64", "address", "bytes"]


@dataclass(frozen=True, slots=True)
class _Packing:
    """How values of a kind are packed. size_bytes None: as many as the value has. alignment_bytes: where they may lie.
    pack returns the bytes, little-endian; it raises ValueError, OverflowError, TypeError or struct.error for a value
    that is not of the kind. values: the values that are, for messages.
    """

    size_bytes: int | None
    alignment_bytes: int
    pack: Callable[[Any], bytes]
    values: str


def _packed_integer(size_bytes: int, lowest: int, value: Any) -> bytes:
    whole = operator.index(value)
    if not lowest <= whole < 1 << 8 * size_bytes:
        raise ValueError(value)
    return (whole % (1 << 8 * size_bytes)).to_bytes(size_bytes, "little")


def _unchanging(value: Any) -> bytes:
    """bytes alone: what can change after it was given would be packed once and launched as it was."""
    if not isinstance(value, bytes):
        raise TypeError(value)
    return value


PACKINGS: Mapping[str, _Packing] = MappingProxyType(
    {
        "u8": _Packing(1, 1, partial(_packed_integer, 1, -(1 << 7)), "-2^7 to 2^8 - 1"),
        "u16": _Packing(2, 2, partial(_packed_integer, 2, -(1 << 15)), "-2^15 to 2^16 - 1"),
        "u32": _Packing(4, 4, partial(_packed_integer, 4, -(1 << 31)), "-2^31 to 2^32 - 1"),
        "u64": _Packing(8, 8, partial(_packed_integer, 8, -(1 << 63)), "-2^63 to 2^64 - 1"),
        "f32": _Packing(4, 4, struct.Struct("<f").pack, "numbers in the range of float32"),
        "f64": _Packing(8, 8, struct.Struct("<d").pack, "numbers"),
        "address": _Packing(8, 8, partial(_packed_integer, 8, 0), "0 to 2^64 - 1"),
        "bytes": _Packing(None, 16, _unchanging, "bytes"),
    }
)
"""All that there is to know of a kind of argument: a new kind is one line here, and its name in ArgumentKind."""


@dataclass(frozen=True, slots=True)
class Argument:
    """The value of one kernel parameter.

    kind: "u8" to "u64" (negative values as two's complement: a register has no sign, the instructions have one),
    "f32", "f64", "address" (8 bytes, never negative), or "bytes" (a struct by value: `.param .align N .b8 name[M]`).
    """

    kind: ArgumentKind
    value: int | float | bytes

    def __post_init__(self) -> None:
        if self.kind not in PACKINGS:
            raise ValueError(f"an argument of kind {self.kind!r}: give {', '.join(PACKINGS)}")


def check_variable(executable: str, name: str, size_bytes: int, offset_bytes: int, content: bytes) -> None:
    """Raise ValueError if content does not fit into the variable called name, of size_bytes, from offset_bytes on."""
    if offset_bytes < 0 or offset_bytes + len(content) > size_bytes:
        raise ValueError(
            f"{executable}: bytes {offset_bytes} to {offset_bytes + len(content)} of variable {name}, which has "
            f"{size_bytes} (variables), give bytes within it"
        )


def packed(name: str, sizes_bytes: Sequence[int], arguments: Sequence[Argument]) -> tuple[bytes, ...]:
    """Return the arguments as the parameters of the kernel called name take them, little-endian.

    sizes_bytes are the sizes of its parameters. Raises ValueError for a wrong number of arguments, for a value outside
    its kind's range, and for one that is not as long as its parameter.
    """
    if len(arguments) != len(sizes_bytes):
        raise ValueError(f"{name} has {len(sizes_bytes)} parameters, and was given {len(arguments)} arguments")
    contents = []
    for index, (argument, size_bytes) in enumerate(zip(arguments, sizes_bytes, strict=True)):
        if not isinstance(argument, Argument):
            raise ValueError(
                f"{name}, parameter {index}: {argument!r} has no type: give an Argument of a kind and a value"
            )
        packing = PACKINGS[argument.kind]
        try:
            content = packing.pack(argument.value)
        except (ValueError, OverflowError, TypeError, struct.error):
            raise ValueError(
                f"{name}, parameter {index}: {argument.value!r} is no {argument.kind}: give {packing.values}"
            ) from None
        if len(content) != size_bytes:
            raise ValueError(
                f"{name}, parameter {index} has {size_bytes} bytes, and was given {argument.kind} of {len(content)}"
            )
        contents.append(content)
    return tuple(contents)


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

    def declare_local(self, region: Region) -> None:
        """Promise that only this rank's kernels reach an allocation, so that they may read it through the read-only
        cache (ld.global.nc). The simulator holds them to it; on GPUs it changes nothing."""
        ...

    def free(self, region: Region) -> None:
        """Collective: wait for this rank's work, for all ranks, then give the memory back.

        Raises ValueError naming the region if a view() of it is still held and the fabric can tell.
        """
        ...

    def drop(self, region: Region) -> None:
        """Give the memory up without waiting for other ranks: the way out after a failure.

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
        """The rank's own bytes, flat uint8, shared, not copied. The fabric assumes that the caller writes all of it."""
        ...

    def write(self, region: Region, offset_bytes: int, data: torch.Tensor) -> None:
        """Copy a flat uint8 host tensor into the rank's own memory, in order with its launches."""
        ...

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        """A host copy (flat uint8) of the rank's own memory after all launched so far. Poison reads as 0xFF bytes."""
        ...

    def inspect(self, region: Region, offset_bytes: int = 0, size_bytes: int | None = None) -> torch.Tensor:
        """The rank's own bytes (flat uint8) after all launches so far, to be looked at, never written: on a GPU its
        memory itself, in the simulator a copy. Poison reads as 0xFF bytes. size_bytes None: to the end.
        """
        ...

    def never_written(self, region: Region) -> torch.Tensor | None:
        """Which of the rank's own bytes (flat bool) hold poison still: neither a launch nor the host has written them,
        after all launches so far. None: the fabric can't tell, as a GPU can't."""
        ...

    def load(self, executable: Executable) -> None:
        """Make a kernel ready to be launched, which a launch does otherwise: a graph can't capture that."""
        ...

    def launch(self, executable: Executable, launch: Launch, arguments: Sequence[Argument]) -> None:
        """Queue a kernel, with one argument for each of its parameters. Returns at once.

        Raises ValueError for a launch that the kernel or this fabric can't do, and for wrong arguments (see packed).
        A GPU repeats a launch fastest when it gets the same Launch and the same tuple of arguments again.
        """
        ...

    def wait_stream(self, stream: int | None, other: int | None) -> None:
        """Let this rank's later launches on a stream begin after the end of all that it has launched on another one,
        by an event. Streams are those of Launch. Returns at once."""
        ...

    def set_variable(self, executable: Executable, name: str, offset_bytes: int, content: bytes) -> None:
        """Write bytes into a .global or .const variable of a kernel's module on this rank, from offset_bytes on, after
        all launches so far. All kernels of the same PTX see them, until they or another call write there.

        Raises ValueError for a variable that the module does not have, and for bytes beyond its end.
        """
        ...

    def pause(self, seconds: float) -> None:
        """Keep this rank's host from going on for a time, while kernels and other ranks do. In the simulator, which has
        no time of its own, until nothing else can happen."""
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

    All work but launches with a stream of their own is queued on torch's current stream of the device
    (torch.cuda.current_stream()), so that it can be captured in a CUDA graph. Addresses are this rank's own, or its
    peers' as peer_address gives them.
    """

    @property
    def device(self) -> torch.device: ...

    def queue_barrier(self) -> None:
        """Queue a barrier over all ranks on the device: work queued after it starts when all ranks' got there."""
        ...

    def queue_copy(self, destination: int, source: int, size_bytes: int) -> None:
        """Queue a copy between two addresses, by the copy engine."""
        ...

    def note_queued(self, what: str) -> None:
        """Take note that work of that name is queued past this fabric, by a library or in a graph: errors name what was
        queued last, as they name kernels that were launched."""
        ...

    def queue_library(self, call: LibraryCall, destination: int, source: int) -> None:
        """Queue one of NVSHMEM's own host-side collectives over all ranks, on symmetric addresses. ValueError for an
        unsupported one."""
        ...
