"""tcgen05: tensor memory, its allocation, and copies to and from registers and out of shared memory.

What a warp does together (alloc, dealloc, ld, st) takes place in its step, what one thread begins (mma, cp, commit)
later (simulator/run/tensor_cores.py). tcgen05.wait and fence have nothing left to do. No GPU has confirmed any of this:
layouts are those of the PTX ISA and of CuTe. Products are in tcgen05_products.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.isa.bulk import MULTICAST, aims_of, mask_reader
from simulator.isa.matrices import WARP, read_rows, whole_warps
from simulator.isa.mbarriers import barrier_reader
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import BARRIER_BYTES, READERS, shared_place, shared_reader, store_rows
from simulator.memory.descriptors import ROW_BYTES, places_of, refused
from simulator.memory.space import LaneFault, blamed, fault_where
from simulator.memory.tensor_memory import SIZES, split
from simulator.observe.events import TensorMoment, tell
from simulator.ptx.ir import Immediate, Instruction, Operand, Vector

GROUPS = ("cta_group::1", "cta_group::2")
_WARPS = "sync aligned"


def is_by_pair(instruction: Instruction) -> bool:
    return "cta_group::2" in instruction.qualifiers


def _leaders(frame: LaneFrame, instruction: Instruction) -> list[int]:
    """The first lane of each warp, as positions in the frame."""
    return list(range(0, whole_warps(frame, instruction) * WARP, WARP))


def _uniform(frame: LaneFrame, slot: int, what: str) -> list[int]:
    """The value that all lanes of a warp give, one a warp."""
    return _alike(np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64), what)


def _alike(values: Lanes, what: str) -> list[int]:
    rows = values.reshape(-1, WARP)
    fault_where(rows != rows[:, :1], lambda _: f"{what} of tcgen05 differs between lanes of a warp")
    found: list[int] = rows[:, 0].tolist()
    return found


# Allocations


def _checked(columns: int, position: int) -> int:
    if columns not in SIZES:
        text = f"{columns} columns of tensor memory; an allocation has {', '.join(map(str, SIZES[:-1]))} or {SIZES[-1]}"
        raise LaneFault(position, text)
    return columns


@operation(*(f"tcgen05.alloc.{group}.{space}b32" for group in GROUPS for space in ("", "shared::cta.")), neutral=_WARPS)
def _alloc(instruction: Instruction, bind: Binder) -> Run:
    """The address of the first column goes into shared memory once there are enough; the warp waits until then."""
    to, count = instruction.operands
    space = "shared" if "shared::cta" in instruction.qualifiers else ""
    addresses, columns = READERS[space](to, bind), bind.read(count, "u4")

    def run(frame: LaneFrame) -> None:
        cores, firsts = frame.batch.tensor_cores, _leaders(frame, instruction)
        wanted = _uniform(frame, columns, "the number of columns")
        places = np.broadcast_to(addresses(frame), frame.count)
        for warp, first in enumerate(firsts):
            one = frame.batch.narrow(frame, np.array([first]), [])
            place = places[first : first + 1].copy()

            def store(start: int, one: LaneFrame = one, place: Lanes = place) -> None:
                store_rows(one, space, place, np.array([[start]], "u4"), instruction)

            lanes = np.asarray(frame.view.lanes)[first : first + WARP]
            block = int(frame.batch.blocks_of(lanes[:1])[0])
            found = (block, _checked(wanted[warp], first), is_by_pair(instruction), store)
            with blamed(first):
                cores.ask(lanes, instruction, *found)

    return run


@operation(*(f"tcgen05.dealloc.{group}.b32" for group in GROUPS), neutral=_WARPS)
def _dealloc(instruction: Instruction, bind: Binder) -> Run:
    """In a pair each block's warp gives back its own."""
    address, columns = (bind.read(one, "u4") for one in instruction.operands)

    def run(frame: LaneFrame) -> None:
        firsts, blocks = _leaders(frame, instruction), frame.batch.blocks_of(frame.view.lanes)
        starts, counts = _uniform(frame, address, "the address"), _uniform(frame, columns, "the number of columns")
        for warp, first in enumerate(firsts):
            count = _checked(counts[warp], first)
            with blamed(first):
                frame.batch.tensor_cores.free(int(blocks[first]), starts[warp], count)

    return run


