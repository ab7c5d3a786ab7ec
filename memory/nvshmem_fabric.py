"""NvshmemFabric: the Fabric contract over NVSHMEM's few collective calls, a GPU's driver, and a meeting of the ranks.

NVSHMEM answers ranks that disagree, or are gone, with silence or a hang, in calls that no signal interrupts. So the
ranks meet first (memory/meeting.py), and call the library only once all have said that they will: what it is called
with is then the same everywhere, and there is room on every GPU. What remains is a process that dies between the
meeting and the call; the world that started the others ends them.

memory/nvshmem.py opens it on the installed library; tests open it on a stand-in.
"""

from __future__ import annotations

import contextlib
import json
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memory.driver import NVSHMEM_STATE, CudaDriver
from memory.fabric import (
    Argument,
    Executable,
    FabricError,
    HeapFull,
    Launch,
    LibraryCall,
    NoMulticast,
    Region,
    Traits,
    WrongCall,
)
from memory.library import GRANULE_BYTES, STEP_BYTES, Library, described, probe
from memory.meeting import Meeting
from memory.ranks import named

if TYPE_CHECKING:
    import torch

MARGIN_BYTES = 256 << 20
"""GPU memory left to contexts, torch and other libraries: when it is gone, they fail in less orderly ways."""

CLOSING_S = 5.0
"""How long close() waits for other ranks and for kernels, in seconds; then the world ends them by force."""


@dataclass(slots=True, eq=False)
class _Held:
    """An allocation: the library's tensor, the views of it, what of it was lent. The region begins at offset_bytes."""

    region: Region
    tensor: torch.Tensor
    offset_bytes: int
    size_bytes: int
    peers: dict[int, torch.Tensor] = field(default_factory=dict)
    multicast: torch.Tensor | None = None
    lent: list[weakref.ref[Any]] = field(default_factory=list)

    @property
    def content(self) -> torch.Tensor:
        return self.tensor[self.offset_bytes : self.offset_bytes + self.region.size_bytes]


