"""State spaces other than the ranks' heaps, and generic addresses, which may lie in any space.

Shared memory, local memory and kernel parameters have addresses that begin at 0 in their own space; a generic address
is such an address plus the start of the space's window (simulator/memory/space.py). Global and constant addresses are
the same number in both.

An address of a cluster's shared memory (.shared::cluster) is one of a block's (.shared::cta) with a tag above it: 2 +
the block's rank in the cluster, or 0, the thread's own block. So what mapa gives means the same to all of the cluster,
and who clears the lowest bit of the tag, as CuTe does, names the block with the even rank of a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, fill, operation
from simulator.memory.space import LOCAL, PARAMETER, SHARED, TAG, WINDOW_SHIFT, LaneFault, fault_where
from simulator.observe.events import Access, Stored, tell
from simulator.ptx.ir import Address, Instruction, Register, Symbol

WINDOWS = {"shared": SHARED, "local": LOCAL, "param": PARAMETER}
_SPACE_OF = {start >> WINDOW_SHIFT: name for name, start in WINDOWS.items()} | {
    SHARED >> WINDOW_SHIFT: "shared::cluster"
}
CONVERTED = ("global", "shared", "local", "const", "param")
BARRIER_BYTES = 8
"""Of an mbarrier."""
POISON = "read of shared memory that was never written (poison)"

CLUSTER_SHIFT = 24
"""Where the tag of an address of shared memory begins."""
FIRST_TAG = 2
"""The tag of the block with rank 0."""
CLUSTER_MASK = (1 << CLUSTER_SHIFT) - 1


# Addresses


def address_reader(operand: Any, bind: Binder) -> Any:
    """Return a function from a frame to the lanes' global, constant or generic addresses (uint64)."""
    assert isinstance(operand, Address)
    assert not isinstance(operand.base, Symbol) or bind.place(operand.base.name)[0] == "variable"
    slot = bind.read(operand.base, "u8")
    offset = np.int64(operand.offset_bytes).view(np.uint64)

    def read(frame: LaneFrame) -> Lanes:
        base = frame.regs[slot]
        if base.shape[0] != frame.count:
            base = np.broadcast_to(base, frame.count)
        return base + offset if offset else base

    return read


def _reader_within(space: str) -> Callable[[Any, Binder], Any]:
    """As address_reader, of int64 within a space: a variable's name is its offset there, and 32-bit registers may hold
    addresses."""

    def reader(operand: Any, bind: Binder) -> Any:
        assert isinstance(operand, Address)
        if isinstance(operand.base, Symbol):
            fixed = _offset_of(operand.base, space, bind) + operand.offset_bytes
            return lambda frame: np.full(frame.count, fixed, np.int64)
        return _plain_reader(operand, bind)

    return reader


shared_reader, parameter_reader = _reader_within("shared"), _reader_within("parameter")


def local_reader(operand: Any, bind: Binder) -> Any:
    """As shared_reader, within the thread's local memory."""
    assert isinstance(operand, Address)
    if isinstance(operand.base, Symbol):
        fixed = _offset_of(operand.base, "frame", bind) + operand.offset_bytes
        return lambda frame: frame.batch.calls.pointers(frame.view.lanes) + fixed
    return _plain_reader(operand, bind)


def _plain_reader(operand: Address, bind: Binder) -> Any:
    assert not isinstance(operand.base, Symbol)
    kind = bind.register_dtype(operand.base) if isinstance(operand.base, Register) else "u8"
    slot = bind.read(operand.base, kind)
    offset = np.int64(operand.offset_bytes)

    def read(frame: LaneFrame) -> Lanes:
        found = frame.regs[slot].astype(np.int64) + offset
        return found if found.shape[0] == frame.count else np.broadcast_to(found, frame.count)

    return read


def _offset_of(symbol: Symbol, kind: str, bind: Binder) -> int:
    found, offset = bind.place(symbol.name)
    assert found == kind
    return offset + symbol.offset_bytes


READERS: dict[str, Callable[[Any, Binder], Any]] = {
    "": address_reader,
    "global": address_reader,
    "const": address_reader,
    "shared": shared_reader,
    "shared::cluster": shared_reader,
    "local": local_reader,
    "param": parameter_reader,
}


def symbol_reader(symbol: Symbol, bind: Binder) -> Any:
    """Return a function from a frame to the address of a name in its own state space."""
    kind, number = bind.place(symbol.name)
    if kind == "frame":
        fixed = number + symbol.offset_bytes
        return lambda frame: frame.batch.calls.pointers(frame.view.lanes) + fixed
    slot = bind.read(symbol, "u8")
    return lambda frame: frame.regs[slot]


# Memory that is not in the heaps


