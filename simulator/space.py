"""The memory of a simulated world: heaps, windows of ranks and of multicast, and all that can be wrong with an access.

An address that rank v holds is  TAG + v * VIEW + w * capacity + offset:  window w < world_size is the heap of rank w
as v sees it (its own included), window 127 is multicast. So every rank sees every byte at an address of its own, as
on GPUs, and an address that leaked from one rank to another is caught. All accesses pass Space.resolve, where
observers listen.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from memory.fabric import HeapFull
from simulator.ir import Instruction

Indices = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

TAG = 1 << 46
WINDOWS = 128
MULTICAST = 127
GRANULE_BYTES = 256
GAP_BYTES = 4096
MAX_HEAP_BYTES = 1 << 32
_MAP_NORESERVE = 0x4000


class LaneFault(Exception):
    """What a lane of the running frame did wrong; the machine adds rank, block, thread and place."""

    def __init__(self, lane: int, message: str) -> None:
        super().__init__(message)
        self.lane = lane
        self.message = message


@dataclass(slots=True, eq=False)
class Allocation:
    """A piece of one rank's heap. start and end are indices into Space.memory.

    unwritten: some bytes may still be poison.
    """

    number: int
    name: str
    rank: int
    start: int
    end: int
    live: bool = True
    unwritten: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """Who looks: base is the first address of the lane's own view, one value or one a lane; rank likewise."""

    base: int | Addresses
    rank: int | Indices


@dataclass(slots=True)
class Span:
    """A checked access: byte indices into Space.memory, one a lane.

    shape: "affine" (lane i is at low + i * width_bytes), "uniform" (all lanes at low), or "scattered".
    """

    index: Indices
    low: int
    shape: str
    width_bytes: int
    allocation: Allocation | None


@dataclass(frozen=True, slots=True)
class Access:
    """What an observer sees of one instruction's access by all lanes of a frame. target -1: the multicast window."""

    instruction: Instruction
    action: str
    width_bytes: int
    lanes: int
    viewer: int | Indices
    target: int | Indices
    addresses: Addresses


class Observer(Protocol):
    """Listens to every access; called after the checks, before the access takes place."""

    def access(self, access: Access) -> None: ...


