"""Heaps: the ranks' symmetric memory as bytes, what is allocated in it, and which bytes were ever written."""

from __future__ import annotations

import mmap
import weakref
from bisect import bisect_right, insort
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from memory.fabric import HeapFull
from memory.placing import SIMULATED, first_fit

GRANULE_BYTES = SIMULATED.granule_bytes
GAP_BYTES = SIMULATED.gap_bytes
MAX_HEAP_BYTES = 1 << 32
MODULE_BYTES = 1 << 26
"""Room for the variables of all modules on all ranks; a smaller one, where the heaps leave fewer windows."""
LAST_WINDOW = 127
"""Windows of heaps and of modules' variables lie below it."""
_MAP_NORESERVE = 0x4000


@dataclass(slots=True, eq=False)
class Allocation:
    """A piece of one rank's heap. start and end are indices into Space.memory.

    unwritten: some bytes may still be poison. symmetric: other ranks may reach it, so that it never counts as
    read-only. views: arrays lent to the host, as long as anything shares their memory.
    """

    number: int
    name: str
    rank: int
    start: int
    end: int
    live: bool = True
    unwritten: bool = True
    symmetric: bool = True
    views: list[weakref.ref[npt.NDArray[np.uint8]]] = field(default_factory=list)


def lazy_bytes(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory that takes physical pages only where it is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _MAP_NORESERVE)
    return np.frombuffer(mmap.mmap(-1, size_bytes, flags=flags), np.uint8)