@operation(*(f"tcgen05.relinquish_alloc_permit.{group}" for group in GROUPS), neutral=_WARPS)
def _relinquish(instruction: Instruction, bind: Binder) -> Run:
    return lambda frame: frame.batch.tensor_cores.given_up.update(frame.batch.blocks_of(frame.view.lanes).tolist())


# Registers


_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of a lane for x1, by shape."""
_TIMES = {f"x{1 << power}": 1 << power for power in range(8)}


def cells_of(shape: str, count: int, apart: int = 0) -> tuple[Lanes, Lanes]:
    """Lane and column of each register of each lane of a warp, as (32, registers), from those of the address on.
    apart: columns between the halves of 16x32bx2."""
    lane, register = np.arange(WARP)[:, None], np.arange(count)[None, :]
    if shape == "32x32b":
        return lane + 0 * register, register + 0 * lane
    if shape == "16x32bx2":
        return lane % 16 + 0 * register, register + lane // 16 * apart
    if shape == "16x64b":
        return lane // 4 + 8 * (lane % 2) + 0 * register, lane // 2 % 2 + 2 * register
    if shape == "16x128b":
        return lane // 4 + 8 * (register % 2), lane % 4 + 4 * (register // 2)
    return lane // 4 + 8 * (register // 2 % 2), 2 * (lane % 4) + register % 2 + 8 * (register // 4)


def _registers_of(instruction: Instruction, vector: Operand) -> tuple[str, tuple[Operand, ...]]:
    """The shape, and as many registers as it has."""
    words = instruction.qualifiers
    shape, times = (next(one for one in known if one in words) for known in (_SHAPES, _TIMES))
    registers = vector.parts if isinstance(vector, Vector) else (vector,)
    count = _SHAPES[shape] * _TIMES[times]
    if len(registers) != count:
        text = f"{len(registers)} registers for {instruction.mnemonic}, which takes {count}"
        raise UnknownInstruction(f"{text}; {instruction.where()}")
    return shape, registers


def _cells(
    frame: LaneFrame, instruction: Instruction, addresses: Lanes, shape: str, offsets: tuple[Lanes, Lanes], halves: bool
) -> list[tuple[int, Lanes, Lanes]]:
    """Of each warp the block, and lane and column of each register; halves: of two columns beside each other."""
    found, firsts, blocks = [], _leaders(frame, instruction), frame.batch.blocks_of(frame.view.lanes)
    threads = np.asarray(frame.view.lanes) % frame.view.launched.block
    starts = _alike(np.broadcast_to(addresses, frame.count).astype(np.int64), "the address")
    for warp, first in enumerate(firsts):
        lane, column = split(starts[warp])
        quarter = int(threads[first]) // WARP % 4 * WARP
        if lane not in ((quarter,) if shape == "32x32b" else (quarter, quarter + 16)):
            text = f"tensor memory at lane {lane}: the warp's own are {quarter} to {quarter + WARP - 1}"
            raise LaneFault(
                first, f"{text}, and .{shape} begins at {quarter}{'' if shape == '32x32b' else ' or 16 on'}"
            )
        columns = offsets[1]
        if halves:
            columns = np.stack([2 * columns, 2 * columns + 1], -1).reshape(WARP, -1)
        lanes = np.repeat(offsets[0], 1 + halves, axis=1)
        found.append((int(blocks[first]), lane + lanes, column + columns))
    return found


def _tell(
    frame: LaneFrame, instruction: Instruction, moment: str, lanes: Lanes, cells: tuple[int, Lanes, Lanes]
) -> None:
    events = frame.batch.space.events
    if events.tensor:
        who = (frame.view.launched, lanes, events.step)
        tell(events.tensor, TensorMoment(*who, instruction, moment, -1, *cells))


def _transfers(word: str, halves: str) -> list[str]:
    every = [
        f"tcgen05.{word}.{shape}.{times}"
        for shape, each in _SHAPES.items()
        for times, count in _TIMES.items()
        if each * count <= 128
    ]
    return [f"{one}{more}.b32" for one in every for more in ("", f".{halves}")]


def _apart(shape: str, operands: list[Operand]) -> int:
    """The literal that says how far the halves of 16x32bx2 are apart."""
    assert len(operands) == (shape == "16x32bx2")
    found = operands[0] if operands else Immediate(0)
    assert isinstance(found, Immediate)
    return found.bits


@operation(*_transfers("ld", "pack::16b"), neutral=_WARPS)
def _load(instruction: Instruction, bind: Binder) -> Run:
    """A warp reaches the quarter of the lanes that its number in the warpgroup says."""
    vector, source, *rest = instruction.operands
    shape, registers = _registers_of(instruction, vector)
    halves = "pack::16b" in instruction.qualifiers
    targets, addresses = [bind.write(one) for one in registers], shared_reader(source, bind)
    offsets = cells_of(shape, len(targets), _apart(shape, rest))

    def run(frame: LaneFrame) -> None:
        rows = np.empty((frame.count, len(targets)), np.uint32)
        cells = _cells(frame, instruction, addresses(frame), shape, offsets, halves)
        for warp, (block, lanes, columns) in enumerate(cells):
            first = warp * WARP
            memory = frame.batch.tensor_cores.memory
            with blamed(first):
                words = memory.read(block, lanes, columns, "tcgen05.ld")
            if halves:
                words = words[:, 0::2] & 0xFFFF | words[:, 1::2] << 16
            rows[first : first + WARP] = words
            who = np.asarray(frame.view.lanes)[first : first + WARP]
            _tell(frame, instruction, "loaded", who, (block, lanes, columns))
        for at, target in enumerate(targets):
            fill(frame.regs[target], np.ascontiguousarray(rows[:, at]))

    return run


@operation(*_transfers("st", "unpack::16b"), neutral=_WARPS)
def _store(instruction: Instruction, bind: Binder) -> Run:
    """The same the other way."""
    target, *rest, vector = instruction.operands
    shape, registers = _registers_of(instruction, vector)
    halves = "unpack::16b" in instruction.qualifiers
    sources, addresses = [bind.read(one, "u4") for one in registers], shared_reader(target, bind)
    offsets = cells_of(shape, len(sources), _apart(shape, rest))

    def run(frame: LaneFrame) -> None:
        rows = np.stack([np.broadcast_to(frame.regs[one], frame.count) for one in sources], 1)
        if halves:
            rows = np.stack([rows & 0xFFFF, rows >> 16], -1).reshape(len(rows), -1)
        cells = _cells(frame, instruction, addresses(frame), shape, offsets, halves)
        for warp, found in enumerate(cells):
            words = rows[warp * WARP : warp * WARP + WARP]
            memory = frame.batch.tensor_cores.memory
            with blamed(warp * WARP):
                memory.write(*found, words, "tcgen05.st")
            who = np.asarray(frame.view.lanes)[warp * WARP : warp * WARP + WARP]
            _tell(frame, instruction, "stored", who, found)
        frame.batch.space.version += 1

    return run


@operation(
    *(f"tcgen05.wait::{word}" for word in ("ld", "st")),
    *(f"tcgen05.fence::{word}_thread_sync" for word in ("before", "after")),
    neutral=_WARPS,
)
def _order(instruction: Instruction, bind: Binder) -> Run:
    """Told to listeners: waits for stores, and fences behind a barrier."""
    assert not instruction.operands
    moments = {"wait::st": "awaited", "fence::after_thread_sync": "fenced"}
    moment = next((moments[word] for word in instruction.qualifiers if word in moments), "")

    def run(frame: LaneFrame) -> None:
        events = frame.batch.space.events
        if moment and events.tensor:
            tell(events.tensor, TensorMoment(frame.view.launched, frame.view.lanes, events.step, instruction, moment))

    return run


# Completion


@operation(
    *(
        f"tcgen05.commit.{group}.mbarrier::arrive::one{space}.b64"
        for group in GROUPS
        for space in ("", ".shared::cluster", f".shared::cluster.{MULTICAST}")
    )
)
def _commit(instruction: Instruction, bind: Binder) -> Run:
    """An arrival at an mbarrier, or at those of blocks of the cluster, when all that the thread began is over."""
    place, *mask = instruction.operands
    assert len(mask) == (MULTICAST in instruction.qualifiers)
    if mask:
        masks, places = mask_reader(mask[0], bind), shared_reader(place, bind)
    else:
        single = barrier_reader(instruction, place, bind)

    def run(frame: LaneFrame) -> None:
        batch = frame.batch
        if mask:
            each = [
                [shared_place(frame, one, at, BARRIER_BYTES, BARRIER_BYTES, "an mbarrier") for one in aims]
                for at, aims in enumerate(aims_of(frame, places(frame), masks(frame)))
            ]
        else:
            each = [[key] for key in single(frame)]
        for position, keys in enumerate(each):
            lane, row = int(frame.view.lanes[position]), batch.shared.shape[1]
            for key in keys:
                with blamed(position):
                    batch.mbarriers.at(key)
            blocks = tuple(key // row for key in keys)
            batch.tensor_cores.issue(lane, instruction, _Arrival(batch, keys), blocks)

    return run


@dataclass(slots=True)
class _Arrival:
    """The end of a commit."""

    batch: Any
    keys: list[int]

    def __call__(self, work: Any) -> None:
        barriers, row = self.batch.mbarriers, self.batch.shared.shape[1]
        phases = [barriers.phase(key) for key in self.keys]
        for key in self.keys:
            barriers.at(key).arrive(1)
        places = tuple((key // row, key % row, phase) for key, phase in zip(self.keys, phases, strict=True))
        self.batch.tensor_cores.report(work, "committed", mbarriers=places)


# Copies from shared memory


_COPIED = {
    "128x256b": (128, 2, ((0, 1, 32),)),
    "4x256b": (4, 2, ((0, 32, 32),)),
    "128x128b": (128, 1, ((0, 1, 32),)),
    "64x128b.warpx2::02_13": (64, 1, ((0, 1, 32), (64, 1, 32))),
    "64x128b.warpx2::01_23": (64, 1, ((0, 1, 64), (32, 1, 64))),
    "32x128b.warpx4": (32, 1, tuple((first, 1, 32) for first in (0, 32, 64, 96))),
}
"""By shape its rows, units of 16 bytes of a row, and of each of the copies that it leaves the first lane, lanes from a
row to the next one, and from 32 rows to the next ones."""
_NARROW = {"b4x16_p64": (4, 2), "b6x16_p32": (6, 1)}
"""Sources of 16 elements and padding in 16 bytes, which become bytes: bits of an element, and bits below it there."""


def unpacked(units: Lanes, bits: int, count: int = 16) -> Lanes:
    """The elements of units of 16 bytes, as many each, as codes in bytes: (units, count)."""
    every = np.unpackbits(units.reshape(-1, ROW_BYTES), axis=1, bitorder="little")[:, : bits * count]
    found: Lanes = every.reshape(len(every), count, bits) @ (1 << np.arange(bits, dtype=np.uint8))
    return found.astype(np.uint8)


def checked_places(places: Lanes, bits: int, name: str, size: int) -> Lanes:
    """The places that a descriptor says. Raises LaneFault for one that points outside shared memory."""
    if reason := refused(bits):
        raise LaneFault(0, f"the descriptor of {name}, {bits:#x}, {reason}")
    low, high = int(places.min()), int(places.max()) + ROW_BYTES
    if low < 0 or high > size:
        text = f"the descriptor of {name}, {bits:#x}, reads bytes {low:#x} to {high:#x} of shared memory"
        raise LaneFault(0, f"{text}: outside the block's {size} bytes")
    return places


@operation(
    *(
        f"tcgen05.cp.{group}.{shape}{narrow}"
        for group in GROUPS
        for shape in _COPIED
        for narrow in ("", *(f".b8x16.{word}" for word in _NARROW))
    )
)
def _copy(instruction: Instruction, bind: Binder) -> Run:
    """Rows of shared memory into columns of tensor memory, in each block of a pair from its own."""
    target, source = instruction.operands
    addresses, descriptors = shared_reader(target, bind), bind.read(source, "u8")
    words = frozenset(instruction.qualifiers)
    shape = next(known for name, known in _COPIED.items() if words.issuperset(name.split(".")))
    narrow = next((_NARROW[word] for word in words if word in _NARROW), None)

    def run(frame: LaneFrame) -> None:
        pairs = (np.broadcast_to(one, frame.count).tolist() for one in (addresses(frame), frame.regs[descriptors]))
        for position, (to, bits) in enumerate(zip(*pairs, strict=True)):
            lane, cores = int(frame.view.lanes[position]), frame.batch.tensor_cores
            block = int(frame.batch.blocks_of(np.array([lane]))[0])
            with blamed(position):
                blocks = cores.blocks_of(block, is_by_pair(instruction))
                act = _Copy(frame.batch, blocks, shape, narrow, to, bits)
                act.check()
            cores.issue(lane, instruction, act, blocks)

    return run


@dataclass(slots=True)
class _Copy:
    """One cp of a thread. shape, narrow: of the tables; to: its address; bits: its descriptor."""

    batch: Any
    blocks: tuple[int, ...]
    shape: tuple[int, int, tuple[tuple[int, int, int], ...]]
    narrow: tuple[int, int] | None
    to: int
    bits: int

    def check(self) -> None:
        """Raise LaneFault for memory that the blocks do not have."""
        self._places()
        for block in self.blocks:
            self.batch.tensor_cores.memory.check(block, *self._cells(), "what tcgen05.cp writes")

    def _places(self) -> Lanes:
        rows, units, _ = self.shape
        found = places_of(self.bits, rows, False)[:, :units]
        return checked_places(found, self.bits, "tcgen05.cp", self.batch.shared_bytes)

    def _cells(self) -> tuple[Lanes, Lanes]:
        """Lanes and columns of the words of each copy, as (copies, rows, words)."""
        (lane, column), (count, units, copies) = split(self.to), self.shape
        row = np.arange(count)
        lanes = np.stack([lane + first + row % 32 * each + row // 32 * further for first, each, further in copies])
        columns = column + np.arange(4 * units) + 0 * lanes[:, :, None]
        return lanes[:, :, None] + 0 * columns, columns

    def __call__(self, work: Any) -> None:
        cores, cells, places = self.batch.tensor_cores, self._cells(), self._places()
        for block in self.blocks:
            rows = read_rows(self.batch, block, places, "what tcgen05.cp reads")
            if self.narrow is not None:
                bits, below = self.narrow
                rows = unpacked(rows, bits) << below
            words = np.ascontiguousarray(rows).view("u4").reshape(1, len(places), -1)
            cores.memory.write(block, *cells, words, "what tcgen05.cp writes")
            where = {"cells": cells[0], "columns": cells[1], "rows": places.reshape(-1)}
            cores.report(work, "multiplied", block=block, **where)