def _lazy(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory that takes physical pages only where it is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", _MAP_NORESERVE)
    return np.frombuffer(mmap.mmap(-1, size_bytes, flags=flags), np.uint8)


class Space:
    """All memory of a world of world_size ranks, heap_bytes each (rounded up to a power of two for addressing).

    Fresh memory holds 0xFF bytes and reading it from a kernel is a fault, until it is written. version counts
    changes of memory: a spin that saw none can be put to sleep.
    """

    def __init__(self, world_size: int, heap_bytes: int, multicast: bool) -> None:
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.multicast = multicast
        self.capacity = max(GRANULE_BYTES, 1 << (heap_bytes - 1).bit_length())
        self.view_bytes = self.capacity * WINDOWS
        total = world_size * self.capacity
        self.memory = _lazy(total)
        self.written = _lazy(total)
        self.granules = _lazy(total // GRANULE_BYTES * 4).view(np.int32)
        self.allocations: list[Allocation | None] = [None]
        self.ends = np.zeros(64, np.int64)
        self.spans: list[list[tuple[int, int]]] = [[] for _ in range(world_size)]
        self.observers: list[Observer] = []
        self.version = 0
        self._arange: dict[int, Indices] = {}

    # Allocation

    def allocate(self, rank: int, size_bytes: int, alignment_bytes: int, name: str) -> Allocation:
        """First fit in the rank's heap, with a gap behind each allocation. Raises HeapFull saying what would fit."""
        step = max(alignment_bytes, GRANULE_BYTES)
        position, largest = 0, 0
        for start, end in [*self.spans[rank], (self.heap_bytes, self.heap_bytes)]:
            position = -(-position // step) * step
            largest = max(largest, start - position)
            if position + size_bytes <= start:
                break
            position = end + GAP_BYTES
        else:
            held = sum(end - start for start, end in self.spans[rank])
            raise HeapFull(
                f"rank {rank}: {name} needs {size_bytes:,} bytes of a symmetric heap of {self.heap_bytes:,} bytes "
                f"that holds {held:,} already; {max(largest, 0):,} bytes would fit "
                f"(make fabric.heap_bytes larger, or the sizes smaller)"
            )
        insort(self.spans[rank], (position, position + size_bytes))
        base = rank * self.capacity + position
        made = Allocation(len(self.allocations), name, rank, base, base + size_bytes)
        self.allocations.append(made)
        if made.number >= len(self.ends):
            self.ends = np.concatenate([self.ends, np.zeros_like(self.ends)])
        self.ends[made.number] = made.end
        self._granules(made)[:] = made.number
        self.memory[made.start : made.end] = 0xFF
        self.written[made.start : made.end] = 0
        self.version += 1
        return made

    def free(self, allocation: Allocation) -> None:
        """Give it back; later accesses are named as accesses to freed memory."""
        allocation.live = False
        offset = allocation.rank * self.capacity
        self.spans[allocation.rank].remove((allocation.start - offset, allocation.end - offset))
        self._granules(allocation)[:] = -allocation.number
        self.version += 1

    def _granules(self, allocation: Allocation) -> npt.NDArray[np.int32]:
        return self.granules[allocation.start // GRANULE_BYTES : -(-allocation.end // GRANULE_BYTES)]

    def live(self, rank: int) -> list[Allocation]:
        return [one for one in self.allocations if one is not None and one.live and one.rank == rank]

    # Addresses

    def base(self, viewer: int) -> int:
        """The first address of a rank's view."""
        return TAG + viewer * self.view_bytes

    def address(self, viewer: int, allocation: Allocation) -> int:
        """Where rank viewer sees an allocation (of whichever rank)."""
        return self.base(viewer) + allocation.start

    def multicast_address(self, viewer: int, allocation: Allocation) -> int:
        return self.base(viewer) + MULTICAST * self.capacity + allocation.start - allocation.rank * self.capacity

    def arange(self, width_bytes: int, lanes: int) -> Indices:
        """0, width, 2 * width, ..: kept, because every affine access is compared with it."""
        known = self._arange.get(width_bytes)
        if known is None or len(known) < lanes:
            known = np.arange(0, max(lanes, 16384) * width_bytes, width_bytes, dtype=np.int64)
            self._arange[width_bytes] = known
        return known[:lanes]

    # The narrow point

    def resolve(
        self, view: View, addresses: Addresses, width_bytes: int, instruction: Instruction, action: str
    ) -> Span:
        """Check one access of width_bytes by every lane and translate its addresses.

        action: "load", "store" or "atomic".
        """
        index = np.subtract(addresses, view.base, dtype=np.uint64, casting="unsafe").view(np.int64)
        span = self._shaped(index, width_bytes)
        low, high = (span.low, self._high(span)) if span.shape != "scattered" else (int(index.min()), int(index.max()))
        if low < 0 or high >= self.world_size * self.capacity:
            self._wrong_window(view, addresses, index, width_bytes, action)
        self._aligned(span, addresses)
        span.allocation = self._one_allocation(low, high + width_bytes)
        if span.allocation is None:
            self._bounds(index, addresses, width_bytes, action)
        if self.observers:
            target: int | Indices = span.allocation.rank if span.allocation else index // self.capacity
            self._observe(Access(instruction, action, width_bytes, len(index), view.rank, target, addresses))
        if action != "store":
            self._poison(span, addresses)
        else:
            self.version += 1
        return span

    def _shaped(self, index: Indices, width_bytes: int) -> Span:
        """Recognise the two shapes that need no gathering; their ends then speak for all lanes."""
        first, last, lanes = int(index[0]), int(index[-1]), len(index)
        shape = "scattered"
        if last - first == (lanes - 1) * width_bytes:
            if np.array_equal(index, self.arange(width_bytes, lanes) + first):
                shape = "affine"
        elif first == last and bool((index == first).all()):
            shape = "uniform"
        return Span(index, first, shape, width_bytes, None)

    def _high(self, span: Span) -> int:
        return span.low + (len(span.index) - 1) * span.width_bytes if span.shape == "affine" else span.low

    def resolve_multicast(
        self, view: View, addresses: Addresses, width_bytes: int, instruction: Instruction, action: str
    ) -> list[Span]:
        """The same for a multimem instruction: one span a replica, in rank order.

        action: "reduce", "broadcast", "red".
        """
        index = np.subtract(addresses, view.base, dtype=np.uint64, casting="unsafe").view(np.int64)
        index = index - MULTICAST * self.capacity
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= self.capacity:
            lane = int(np.argmax((index < 0) | (index >= self.capacity)))
            raise LaneFault(
                lane, f"{instruction.opcode} at {int(addresses[lane]):#x}: not a multicast address of this rank"
            )
        one = self._shaped(index, width_bytes)
        self._aligned(one, addresses)
        spans = []
        for rank in range(self.world_size):
            shift = rank * self.capacity
            here = Span(index + shift, one.low + shift, one.shape, width_bytes, None)
            here.allocation = self._one_allocation(low + shift, high + shift + width_bytes)
            if here.allocation is None:
                self._bounds(here.index, addresses, width_bytes, f"{action} (replica of rank {rank})")
            spans.append(here)
        if self.observers:
            self._observe(Access(instruction, action, width_bytes, len(index), view.rank, -1, addresses))
        for span in spans if action != "broadcast" else ():
            self._poison(span, addresses)
        if action != "reduce":
            self.version += 1
        return spans

    def _observe(self, access: Access) -> None:
        for observer in self.observers:
            observer.access(access)

    def _aligned(self, span: Span, addresses: Addresses) -> None:
        low_bits = span.width_bytes - 1
        wrong = span.low if span.shape != "scattered" else int(np.bitwise_or.reduce(span.index))
        if wrong & low_bits:
            lane = int(np.argmax(span.index & low_bits != 0))
            place = self.describe(int(span.index[lane]), int(addresses[lane]))
            raise LaneFault(lane, f"{place} is not aligned to {span.width_bytes} bytes")

    def _one_allocation(self, low: int, end: int) -> Allocation | None:
        number = int(self.granules[low // GRANULE_BYTES])
        found = self.allocations[number] if number > 0 else None
        return found if found is not None and found.start <= low and end <= found.end else None

    def _bounds(self, index: Indices, addresses: Addresses, width_bytes: int, action: str) -> None:
        numbers = self.granules.take(index // GRANULE_BYTES)
        wrong = numbers <= 0
        wrong |= index + width_bytes > self.ends.take(np.maximum(numbers, 0))
        if wrong.any():
            lane = int(np.argmax(wrong))
            place = self.describe(int(index[lane]), int(addresses[lane]))
            raise LaneFault(lane, f"{action} of {width_bytes} bytes at {place}: outside every live tensor")

    def _wrong_window(self, view: View, addresses: Addresses, index: Indices, width_bytes: int, action: str) -> None:
        wrong = (index < 0) | (index >= self.world_size * self.capacity)
        lane = int(np.argmax(wrong))
        address = int(addresses[lane])
        owner, inside = divmod(address - TAG, self.view_bytes)
        window = inside // self.capacity
        rank = int(view.rank if isinstance(view.rank, int) else view.rank[lane])
        text = f"{action} of {width_bytes} bytes at {address:#x}: "
        if address < TAG or owner >= self.world_size:
            text += "no address of this world" + (" (a null pointer?)" if address < 4096 else "")
        elif owner != rank:
            text += f"an address of rank {owner}'s view, used on rank {rank}: addresses mean something on one rank only"
        elif window == MULTICAST:
            text += "a plain access to a multicast address; only multimem instructions may use it"
        else:
            text += f"window {window} of rank {rank}'s view holds nothing (world size {self.world_size})"
        raise LaneFault(lane, text)

    def _poison(self, span: Span, addresses: Addresses) -> None:
        if span.allocation is not None and not span.allocation.unwritten:
            return
        if span.shape != "scattered":
            end = self._high(span) + span.width_bytes
            good = self.written[span.low : end]
            if good.all():
                return
            fine = good.reshape(-1, span.width_bytes).all(axis=1)
        else:
            fine = np.ones(len(span.index), np.bool_)
            step = min(span.width_bytes, 8)
            all_ones = np.array([1] * step, np.uint8).view(f"u{step}")[0]
            for part in range(0, span.width_bytes, step):
                fine &= self.written.view(f"u{step}").take((span.index + part) // step) == all_ones
        if not fine.all():
            lane = int(np.argmin(fine))
            place = self.describe(int(span.index[lane]), int(addresses[lane]))
            raise LaneFault(lane, f"read of {span.width_bytes} bytes at {place}: never written (poison)")

    def describe(self, index: int, address: int) -> str:
        """An address for people: hexadecimal, and the tensor it lies in, or just misses, or lay in before it was
        freed.
        """
        rank, offset = divmod(index, self.capacity)
        text = f"{address:#x} (rank {rank}'s heap + {offset:#x}"
        number = int(self.granules[index // GRANULE_BYTES]) if 0 <= index < len(self.memory) else 0
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

    # Data

    def gather(self, span: Span, element: str) -> npt.NDArray[np.generic]:
        """The bytes of each lane as a matrix (lanes, width / element size) of dtype element ("u4", ..).

        A view, where it can be.
        """
        size = span.width_bytes
        if span.shape == "affine":
            flat = self.memory[span.low : span.low + len(span.index) * size]
            return flat.view(element).reshape(len(span.index), -1)
        if span.shape == "uniform":
            row = self.memory[span.low : span.low + size].view(element)
            return np.broadcast_to(row, (len(span.index), len(row)))
        wide = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[size]
        picked = self.memory.view(wide).take(span.index >> (size.bit_length() - 1))
        return picked.view(element).reshape(len(span.index), -1)

    def scatter(self, span: Span, rows: npt.NDArray[np.generic]) -> None:
        """Store a C-contiguous matrix of one row a lane. Of lanes that share an address the last one wins."""
        size = span.width_bytes
        if span.shape == "affine":
            end = span.low + len(span.index) * size
            self.memory[span.low : end] = rows.view(np.uint8).reshape(-1)
            if span.allocation is None or span.allocation.unwritten:
                self.written[span.low : end] = 1
            return
        wide = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[size]
        position = span.index >> (size.bit_length() - 1)
        self.memory.view(wide)[position] = rows.view(wide).reshape(-1)
        if span.allocation is None or span.allocation.unwritten:
            ones = np.ones(size, np.uint8).view(wide)[0]
            self.written.view(wide)[position] = ones

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

    def host_poison(self, allocation: Allocation, offset_bytes: int, size_bytes: int) -> None:
        """Make bytes unwritten again."""
        start = allocation.start + offset_bytes
        self.memory[start : start + size_bytes] = 0xFF
        self.written[start : start + size_bytes] = 0
        allocation.unwritten = True
        self.version += 1