class Heaps:
    """The memory of world_size ranks, heap_bytes each (rounded up to a power of two for addressing), in one array.

    Fresh memory holds 0xFF bytes and reading it from a kernel is a fault, until it is written. version counts
    changes of memory: a spin that saw none can be put to sleep. An index is a byte's place in memory: rank * capacity
    + offset in that rank's heap.
    """

    def __init__(self, world_size: int, heap_bytes: int) -> None:
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.granule_bytes = GRANULE_BYTES
        # A gap behind a full heap too: what runs past its end must not land in the next rank's.
        self.capacity = 1 << (heap_bytes + GAP_BYTES - 1).bit_length()
        # Behind the heaps lie the variables of modules: .global ones, then .const ones. See space.py for the windows.
        room = min(MODULE_BYTES, (LAST_WINDOW - world_size) * self.capacity)
        self.heaps_end = world_size * self.capacity
        self.constants_start = self.heaps_end + room - room // 8 // GRANULE_BYTES * GRANULE_BYTES
        total = self.heaps_end + room
        self.module_tops = {"global": self.heaps_end, "const": self.constants_start}
        self.end = total
        self.memory = lazy_bytes(total)
        self.written = lazy_bytes(total)
        self.granules = lazy_bytes(total // GRANULE_BYTES * 4).view(np.int32)
        self.allocations: list[Allocation | None] = [None]
        self.ends = np.zeros(64, np.int64)
        self.variable_ranks = np.full(64, -1, np.int64)  # whose module a variable is of, by number; -1 for tensors
        self.spans: list[list[tuple[int, int]]] = [[] for _ in range(world_size)]
        self.version = 0
        self.local: set[int] = set()  # numbers of live tensors that other ranks may not reach

    def release(self) -> None:
        """Give all memory back. Nothing can be read or written afterwards; arrays lent to the host keep theirs."""
        self.memory = self.written = np.empty(0, np.uint8)
        self.granules = np.empty(0, np.int32)

    def allocate(
        self, rank: int, size_bytes: int, alignment_bytes: int, name: str, symmetric: bool = True
    ) -> Allocation:
        """First fit in the rank's heap, with a gap behind each allocation. Raises HeapFull saying what would fit."""
        position, largest = first_fit(self.spans[rank], self.heap_bytes, size_bytes, alignment_bytes, SIMULATED)
        if position is None:
            held = sum(end - start for start, end in self.spans[rank])
            raise HeapFull(
                f"rank {rank}: {name} needs {size_bytes:,} bytes of a symmetric heap of {self.heap_bytes:,} bytes "
                f"that holds {held:,} already; {largest:,} bytes would fit "
                f"(make fabric.heap_bytes larger, or the sizes smaller)",
                rank=rank,
            )
        insort(self.spans[rank], (position, position + size_bytes))
        base = rank * self.capacity + position
        return self._added(Allocation(len(self.allocations), name, rank, base, base + size_bytes, symmetric=symmetric))

    def allocate_beyond(self, size_bytes: int, name: str) -> list[Allocation]:
        """Make room on every rank, at one place beyond all that allocate gives, for as long as the world is there.
        Return one a rank; none if the heaps fill their windows."""
        offset = (self.capacity - GAP_BYTES - size_bytes) // GRANULE_BYTES * GRANULE_BYTES
        if offset < self.heap_bytes + GAP_BYTES:
            return []
        starts = [rank * self.capacity + offset for rank in range(self.world_size)]
        return [
            self._added(Allocation(len(self.allocations), name, rank, start, start + size_bytes))
            for rank, start in enumerate(starts)
        ]

    def _added(self, made: Allocation) -> Allocation:
        self.allocations.append(made)
        if made.number >= len(self.ends):
            self.ends = np.concatenate([self.ends, np.zeros_like(self.ends)])
            self.variable_ranks = np.concatenate([self.variable_ranks, np.full_like(self.variable_ranks, -1)])
        self.ends[made.number] = made.end
        self._granules(made)[:] = made.number
        self._make_unwritten(made.start, made.end)
        self.version += 1
        return made

    def _make_unwritten(self, start: int, end: int) -> None:
        """Make bytes unwritten. Pages that were never written say so already, and are left untouched."""
        self.memory[start:end] = 0xFF
        written = self.written[start:end]
        if written.any():
            written[:] = 0

    def allocate_variable(self, rank: int, size_bytes: int, alignment_bytes: int, name: str, space: str) -> Allocation:
        """Make room for a module's variable in space "global" or "const". It stays as long as the world."""
        unit = max(alignment_bytes, GRANULE_BYTES)
        start = -(-self.module_tops[space] // unit) * unit
        end = self.constants_start if space == "global" else self.end
        room = end - (self.heaps_end if space == "global" else self.constants_start)
        if start + size_bytes > end:
            raise HeapFull(
                f"rank {rank}: the variable {name} of {size_bytes:,} bytes does not fit: the simulator keeps "
                f"{room:,} bytes for .{space} variables",
                rank=rank,
            )
        self.module_tops[space] = start + size_bytes + GAP_BYTES
        made = self._added(Allocation(len(self.allocations), name, rank, start, start + size_bytes, symmetric=False))
        self.variable_ranks[made.number] = rank
        return made

    def make_local(self, allocation: Allocation) -> None:
        """Keep other ranks out of it."""
        allocation.symmetric = False
        self.local.add(allocation.number)

    def free(self, allocation: Allocation) -> None:
        """Give it back; later accesses are named as accesses to freed memory."""
        allocation.live = False
        self.local.discard(allocation.number)
        offset = allocation.rank * self.capacity
        self.spans[allocation.rank].remove((allocation.start - offset, allocation.end - offset))
        self._granules(allocation)[:] = -allocation.number
        self.version += 1

    def _granules(self, allocation: Allocation) -> npt.NDArray[np.int32]:
        return self.granules[allocation.start // GRANULE_BYTES : -(-allocation.end // GRANULE_BYTES)]

    def live(self, rank: int) -> list[Allocation]:
        return [one for one in self.allocations if one is not None and one.live and one.rank == rank]

    def describe(self, index: int, address: int) -> str:
        """An address for people: hexadecimal, and the tensor it lies in, or just misses, or lay in before it was
        freed.
        """
        rank, offset = divmod(index, self.capacity)
        if index >= self.heaps_end:
            return self._describe_variable(index, address)
        text = f"{address:#x} (rank {rank}'s heap + {offset:#x}"
        number = int(self.granules[index // GRANULE_BYTES]) if 0 <= index < self.end else 0
        found = self.allocations[abs(number)]
        if found is None and 0 <= rank < self.world_size:
            before = bisect_right(self.spans[rank], (offset, self.capacity)) - 1
            if before >= 0:
                start = self.spans[rank][before][0] + rank * self.capacity
                found = next(one for one in self.live(rank) if one.start == start)
        if found is None:
            return text + ")"
        past = index - found.end
        state = "" if found.live else "freed "
        where = f"{past} bytes past the end of" if past >= 0 else f"byte {index - found.start} of"
        return f"{text}, {where} {state}tensor {found.name!r} of {found.end - found.start} bytes)"

    def _describe_variable(self, index: int, address: int) -> str:
        """As describe, of an address behind the heaps."""
        number = int(self.granules[index // GRANULE_BYTES]) if index < self.end else 0
        kind = "const" if index >= self.constants_start else "global"
        first = self.constants_start if kind == "const" else self.heaps_end
        before = [one for one in self.allocations if one is not None and first <= one.start <= index]
        found = self.allocations[number] if number > 0 else max(before, key=lambda one: one.start, default=None)
        if found is None:
            return f"{address:#x} (among the .{kind} variables of modules)"
        past = index - found.end
        where = f"{past} bytes past the end of" if past >= 0 else f"byte {index - found.start} of"
        return (
            f"{address:#x} ({where} rank {found.rank}'s .{kind} variable {found.name!r} of "
            f"{found.end - found.start} bytes)"
        )

    def host_write(self, allocation: Allocation, offset_bytes: int, data: npt.NDArray[np.uint8]) -> None:
        start = allocation.start + offset_bytes
        self.memory[start : start + len(data)] = data
        self.written[start : start + len(data)] = 1
        if offset_bytes == 0 and len(data) == allocation.end - allocation.start:
            allocation.unwritten = False
        self.version += 1

    def host_read(self, allocation: Allocation, offset_bytes: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        start = allocation.start + offset_bytes
        return self.memory[start : start + size_bytes].copy()