def shared_index(frame: LaneFrame, addresses: Lanes, width: int) -> Lanes:
    """Positions in the batch's shared memory (one row a block). Bounds and alignment as for global memory."""
    size = frame.batch.shared_bytes
    index = addresses.astype(np.int64)
    wrong = (index < 0) | (index + width > size) | (index % width != 0)
    if wrong.any():
        index = own_addresses(frame, index)
        _check_shared(frame, index, width)
    blocks: Lanes = frame.batch.blocks_of(frame.view.lanes)
    return blocks * np.int64(frame.batch.shared.shape[1]) + index


def _check_shared(frame: LaneFrame, index: Lanes, width: int) -> None:
    size = frame.batch.shared_bytes
    fault_where(
        (index < 0) | (index + width > size) | (index % width != 0),
        lambda lane: f"shared memory of {size} bytes: {width} bytes at {int(index[lane]):#x} are outside or misaligned",
    )


def own_addresses(frame: LaneFrame, index: Lanes) -> Lanes:
    """Return the addresses in the thread's block of those that may name it as one of the cluster. Raises LaneFault for
    those of other blocks."""
    tags = index >> CLUSTER_SHIFT
    if not (tags > 0).any():
        return index
    clusters = frame.batch.launched.clusters
    ranks = clusters.ranks_of(frame.batch.blocks_of(frame.view.lanes))
    other = (tags >= FIRST_TAG) & (tags < clusters.size + FIRST_TAG) & (tags - FIRST_TAG != ranks)
    fault_where(
        other,
        lambda lane: (
            f"shared memory of the block with rank {int(tags[lane]) - FIRST_TAG} in the cluster, where the "
            f"thread's own (.shared::cta) is meant; its block has rank {int(ranks[lane])}"
        ),
    )
    return np.where(tags - FIRST_TAG == ranks, index & CLUSTER_MASK, index)


def cluster_places(frame: LaneFrame, addresses: Lanes) -> tuple[Lanes, Lanes]:
    """The number of the block, within the batch, that each address of a cluster's shared memory names, and the address
    there. Raises LaneFault for a block that is not in the cluster, has not begun or is over."""
    batch = frame.batch
    index = addresses.astype(np.int64)
    own: Lanes = batch.blocks_of(frame.view.lanes)
    tags = index >> CLUSTER_SHIFT
    if not tags.any():
        return own, index
    clusters = batch.launched.clusters
    wrong = (tags != 0) & ((tags < FIRST_TAG) | (tags >= clusters.size + FIRST_TAG))
    size = "1 block" if clusters.size == 1 else f"{clusters.size} blocks"
    fault_where(wrong, lambda lane: f"{int(index[lane]):#x} is no address of shared memory in a cluster of {size}")
    blocks = np.where(tags == 0, own, clusters.blocks_of(clusters.numbers_of(own), tags - FIRST_TAG))

    def named(lane: int) -> str:
        return f"shared memory of {batch.block_name(int(blocks[lane]) % batch.grid)}"

    fault_where(batch.alive[blocks] == 0, lambda lane: f"{named(lane)}, whose threads have all returned")
    if batch.begun is not None:
        text = "which may not have begun: no barrier of the cluster (barrier.cluster) was passed before"
        fault_where(~batch.begun[blocks], lambda lane: f"{named(lane)}, {text}")
    return blocks, index & CLUSTER_MASK


Place = tuple[int, int]
"""A block, as the batch numbers it, and a byte of its shared memory."""


def places_of(frame: LaneFrame, addresses: Lanes, space: str) -> list[Place]:
    """Return what each lane's address of "shared::cta" or "shared::cluster" memory means; not checked for bounds."""
    index = addresses.astype(np.int64)
    if space == "shared::cluster":
        blocks, index = cluster_places(frame, index)
    else:
        blocks, index = frame.batch.blocks_of(frame.view.lanes), own_addresses(frame, index)
    return list(zip(blocks.tolist(), index.tolist(), strict=True))


def shared_place(frame: LaneFrame, place: Place, position: int, size_bytes: int, unit_bytes: int, what: str) -> int:
    """Return where a lane's place lies in the batch's shared memory (one row a block). Raises LaneFault, about `what`,
    for one that is not aligned to unit_bytes or outside."""
    size = frame.batch.shared_bytes
    block, address = place
    if address % unit_bytes:
        raise LaneFault(position, f"{what} at byte {address:#x} of shared memory is not aligned to {unit_bytes} bytes")
    if not 0 <= address <= size - size_bytes:
        text = f"{what} of {size_bytes} bytes at byte {address:#x} of shared memory"
        raise LaneFault(position, f"{text}: outside the block's {size} bytes")
    row: int = frame.batch.shared.shape[1]
    return block * row + address


