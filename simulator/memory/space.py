"""The memory of a simulated world: heaps, windows of ranks and of multicast, and all that can be wrong with an access.

An address that rank v holds is  TAG + v * VIEW + w * capacity + offset:  window w < world_size is the heap of rank w
as v sees it (its own included), window 127 is multicast; behind the heaps follow the .global and the .const variables
of modules. Generic addresses below TAG are in windows of their own: shared memory, the thread's local memory, the
kernel's parameters, functions. So every rank sees every byte at an address of its own, as
on GPUs, and an address that leaked from one rank to another is caught. All accesses pass Space.resolve, which reports
them to listeners (simulator/observe/events.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memory.fabric import DeviceFault
from simulator.memory.heaps import GRANULE_BYTES, LAST_WINDOW, Allocation, Heaps
from simulator.observe.events import MULTICAST_TARGET, Access, Events, Stored, tell
from simulator.observe.lanes import Group, Launched
from simulator.ptx.ir import Instruction

Indices = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

TAG = 1 << 46
WINDOWS = 128
MULTICAST = LAST_WINDOW
WINDOW_SHIFT = 40
SHARED, LOCAL, PARAMETER, FUNCTION = (number << WINDOW_SHIFT for number in (1, 2, 3, 4))
"""Where generic addresses of shared memory, local memory and kernel parameters begin, and addresses of functions."""


class LaneFault(Exception):
    """What a lane of the running frame did wrong; the machine adds rank, block, thread and place, and raises kind."""

    def __init__(self, lane: int, message: str, kind: type[DeviceFault] = DeviceFault) -> None:
        super().__init__(message)
        self.lane = lane
        self.message = message
        self.kind = kind


def fault_where(wrong: Any, told: Callable[[int], str]) -> None:
    """Raise LaneFault for the first lane that does wrong, if one does; told: what to say of it."""
    if wrong.any():
        lane = int(np.argmax(wrong))
        raise LaneFault(lane, told(lane))


@contextmanager
def blamed(lanes: int | Indices) -> Iterator[None]:
    """What goes wrong is of one lane, or of one of those lanes that a part of a frame has."""
    try:
        yield
    except LaneFault as fault:
        raise LaneFault(lanes if isinstance(lanes, int) else int(lanes[fault.lane]), fault.message) from None


@dataclass(slots=True)
class View:
    """The lanes that access memory: base is the first address of their own view, one value or one a lane; rank
    likewise.

    lanes: their numbers, which launched explains.
    """

    base: int | Addresses
    rank: int | Indices
    launched: Launched
    lanes: Group


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


def _unreachable(variable: Allocation) -> str:
    return f"variable {variable.name!r} of rank {variable.rank}'s module, which peers cannot reach"


class Space(Heaps):
    """The heaps as ranks and kernels reach them: addresses, checks, gathering and scattering."""

    def __init__(self, world_size: int, heap_bytes: int, multicast: bool) -> None:
        super().__init__(world_size, heap_bytes)
        self.multicast = multicast
        self.view_bytes = self.capacity * WINDOWS
        self.events = Events()
        self.clock_ns = 0  # what kernels read as the time: the scheduler moves it on with every step
        self.variables: dict[tuple[str, int, str], Allocation] = {}  # of modules: by digest, rank and name
        self.shuffle = 0  # the order in which lanes of one instruction reach one address; 0: by their numbers
        self._arange: dict[int, Indices] = {}
        self.copying: tuple[Launched, int] | None = None  # the bulk copy that reads or writes: its launch and number

    def exchange(
        self, index: Indices, kind: str, combine: Callable[[Any, Any], Any], order: Indices | None = None
    ) -> tuple[Any, bool]:
        """Read, combine(lanes, old) and write back elements of dtype kind, lane by lane where addresses meet.

        order: in which lanes are served; None: by their numbers. Returns the old values, and whether any element
        changed.
        """
        return exchanged(self.memory, index, kind, combine, order)

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

    def lane_order(self, lanes: int) -> Indices | None:
        """The order in which lanes of one instruction take effect where their addresses meet; None: by number."""
        if not self.shuffle:
            return None
        spread = np.arange(1, lanes + 1, dtype=np.uint32) * np.uint32((self.shuffle * 0x9E3779B1 | 1) & 0xFFFFFFFF)
        return np.argsort(spread, kind="stable")

    def make_shared(self, blocks: int, row_bytes: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return shared memory for blocks, a row each, and where it lies in memory if its stores are kept, else -1."""
        return np.zeros((blocks, row_bytes), np.uint8), -1

    def read_shared(self, shared_start: int, start: int, found: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Return what a bulk copy reads at a place of shared memory, whose bytes are `found` when all is visible."""
        return found.copy()

    def settle_at(self, places: Any, size_bytes: int) -> None:
        """Make all stores to size_bytes at each place of memory visible."""

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
        if low < 0 or high >= self.heaps_end:
            self._beyond_heaps(view.rank, addresses, index, width_bytes, action)
        self._aligned(span, addresses)
        span.allocation = self._checked(view.rank, low, high, index, addresses, width_bytes, action)
        if self.events.access:
            target: int | Indices = span.allocation.rank if span.allocation else self.owners(index)
            self._report(view, addresses, span, instruction, action, target)
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
            text = "not a multicast address of this rank"
            wrong = (index < 0) | (index >= self.capacity)
            fault_where(wrong, lambda lane: f"{instruction.opcode} at {int(addresses[lane]):#x}: {text}")
        one = self._shaped(index, width_bytes)
        self._aligned(one, addresses)
        spans = []
        for rank in range(self.world_size):
            shift = rank * self.capacity
            here = Span(index + shift, one.low + shift, one.shape, width_bytes, None)
            what = f"{action} (replica of rank {rank})"
            here.allocation = self._checked(-1, low + shift, high + shift, here.index, addresses, width_bytes, what)
            spans.append(here)
        if self.events.access:
            self._report(view, addresses, one, instruction, action, MULTICAST_TARGET)
        for span in spans if action != "broadcast" else ():
            self._poison(span, addresses)
        if action != "reduce":
            self.version += 1
        return spans

    # Copies by single lanes

    def resolve_parts(self, view: View, addresses: Addresses, taken: Indices) -> Indices:
        """Check that each lane may read `taken` bytes at its address, one lane at least; return where they are.

        Lanes that take nothing may have any address; theirs is 0. What they read comes later: read_parts.
        """
        index = np.subtract(addresses, view.base, dtype=np.uint64, casting="unsafe").view(np.int64)
        index = np.where(taken > 0, index, 0)
        reading = np.flatnonzero(taken > 0)
        for size in np.unique(taken[reading]).tolist():
            at = reading[taken[reading] == size]
            viewer = view.rank if isinstance(view.rank, int) else view.rank[at]
            some, where = index[at], addresses[at]
            with blamed(at):
                low, high = int(some.min()), int(some.max())
                if low < 0 or high >= self.heaps_end:
                    self._beyond_heaps(viewer, where, some, size, "load")
                self._checked(viewer, low, high, some, where, size, "load")
        return index

    def read_parts(
        self, addresses: Addresses, index: Indices, taken: Indices, size_bytes: int
    ) -> npt.NDArray[np.uint8]:
        """Return size_bytes a lane: those that it takes, then zeros. Raises LaneFault for poison."""
        column = np.arange(size_bytes)
        wanted = column < taken[:, None]
        places = np.where(wanted, index[:, None] + column, 0)
        bad = (wanted & (self.written[places] == 0)).any(axis=1)
        for lane in np.flatnonzero(bad).tolist():
            first = int(index[lane])
            found = self._one_allocation(first, first + int(taken[lane]))
            if found is not None and found.unwritten:
                place = self.describe(first, int(addresses[lane]))
                raise LaneFault(lane, f"copy of {int(taken[lane])} bytes at {place}: never written (poison)")
        return np.where(wanted, self.memory[places], np.uint8(0))

    # Bulk copies

    def resolve_bulk(self, rank: int, address: int, size_bytes: int, action: str) -> int:
        """Check a bulk copy's range of global memory, as one lane of rank sees it; return its index.

        action: "load" or "store". What it does with the bytes comes later: read_bulk and write_bulk.
        """
        addresses = np.array([address], np.uint64)
        index = np.array([address - self.base(rank)], np.int64)
        start = int(index[0])
        if start < 0 or start >= self.heaps_end:
            self._beyond_heaps(rank, addresses, index, size_bytes, action)
        self._checked(rank, start, start, index, addresses, size_bytes, action)
        return start

    def resolve_stretches(self, rank: int, address: int, stretches: list[tuple[int, int]], action: str) -> int:
        """As resolve_bulk, for several ranges that begin at address + begin; return the index of address."""
        start = address - self.base(rank)
        low, end = min(at for at, _ in stretches), max(at + size for at, size in stretches)
        is_one = start + low >= 0 and start + end <= self.heaps_end
        if is_one and self._one_allocation(start + low, start + end) is not None:
            stretches = [(low, end - low)]
        for at, size in stretches:
            self.resolve_bulk(rank, address + at, size, action)
        return start

    def resolve_bulk_multicast(self, rank: int, address: int, size_bytes: int, what: str) -> list[int]:
        """As resolve_bulk, for a multicast address: return the index of each replica, in rank order."""
        start = address - self.base(rank) - MULTICAST * self.capacity
        if not 0 <= start < self.capacity:
            raise LaneFault(0, f"{what} at {address:#x}: not a multicast address of this rank")
        replicas = [start + one * self.capacity for one in range(self.world_size)]
        for owner, index in enumerate(replicas):
            where = np.array([index], np.int64), np.array([address], np.uint64)
            self._checked(-1, index, index, *where, size_bytes, f"{what} (replica of rank {owner})")
        return replicas

    def read_bulk(self, index: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """A copy of the bytes. Raises LaneFault for poison."""
        good = self.written[index : index + size_bytes]
        found = self._one_allocation(index, index + size_bytes)
        if found is not None and found.unwritten and not good.all():
            first = index + int(np.argmin(good))
            place = self.describe(first, self.base(found.rank) + first)
            raise LaneFault(0, f"bulk copy of {size_bytes} bytes: never written (poison) from {place}")
        return self.memory[index : index + size_bytes].copy()

    def write_bulk(self, index: int, data: npt.NDArray[np.uint8], chosen: npt.NDArray[np.bool_] | None = None) -> None:
        """Store the bytes, or of them only the chosen ones."""
        at: Any = slice(index, index + len(data)) if chosen is None else index + np.flatnonzero(chosen)
        self.memory[at] = data if chosen is None else data[chosen]
        self.written[at] = 1
        self.version += 1

    def make_poison(self, index: int, size_bytes: int) -> None:
        """Give up bytes of one allocation: they count as never written."""
        self.memory[index : index + size_bytes] = 0xFF
        self.written[index : index + size_bytes] = 0
        found = self._one_allocation(index, index + size_bytes)
        assert found is not None
        found.unwritten = True
        self.version += 1

    def _report(
        self,
        view: View,
        addresses: Addresses,
        span: Span,
        instruction: Instruction,
        action: str,
        target: int | Indices,
    ) -> None:
        space = "multicast" if isinstance(target, int) and target == MULTICAST_TARGET else "global"
        who = (view.launched, view.lanes, self.events.step)
        where = (view.rank, target, addresses)
        is_affine = span.shape == "affine"
        event = Access(
            *who, instruction, action, space, span.width_bytes, *where, index=span.index, is_affine=is_affine
        )
        tell(self.events.access, event)

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

    def _checked(
        self,
        viewer: int | Indices,
        low: int,
        high: int,
        index: Indices,
        addresses: Addresses,
        width_bytes: int,
        action: str,
    ) -> Allocation | None:
        """Raise LaneFault for what is outside tensors, or in local ones of others; low, high: the ends of index.

        Returns the allocation if all lanes are in one.
        """
        found = self._one_allocation(low, high + width_bytes)
        if found is None:
            self._bounds(index, addresses, width_bytes, action)
        if self.local and (found is None or found.number in self.local):
            self._only_own(viewer, index, addresses, width_bytes, action)
        return found

    def _bounds(self, index: Indices, addresses: Addresses, width_bytes: int, action: str) -> None:
        numbers = self.granules.take(index // GRANULE_BYTES)
        wrong = numbers <= 0
        wrong |= index + width_bytes > self.ends.take(np.maximum(numbers, 0))
        fault_where(wrong, lambda lane: self._outside(int(index[lane]), int(addresses[lane]), width_bytes, action))

    def _hint(self, index: int) -> str:
        from simulator.memory.outside import hint

        return hint(self, index)

    def _outside(self, index: int, address: int, width_bytes: int, action: str) -> str:
        """What is wrong with an access that is not within one live tensor."""
        text = f"{action} of {width_bytes} bytes at {self.describe(index, address)}: outside every live tensor"
        past = index + width_bytes - int(self.ends[max(int(self.granules[index // GRANULE_BYTES]), 0)])
        if 0 < past < width_bytes:
            return f"{text}, it ends {past} bytes past the end"
        return text + self._hint(index)

    def _only_own(
        self, viewer: int | Indices, index: Indices, addresses: Addresses, width_bytes: int, action: str
    ) -> None:
        """Raise LaneFault for local tensors of ranks other than the lane's; viewer -1: for those of all ranks."""
        others = np.flatnonzero(index // self.capacity != viewer)
        if not len(others):
            return
        foreign = np.isin(self.granules.take(index[others] // GRANULE_BYTES), list(self.local))
        if foreign.any():
            lane = int(others[np.argmax(foreign)])
            place = self.describe(int(index[lane]), int(addresses[lane]))
            how = "a multicast address" if isinstance(viewer, int) and viewer < 0 else "another rank"
            text = f"a local buffer, which {how} does not reach (buffers that others reach are not in local)"
            raise LaneFault(lane, f"{action} of {width_bytes} bytes at {place}: {text}")

    def owners(self, index: Indices) -> Indices:
        """Return the rank whose memory each index is."""
        owners: Indices = index // self.capacity
        for lane in np.flatnonzero(index >= self.heaps_end).tolist():
            found = self.allocations[abs(int(self.granules[int(index[lane]) // GRANULE_BYTES]))]
            owners[lane] = found.rank if found is not None else 0
        return owners

    def _nowhere(self, index: Indices) -> npt.NDArray[np.bool_]:
        """Which indices are neither in a heap nor where modules have variables."""
        in_heaps = (index >= 0) & (index < self.heaps_end)
        in_variables = (index >= self.heaps_end) & (index < self.module_tops["global"])
        in_constants = (index >= self.constants_start) & (index < self.module_tops["const"])
        return ~(in_heaps | in_variables | in_constants)

    def _beyond_heaps(
        self, viewer: int | Indices, addresses: Addresses, index: Indices, width_bytes: int, action: str
    ) -> None:
        """Some lanes' addresses are in no heap: those of modules' variables are good, and only read if .const."""
        if self._nowhere(index).any():
            self._wrong_window(viewer, addresses, index, width_bytes, action)
        owners = self.variable_ranks.take(self.granules.take(index // GRANULE_BYTES).clip(0))
        foreign = (index >= self.heaps_end) & (owners != viewer) & (owners >= 0)

        def place(lane: int) -> str:
            return self.describe(int(index[lane]), int(addresses[lane]))

        def unreachable(lane: int) -> str:
            found = self._variable_at(int(index[lane]))
            assert found is not None
            return f"{action} of {width_bytes} bytes at {place(lane)}: {_unreachable(found)}"

        fault_where(foreign, unreachable)
        if action != "load":
            wrong = index >= self.constants_start
            fault_where(wrong, lambda lane: f"{action} to {place(lane)}: constant memory is read only")

    def _wrong_window(
        self, viewer: int | Indices, addresses: Addresses, index: Indices, width_bytes: int, action: str
    ) -> None:
        wrong = self._nowhere(index)
        lane = int(np.argmax(wrong))
        address = int(addresses[lane])
        owner, inside = divmod(address - TAG, self.view_bytes)
        window = inside // self.capacity
        rank = int(viewer if isinstance(viewer, int) else viewer[lane])
        text = f"{action} of {width_bytes} bytes at {address:#x}: "
        variable = self._variable_at(inside) if 0 <= owner < self.world_size else None
        if address < TAG or owner >= self.world_size:
            null = " (a null pointer?)" if address < 4096 else ""
            text += "no address of this world" + (null or self._hint(int(index[lane])))
        elif owner != rank and variable is not None:
            text = f"{action} of {width_bytes} bytes at {self.describe(inside, address)}: {_unreachable(variable)}"
        elif owner != rank and (meant := self._hint(int(index[lane]))):
            text += f"an address of rank {owner}'s view, used on rank {rank}{meant}"
        elif owner != rank:
            text += f"an address of rank {owner}'s view, used on rank {rank}: addresses mean something on one rank only"
        elif window == MULTICAST:
            text += "a plain access to a multicast address; only multimem instructions may use it"
        else:
            text += f"window {window} of rank {rank}'s view holds nothing (world size {self.world_size})"
            text += self._hint(int(index[lane]))
        raise LaneFault(lane, text)

    def _variable_at(self, index: int) -> Allocation | None:
        """The variable of a module at an index; None for none."""
        if not self.heaps_end <= index < len(self.memory):
            return None
        return self.allocations[max(int(self.granules[index // GRANULE_BYTES]), 0)]

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

        def told(lane: int) -> str:
            place = self.describe(int(span.index[lane]), int(addresses[lane]))
            return f"read of {span.width_bytes} bytes at {place}: never written (poison)"

        fault_where(~fine, told)

    def first_symmetric(self, view: View, addresses: Addresses) -> int:
        """The position of the first address in symmetric memory, -1 if there is none."""
        index = np.subtract(addresses, view.base, dtype=np.uint64, casting="unsafe").view(np.int64)
        for position in np.flatnonzero((index >= 0) & (index < self.heaps_end)).tolist():
            found = self.allocations[abs(int(self.granules[int(index[position]) // GRANULE_BYTES]))]
            if found is None or found.symmetric:
                return int(position)
        return -1

    def describe_address(self, view: View, addresses: Addresses, position: int) -> str:
        """An address of a frame for people."""
        base = view.base if isinstance(view.base, int) else int(view.base[position])
        return self.describe(int(addresses[position]) - base, int(addresses[position]))

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
        wide = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16", 32: "V32"}[size]
        picked = self.memory.view(wide).take(span.index >> (size.bit_length() - 1))
        return picked.view(element).reshape(len(span.index), -1)

    def scatter(self, span: Span, rows: npt.NDArray[np.generic]) -> None:
        """Store a C-contiguous matrix of one row a lane. Of lanes that share an address the last one wins, in the order
        of lane_order."""
        size = span.width_bytes
        if span.shape == "affine":
            end = span.low + len(span.index) * size
            if len(span.index) == 1 and self.events.stored:
                tell(self.events.stored, Stored(span.index, rows, self.memory))
            self.memory[span.low : end] = rows.view(np.uint8).reshape(-1)
            if span.allocation is None or span.allocation.unwritten:
                self.written[span.low : end] = 1
            return
        if self.events.stored:
            tell(self.events.stored, Stored(span.index, rows, self.memory))
        wide = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16", 32: "V32"}[size]
        position, values = span.index >> (size.bit_length() - 1), rows.view(wide).reshape(-1)
        order = self.lane_order(len(position))
        if order is not None:
            position, values = position[order], values[order]
        self.memory.view(wide)[position] = values
        if span.allocation is None or span.allocation.unwritten:
            ones = np.ones(size, np.uint8).view(wide)[0]
            self.written.view(wide)[position] = ones


def exchanged(
    flat: Any, index: Any, kind: str, combine: Callable[[Any, Any], Any], order: Any = None
) -> tuple[Any, bool]:
    """Read, combine(lanes, old) and write back elements of dtype kind in any bytes, lane by lane where places meet.

    order: in which lanes are served; None: by their numbers. Returns the old values, and whether any element changed.
    """
    size = np.dtype(kind).itemsize
    cells = flat.view(kind)
    position = index // size
    old = np.empty(len(index), kind)
    changed = False
    turns = _turns(position) if order is None else [order[now] for now in _turns(position[order])]
    for now in turns:
        old[now] = cells[position[now]]
        new = combine(now, old[now])
        word = f"u{min(size, 8)}"
        changed |= bool((new.view(word) != old[now].view(word)).any())
        cells[position[now]] = new
    return old, changed


def _turns(position: Any) -> list[Any]:
    """Lanes in turns: those whose cell no earlier lane has, those whose cell one earlier lane has, and so on."""
    order = np.argsort(position, kind="stable")
    ordered = position[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) == len(position):
        return [order]
    turn = np.arange(len(position)) - np.repeat(starts, np.diff([*starts, len(position)]))
    return np.split(order[np.argsort(turn, kind="stable")], np.cumsum(np.bincount(turn))[:-1])