class NvshmemFabric:
    """One rank's DeviceFabric over NVSHMEM (memory.fabric says what each method promises). connect() makes it.

    traits.heap_bytes caps what this rank holds at a time; the library's own heap grows as it is needed. Beside the
    contract it has what the process of a rank needs: set_deadline, begin, leave, live_regions and close.
    """

    def __init__(
        self, library: Library, driver: CudaDriver, meeting: Meeting, traits: Traits, unmapped: frozenset[int]
    ) -> None:
        self.library = library
        """What it runs on: for tests that hold the library to what is counted on here."""
        self._driver = driver
        self._meeting = meeting
        self.traits = traits
        self._unmapped = unmapped
        self._held: dict[int, _Held] = {}
        self._dropped: list[_Held] = []
        self._started: dict[str, int | None] = {}  # CUlibraries with NVSHMEM's device code, by digest; None: none in it
        self._mapped_bytes = 0
        self._closed = False

    @property
    def rank(self) -> int:
        return self._meeting.rank

    @property
    def world_size(self) -> int:
        return self._meeting.world_size

    @property
    def device(self) -> torch.device:
        return self._driver.device

    @property
    def held_bytes(self) -> int:
        """What this rank's allocations take of the heap, those that were dropped included."""
        return sum(held.size_bytes for held in [*self._held.values(), *self._dropped])

    @property
    def free_bytes(self) -> int:
        """Free memory of this rank's GPU, in bytes."""
        return self._driver.free_bytes()

    # For the rank's process

    def set_deadline(self, monotonic_s: float | None) -> None:
        """When waits for ranks and for kernels end, on time.monotonic()'s clock; None: never."""
        self._meeting.set_deadline(monotonic_s)

    def begin(self, run: int) -> None:
        """A new program begins on all ranks: see Meeting.begin."""
        self._meeting.begin(run)

    def leave(self, text: str) -> None:
        """This rank is done with the program: "" in good order, else the error it ended with."""
        self._meeting.leave(text)

    def live_regions(self) -> tuple[Region, ...]:
        """What is allocated and neither freed nor dropped, oldest first."""
        return tuple(held.region for held in self._held.values())

    def close(self) -> None:
        """Collective: end the library's part in this process, in good order.

        Memory that was never freed is not freed here: all ranks raise FabricError naming it, after they have closed.
        """
        if self._closed:
            return
        self.set_deadline(time.monotonic() + CLOSING_S)
        # Not a part of the last program, which the others may have left already.
        self._meeting.begin(self._meeting.run + 1)
        try:
            self.synchronize()
        except BaseException:
            with contextlib.suppress(FabricError):  # the first error counts
                self._finish_all()
            raise
        self._finish_all()
        mine = [held.region.name for held in [*self._held.values(), *self._dropped]]
        leaks = [json.loads(note) for note in self._meeting.exchange("close", json.dumps(mine))]
        self._closed = True
        with self._called("finalize"):
            self.library.finalize()
        lines = [f"rank {rank}: {', '.join(map(repr, names))}" for rank, names in enumerate(leaks) if names]
        if lines:
            raise FabricError(f"leak: symmetric memory was never freed before the end: {'; '.join(lines)}")

    # Agreement

    def exchange(self, note: str) -> tuple[str, ...]:
        return self._together("exchange", note)

    def barrier(self) -> None:
        self._together("barrier")

    def _together(self, kind: str, note: str = "") -> tuple[str, ...]:
        if self._closed:
            raise FabricError(f"rank {self.rank} has closed its fabric", rank=self.rank)
        return self._meeting.exchange(kind, note)

    @contextlib.contextmanager
    def _called(self, what: str) -> Iterator[None]:
        """Turn any exception of a library call into a FabricError with the rank."""
        try:
            yield
        except (FabricError, ValueError):
            raise
        except Exception as error:
            message = f"rank {self.rank}: NVSHMEM's {what} failed: {described(error)}"
            raise FabricError(message, rank=self.rank) from error

    # Memory

    def allocate(self, size_bytes: int, alignment_bytes: int, name: str) -> Region:
        if size_bytes < 1 or alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
            raise ValueError(
                f"{name}: {size_bytes} bytes aligned to {alignment_bytes}; sizes are positive, alignments powers of two"
            )
        # The library aligns to its granule. For more, room is taken to move within; it stays the same on all ranks.
        slack_bytes = alignment_bytes if alignment_bytes > GRANULE_BYTES else 0
        self._agree_on_room(size_bytes, alignment_bytes, slack_bytes, name)
        with self._called(f"allocation of {name}"):
            tensor = self.library.tensor(size_bytes + slack_bytes)
        held = self._placed(tensor, size_bytes, alignment_bytes, name)
        self._held[held.region.address] = held
        self._mapped_bytes = max(self._mapped_bytes, -(-self.held_bytes // STEP_BYTES) * STEP_BYTES)
        try:
            self._map(held)
            tensor.fill_(0xFF)
            self.synchronize()
            offsets = self._together(f"mapped {name}", str(held.offset_bytes))
            if len(set(offsets)) > 1:
                raise FabricError(f"{name} lies at different places of the ranks' heaps: {', '.join(offsets)} bytes in")
        except BaseException:
            # The caller never gets to hold it.
            self.drop(held.region)
            raise
        return held.region

    def _agree_on_room(self, size_bytes: int, alignment_bytes: int, slack_bytes: int, name: str) -> None:
        """All ranks learn whether it fits on every one: a rank that failed alone would leave the others hanging."""
        in_heap = (self.traits.heap_bytes - self.held_bytes) // GRANULE_BYTES * GRANULE_BYTES
        free_bytes = self.free_bytes
        fresh = (free_bytes - MARGIN_BYTES) // self.traits.ranks_on_gpu // STEP_BYTES * STEP_BYTES
        on_gpu = max(self._mapped_bytes - self.held_bytes, fresh)
        fits = max(min(in_heap, on_gpu) - slack_bytes, 0)
        if in_heap <= on_gpu:
            why = f"the symmetric heap of {self.traits.heap_bytes:,} bytes holds {self.held_bytes:,} already"
            remedy = "make fabric.heap_bytes larger, or the sizes smaller"
        else:
            why = f"the GPU has {free_bytes:,} bytes free, and some stay in reserve"
            remedy = "end what else holds memory of this GPU, or make the sizes smaller"
        mine = json.dumps([fits, why, remedy])
        notes = self._together(f"allocate {name}: {size_bytes} bytes aligned to {alignment_bytes}", mine)
        room = [json.loads(note) for note in notes]
        fewest, rank = min((one[0], rank) for rank, one in enumerate(room))
        if fewest < size_bytes:
            _, why, remedy = room[rank]
            raise HeapFull(
                f"rank {rank}: {name} needs {size_bytes:,} bytes, and {why}; {fewest:,} bytes would fit ({remedy})",
                rank=rank,
            )

    def _placed(self, tensor: torch.Tensor, size_bytes: int, alignment_bytes: int, name: str) -> _Held:
        start = tensor.data_ptr()
        address = -(-start // alignment_bytes) * alignment_bytes
        if address + size_bytes > start + tensor.numel():
            self._dropped.append(_Held(Region(name, start, size_bytes), tensor, 0, tensor.numel()))
            raise FabricError(
                f"rank {self.rank}: NVSHMEM gave {name} memory at {start:#x}, not aligned to {alignment_bytes} bytes",
                rank=self.rank,
            )
        granules = -(-tensor.numel() // GRANULE_BYTES) * GRANULE_BYTES
        return _Held(Region(name, address, size_bytes), tensor, address - start, granules)

    def _map(self, held: _Held) -> None:
        """Look up where the peers' replicas and all at once are seen. The own is the tensor itself: asked for it, the
        library would count a second owner, and never free it.
        """
        with self._called(f"mapping of {held.region.name}"):
            for peer in range(self.world_size):
                if peer != self.rank and peer not in self._unmapped:
                    held.peers[peer] = self.library.get_peer_tensor(held.tensor, peer)
            if self.traits.multicast:
                held.multicast = self.library.get_multicast_tensor(held.tensor)

    def declare_local(self, region: Region) -> None:
        self._found(region)

    def free(self, region: Region) -> None:
        held = self._found(region)
        self.synchronize()
        viewed = any(lent() is not None for lent in held.lent)
        notes = self._together(f"free {region.name}: {region.size_bytes} bytes", "viewed" if viewed else "")
        viewing = [rank for rank, note in enumerate(notes) if note]
        if viewing:
            # It stays where it is, on all ranks: freed, somebody else's data would be seen through the view.
            raise ValueError(
                f'a view of "{region.name}" outlives it on {named(viewing)}: '
                "del what was made from its memory (slices of .local) before its release"
            )
        del self._held[region.address]
        with self._called(f"release of {region.name}"):
            self._release(held)

    def _release(self, held: _Held) -> None:
        """Children before their parent: theirs frees nothing, but the library's books are then closed on them."""
        if held.multicast is not None:
            self.library.free_tensor(held.multicast)
            held.multicast = None
        while held.peers:
            _, child = held.peers.popitem()
            self.library.free_tensor(child)
            del child
        self.library.free_tensor(held.tensor)

    def drop(self, region: Region) -> None:
        held = self._held.pop(region.address, None)
        if held is not None and held.region == region:
            # Kept, so that no destructor gets to work: the memory ends with the processes of this world.
            self._dropped.append(held)
        elif held is not None:
            self._held[region.address] = held

    def _found(self, region: Region) -> _Held:
        held = self._held.get(region.address)
        if held is None or held.region != region:
            raise WrongCall(
                f"rank {self.rank}: {region.name} is not allocated here (freed already, or another rank's)",
                rank=self.rank,
            )
        return held

    def peer_address(self, region: Region, peer: int) -> int:
        held = self._found(region)
        if peer == self.rank:
            return region.address
        if not 0 <= peer < self.world_size:
            raise ValueError(
                f"{region.name}: rank {peer} does not exist; the world has ranks 0 to {self.world_size - 1}"
            )
        if peer in self._unmapped:
            message = f"{region.name}: rank {self.rank} can't reach the memory of rank {peer} directly"
            raise WrongCall(message, rank=self.rank)
        return held.peers[peer].data_ptr() + held.offset_bytes

    def multicast_address(self, region: Region) -> int:
        held = self._found(region)
        if held.multicast is None:
            raise NoMulticast(self.traits.multicast_reason)
        return held.multicast.data_ptr() + held.offset_bytes

    # Contents

    def view(self, region: Region) -> torch.Tensor:
        held = self._found(region)
        held.lent = [lent for lent in held.lent if lent() is not None]
        tensor, reference = self._driver.lend(region.address, region.size_bytes)
        held.lent.append(reference)
        return tensor

    def write(self, region: Region, offset_bytes: int, data: torch.Tensor) -> None:
        """Copy a flat uint8 tensor into the own memory: one of this GPU in the stream's order, one of the host at once
        (after all work launched so far).
        """
        if str(data.dtype) != "torch.uint8" or data.dim() != 1:
            raise ValueError(f"{region.name}: write takes a flat uint8 tensor, not {tuple(data.shape)} of {data.dtype}")
        target = self._inside(region, offset_bytes, data.numel())
        if data.device.type == "cpu":
            self.synchronize()
        target.copy_(data)

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        source = self._inside(region, offset_bytes, size_bytes)
        self.synchronize()
        return source.to("cpu", copy=True)

    def inspect(self, region: Region, offset_bytes: int = 0, size_bytes: int | None = None) -> torch.Tensor:
        self._found(region)
        self.synchronize()
        return self.view(region)[offset_bytes:][:size_bytes]

    def never_written(self, region: Region) -> torch.Tensor | None:
        return None

    def _inside(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        held = self._found(region)
        if offset_bytes < 0 or offset_bytes + size_bytes > region.size_bytes:
            raise ValueError(
                f"{region.name}: bytes {offset_bytes} to {offset_bytes + size_bytes} of {region.size_bytes}"
            )
        return held.content[offset_bytes : offset_bytes + size_bytes]

    # Work

    def load(self, executable: Executable) -> None:
        if executable.digest not in self._started:
            self._start(executable)
        self._driver.load(executable)

    def launch(self, executable: Executable, launch: Launch, arguments: Sequence[Argument]) -> None:
        if executable.digest not in self._started:
            self._start(executable)
        self._driver.launch(executable, launch, arguments)

    def _start(self, executable: Executable) -> None:
        """Have the library fill the state of NVSHMEM's device code, once for all kernels of the same PTX."""
        handle = None
        if NVSHMEM_STATE in executable.ptx:
            handle = self._driver.library_handle(executable)
            with self._called(f"library_init of {executable.name}"):
                self.library.library_init(handle)
        self._started[executable.digest] = handle

    def _finish_all(self) -> None:
        """The other half, for all that were started, the last one first; FabricError with what failed first."""
        failed: list[FabricError] = []
        while self._started:
            _, handle = self._started.popitem()
            if handle is not None:
                try:
                    with self._called("library_finalize"):
                        self.library.library_finalize(handle)
                except FabricError as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    def wait_stream(self, stream: int | None, other: int | None) -> None:
        self._driver.wait_stream(stream, other)

    def set_variable(self, executable: Executable, name: str, offset_bytes: int, content: bytes) -> None:
        self.synchronize()
        self._driver.set_variable(executable, name, offset_bytes, content)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def synchronize(self) -> None:
        self._driver.wait(self._meeting.deadline)

    def queue_barrier(self) -> None:
        with self._called("barrier on a stream"):
            self.library.barrier_on_stream(self._driver.stream())

    def queue_copy(self, destination: int, source: int, size_bytes: int) -> None:
        self._driver.copy(destination, source, size_bytes)

    def note_queued(self, what: str) -> None:
        self._driver.note(what)

    def queue_library(self, call: LibraryCall, destination: int, source: int) -> None:
        with self._called(f"{call.reduction} {call.collective} over all ranks".strip()):
            self.library.collective_on_stream(call, destination, source, self._driver.stream())


def connect(
    library: Library, driver: CudaDriver, meeting: Meeting, heap_bytes: int, share_gpus: bool = False
) -> NvshmemFabric:
    """Collective: start the library on all ranks and see what it can do here. PeerLost and DeadlineExceeded name ranks.

    The unique id that the library starts with travels in the first exchange, so a rank that never comes is named. So
    does each rank's GPU: without share_gpus, FabricError on all ranks if two have the same, before anything starts.
    """
    identity = library.unique_id().hex() if meeting.rank == 0 else ""
    opened = [json.loads(note) for note in meeting.exchange("open", json.dumps([identity, driver.identity]))]
    ranks_on_gpu = _most_on_a_gpu([gpu for _, gpu in opened], share_gpus)
    try:
        library.init(bytes.fromhex(opened[0][0]), meeting.rank, meeting.world_size)
    except Exception as error:
        message = f"rank {meeting.rank}: NVSHMEM did not start: {described(error)}"
        raise FabricError(message, rank=meeting.rank) from error
    traits, unmapped = probe(library, driver, meeting, heap_bytes, ranks_on_gpu)
    return NvshmemFabric(library, driver, meeting, traits, unmapped)


def _most_on_a_gpu(gpus: Sequence[str], share_gpus: bool) -> int:
    """The maximum number of ranks that have the same GPU; gpus: each rank's. FabricError for more than one, unless they
    may share."""
    by_gpu: dict[str, list[int]] = {}
    for rank, gpu in enumerate(gpus):
        by_gpu.setdefault(gpu, []).append(rank)
    shared, ranks = max(by_gpu.items(), key=lambda item: len(item[1]))
    if len(ranks) > 1 and not share_gpus:
        raise FabricError(
            f"{named(ranks)} have the same GPU, {shared}: give each rank one of its own, or fabric.share_gpus=true, "
            "which times nothing",
            rank=ranks[1],
        )
    return len(ranks)