def report_shared(
    frame: LaneFrame,
    addresses: Lanes,
    width: int,
    instruction: Instruction,
    action: str,
    blocks: Lanes | None = None,
) -> None:
    """Tell the listeners of an access to shared memory; addresses are bytes within the block's. blocks: whose it is, as
    the batch numbers them; None: the lanes' own."""
    events, view = frame.batch.space.events, frame.view
    if events.shared_access:
        who = (view.launched, view.lanes, events.step)
        addresses = addresses.astype(np.int64) & CLUSTER_MASK
        owners = None if blocks is None else blocks % frame.batch.grid
        event = Access(*who, instruction, action, "shared", width, view.rank, view.rank, addresses, owners)
        tell(events.shared_access, event)


@dataclass(frozen=True, slots=True)
class Reached:
    """A checked access outside the heaps: the bytes of a state space, and where in them each lane's access begins."""

    flat: npt.NDArray[np.uint8]
    index: Lanes
    width: int

    def rows(self, kind: str) -> Lanes:
        """The bytes of each lane as a matrix (lanes, elements)."""
        picked = self.flat[self.index[:, None] + np.arange(self.width)]
        return picked.view(kind)

    def put(self, rows: Lanes, order: Lanes | None = None) -> None:
        """Store a C-contiguous matrix of one row a lane. Of lanes that share an address the last one in order wins;
        None: that of the highest number."""
        index, values = self.index, rows.view(np.uint8).reshape(len(self.index), -1)
        if order is not None:
            index, values = index[order], values[order]
        self.flat[index[:, None] + np.arange(self.width)] = values


def reach(frame: LaneFrame, space: str, addresses: Lanes, width: int, instruction: Instruction, action: str) -> Reached:
    """Check an access to a space that is not global, as Space.resolve does for the heaps."""
    batch = frame.batch
    if space in ("shared", "shared::cluster"):
        if space == "shared":
            blocks, index = None, shared_index(frame, addresses, width)
        else:
            blocks, places = cluster_places(frame, addresses)
            _check_shared(frame, places, width)
            index = blocks * np.int64(batch.shared.shape[1]) + places
        report_shared(frame, addresses, width, instruction, action, blocks)
        good = batch.shared_written.reshape(-1)
        places = index[:, None] + np.arange(width)
        if action != "load" and batch.mbarriers.objects:
            batch.mbarriers.check_write(index, width)
        if action != "store":
            fault_where(~good[places].all(axis=1), lambda _: POISON)
        if action == "store":
            good[places] = True
        if action != "load":
            batch.space.version += 1
        if batch.shared_start >= 0:
            batch.space.settle_at(batch.shared_start + index, width)
        return Reached(batch.shared.reshape(-1), index, width)
    if space == "local":
        rows, unit = batch.calls.local, "local memory"
        row = np.asarray(frame.view.lanes)
    else:
        rows, unit = batch.parameter_rows, "the kernel's parameters"
        row = batch.launched.positions_of(frame.view.lanes)
        if action != "load":
            raise LaneFault(0, f"{action} to the kernel's parameters: they are read only")
    size = rows.shape[1]
    fault_where(
        (addresses < 0) | (addresses + width > size) | (addresses % width != 0),
        lambda lane: f"{unit} of {size} bytes: {width} bytes at {int(addresses[lane]):#x} are outside or misaligned",
    )
    return Reached(rows.reshape(-1), row * np.int64(size) + addresses, width)


def spread(frame: LaneFrame, addresses: Lanes, run: Callable[[LaneFrame, str, Lanes, Any], None]) -> None:
    """Call run(frame, space, addresses there, positions) for each state space that generic addresses lie in.

    positions: of these lanes in the frame. The frame given to run has no registers of its own. Addresses that lie in no
    window go to "global", which says what is wrong with them.
    """
    windows = addresses >> np.uint64(WINDOW_SHIFT)
    for window in np.unique(windows).tolist() if windows[0] != windows[-1] or (windows != windows[0]).any() else [None]:
        lanes: Any = slice(None) if window is None else np.flatnonzero(windows == window)
        number = int(windows[0]) if window is None else window
        space = _SPACE_OF.get(number, "global")
        some = frame if window is None else frame.batch.narrow(frame, lanes, [])
        mine = addresses[lanes]
        if space != "global":
            mine = (mine - np.uint64(WINDOWS[space.partition("::")[0]])).view(np.int64)
        try:
            run(some, space, mine, lanes)
        except LaneFault as fault:
            lane = fault.lane if window is None else int(lanes[fault.lane])
            raise LaneFault(lane, fault.message, fault.kind) from None


def is_in_heaps(addresses: Lanes) -> bool:
    """Whether all of the generic addresses are global ones."""
    return bool(addresses.min() >= TAG)


def load_rows(frame: LaneFrame, space: str, addresses: Lanes, width: int, kind: str, instruction: Instruction) -> Lanes:
    """The bytes that each lane reads as a matrix (lanes, elements); space "" is generic."""
    if space == "" and is_in_heaps(addresses):
        space = "global"
    if space in ("global", "const"):
        heaps = frame.batch.space
        span = heaps.resolve(frame.view, addresses, width, instruction, "load")
        if space == "const":

            def told(lane: int) -> str:
                return f"ld.const of {heaps.describe(int(span.index[lane]), int(addresses[lane]))}: not constant memory"

            fault_where(span.index < heaps.constants_start, told)
        found: Lanes = heaps.gather(span, kind)
        return found
    if space:
        return reach(frame, space, addresses, width, instruction, "load").rows(kind)
    rows = np.empty((frame.count, width // np.dtype(kind).itemsize), kind)

    def run(some: LaneFrame, space: str, mine: Lanes, lanes: Any) -> None:
        rows[lanes] = load_rows(some, space, mine, width, kind, instruction)

    spread(frame, addresses, run)
    return rows


def store_rows(frame: LaneFrame, space: str, addresses: Lanes, rows: Lanes, instruction: Instruction) -> None:
    """Store a matrix of one row a lane; space "" is generic."""
    width = rows.shape[1] * rows.itemsize
    if space == "global" or (space == "" and is_in_heaps(addresses)):
        heaps = frame.batch.space
        heaps.scatter(heaps.resolve(frame.view, addresses, width, instruction, "store"), np.ascontiguousarray(rows))
    elif space:
        found = reach(frame, space, addresses, width, instruction, "store")
        if frame.batch.space.events.stored and space.startswith("shared"):
            tell(frame.batch.space.events.stored, Stored(found.index, rows, found.flat))
        found.put(np.ascontiguousarray(rows), frame.batch.space.lane_order(frame.count))
    else:

        def run(some: LaneFrame, space: str, mine: Lanes, lanes: Any) -> None:
            store_rows(some, space, mine, rows[lanes], instruction)

        spread(frame, addresses, run)


# Conversions and questions


def _converted(space: str, back: bool) -> Any:
    """cvta: from an address in a space to a generic one, or back. Global and constant addresses stay."""
    start = WINDOWS.get(space.partition("::")[0], 0)
    shift = np.uint64(-start % (1 << 64) if back else start)

    def build(instruction: Instruction, bind: Binder) -> Run:
        to, source = bind.write(instruction.operands[0]), instruction.operands[1]
        if isinstance(source, Symbol) and not back:
            read = symbol_reader(source, bind)
        else:
            origin = bind.read(source, "u8")
            read = lambda frame: frame.regs[origin]  # noqa: E731

        def run(frame: LaneFrame) -> None:
            frame.regs[to][...] = np.asarray(read(frame)).astype(np.uint64) + shift

        return run

    return build


def is_own(frame: LaneFrame, addresses: Lanes) -> Lanes:
    """Return whether each lane's address of the cluster's shared memory is in its own block."""
    tags = addresses >> CLUSTER_SHIFT
    ranks = frame.batch.launched.clusters.ranks_of(frame.batch.blocks_of(frame.view.lanes))
    found: Lanes = (tags == 0) | (tags - FIRST_TAG == ranks)
    return found


def _is_in(space: str) -> Any:
    """isspacep: whether a generic address lies in a space's window."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        to, origin = bind.write(instruction.operands[0]), bind.read(instruction.operands[1], "u8")

        def run(frame: LaneFrame) -> None:
            addresses = frame.regs[origin]
            if space.startswith("shared"):
                found = addresses >> np.uint64(WINDOW_SHIFT) == np.uint64(SHARED >> WINDOW_SHIFT)
                if space != "shared::cluster":
                    found &= is_own(frame, (addresses - np.uint64(SHARED)).view(np.int64))
            elif space in WINDOWS:
                found = addresses >> np.uint64(WINDOW_SHIFT) == np.uint64(WINDOWS[space] >> WINDOW_SHIFT)
            else:
                index = (addresses - np.asarray(frame.view.base, np.uint64)).view(np.int64)
                heaps = frame.batch.space
                is_constant = (index >= heaps.constants_start) & (index < heaps.end)
                found = is_constant if space == "const" else (addresses >= TAG) & ~is_constant
            fill(frame.regs[to], np.broadcast_to(found, frame.count))

        return run

    return build


for _space in (*CONVERTED, "shared::cta", "shared::cluster"):
    operation(f"cvta.{_space}.u64")(_converted(_space, back=False))
    operation(f"cvta.to.{_space}.u64")(_converted(_space, back=True))
    operation(f"isspacep.{_space}")(_is_in(_space))
