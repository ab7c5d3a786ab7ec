"""tcgen05: products of matrices whose results lie in tensor memory, its allocation, and copies to and from registers.

What a warp does together (alloc, dealloc, ld, st) takes place in its step, what one thread begins (mma, commit) later
(simulator/run/tensor_cores.py). With cta_group::2 both blocks of a pair hold half of A, B and D. tcgen05.wait and fence
have nothing left to do. No GPU has confirmed any of this: layouts are those of the PTX ISA and of CuTe, sums those of
MMA-Sim.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.isa.bulk import MULTICAST, aims_of, mask_reader
from simulator.isa.matrices import WARP, product, whole_warps
from simulator.isa.mbarriers import barrier_reader
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import BARRIER_BYTES, READERS, shared_place, shared_reader, store_rows
from simulator.memory.descriptors import ROW_BYTES, extent_of, places_of, refused
from simulator.memory.space import LaneFault
from simulator.memory.tensor_memory import LANES, SIZES, split
from simulator.number.products import BITS, Precision
from simulator.observe.events import TensorMoment, tell
from simulator.ptx.ir import Address, Immediate, Instruction, Operand, Vector

GROUPS = ("cta_group::1", "cta_group::2")
_WARPS = "sync aligned"


def _is_pair(instruction: Instruction) -> bool:
    return "cta_group::2" in instruction.qualifiers


def _leaders(frame: LaneFrame, instruction: Instruction) -> list[int]:
    """The first lane of each warp, as positions in the frame."""
    return list(range(0, whole_warps(frame, instruction) * WARP, WARP))


def _uniform(frame: LaneFrame, slot: int, what: str) -> list[int]:
    """The value that all lanes of a warp give, one a warp."""
    return _alike(np.broadcast_to(frame.regs[slot], frame.count).astype(np.int64), what)


def _alike(values: Lanes, what: str) -> list[int]:
    rows = values.reshape(-1, WARP)
    wrong = rows != rows[:, :1]
    if wrong.any():
        raise LaneFault(int(np.argmax(wrong)), f"{what} of tcgen05 differs between lanes of a warp")
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
            found = (block, _checked(wanted[warp], first), _is_pair(instruction), store)
            with _of(first):
                cores.ask(lanes, instruction, *found)

    return run


@contextmanager
def _of(position: int) -> Iterator[None]:
    """What goes wrong is of one lane."""
    try:
        yield
    except LaneFault as fault:
        raise LaneFault(position, fault.message) from None


@operation(*(f"tcgen05.dealloc.{group}.b32" for group in GROUPS), neutral=_WARPS)
def _dealloc(instruction: Instruction, bind: Binder) -> Run:
    """In a pair each block's warp gives back its own."""
    address, columns = (bind.read(one, "u4") for one in instruction.operands)

    def run(frame: LaneFrame) -> None:
        firsts, blocks = _leaders(frame, instruction), frame.batch.blocks_of(frame.view.lanes)
        starts, counts = _uniform(frame, address, "the address"), _uniform(frame, columns, "the number of columns")
        for warp, first in enumerate(firsts):
            count = _checked(counts[warp], first)
            with _of(first):
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
            with _of(first):
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
            with _of(warp * WARP):
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
    assert not instruction.operands
    return lambda frame: None


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
                with _of(position):
                    batch.mbarriers.check(key)
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
            barriers.arrive(key, 1)
        places = tuple((key // row, key % row, phase) for key, phase in zip(self.keys, phases, strict=True))
        self.batch.tensor_cores.report(work, "committed", mbarriers=places)


# Products


KINDS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "bf16"),
    "tf32": ("", "", "tf32"),
    "f8f6f4": ("e4m3", "e5m2"),
    "i8": ("u8", "s8"),
}
"""Types of A and B by their numbers in an instruction's descriptor."""
_RESULTS = ("f16", "f32", "s32")
_DEPTH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """What the 32 bits of an instruction's descriptor say. kinds: types of D, A and B; negates, turned: of A and B;
    turned matrices are those whose rows follow each other."""

    kinds: tuple[str, str, str]
    rows: int
    columns: int
    negates: tuple[bool, bool]
    turned: tuple[bool, bool]
    saturates: bool

    @staticmethod
    def of(bits: int, kind: str, is_pair: bool) -> Shape:
        """Read a descriptor. Raises LaneFault for one that the kind does not have."""
        names = [KINDS[kind][at] if (at := bits >> low & 7) < len(KINDS[kind]) else "" for low in (7, 10)]
        result = _RESULTS[bits >> 4 & 3] if bits >> 4 & 3 < 3 else ""
        rows, columns = (bits >> 24 & 31) * 16, (bits >> 17 & 63) * 8
        told = f"the instruction descriptor {bits:#010x} of .kind::{kind}"
        allowed = {"i8": ("s32",), "tf32": ("f32",)}.get(kind, ("f16", "f32"))
        if not all(names) or result not in allowed:
            listed = ", ".join(one for one in KINDS[kind] if one)
            raise LaneFault(
                0, f"{told} has types that the simulator does not have; it has {listed} into {', '.join(allowed)}"
            )
        if bits & 7 or bits >> 30:
            raise LaneFault(0, f"{told} is of a sparse or shifted matrix, which the simulator does not have")
        unit = 8 if rows == 64 and not is_pair else 16
        if rows not in ((128, 256) if is_pair else (64, 128)) or columns % unit or not unit <= columns <= 256:
            text = f"{told} says {rows} rows and {columns} columns; cta_group::{1 + is_pair} has"
            raise LaneFault(0, f"{text} {'128 or 256' if is_pair else '64 or 128'} rows, and at most 256 columns")
        turned = (bool(bits >> 15 & 1), bool(bits >> 16 & 1))
        if any(turned) and kind == "tf32":
            raise LaneFault(
                0, f"{told} is of transposed matrices of 32-bit elements, which the simulator does not have"
            )
        return Shape(
            (result, names[0], names[1]),
            rows,
            columns,
            (bool(bits >> 13 & 1), bool(bits >> 14 & 1)),
            turned,
            bool(bits >> 3 & 1),
        )

    def cells(self, is_pair: bool) -> tuple[Lanes, Lanes]:
        """Lanes and columns of D in one block, from its address on."""
        row, column = np.arange(self.rows >> is_pair)[:, None], np.arange(self.columns)[None, :]
        if len(row) == LANES:
            return row + 0 * column, column + 0 * row
        if is_pair:
            half = column // (self.columns // 2)
            return row + 64 * half, column - half * (self.columns // 2) + 0 * row
        return row // 16 * 32 + row % 16 + 0 * column, column + 0 * row


@operation(
    *(f"tcgen05.mma.{group}.kind::{kind}" for group in GROUPS for kind in KINDS),
    neutral=" ".join(f"collector::a::{word}" for word in ("fill", "use", "lastuse", "discard")),
)
def _multiply(instruction: Instruction, bind: Binder) -> Run:
    """D = A B + D, or A B, by one thread."""
    d, a, b, shape, *rest = instruction.operands
    mask = rest.pop(0).parts if isinstance(rest[0], Vector) else ()  # type: ignore[union-attr]
    keeps, *scale = rest
    assert len(scale) <= 1
    divides = scale[0].bits if scale and isinstance(scale[0], Immediate) else 0
    kind = next(word for word in instruction.qualifiers if word.startswith("kind::"))[6:]
    assert 0 <= divides < 16
    assert not scale or kind in ("f16", "tf32")
    assert len(mask) in (0, 8 if _is_pair(instruction) else 4)
    is_held = isinstance(a, Address)
    results, right, described = shared_reader(d, bind), bind.read(b, "u8"), bind.read(shape, "u4")
    left: Any = shared_reader(a, bind) if is_held else bind.read(a, "u8")
    predicate = bind.read(keeps, "?")
    hidden = [bind.read(one, "u4") for one in mask]

    def run(frame: LaneFrame) -> None:
        held = left(frame) if is_held else frame.regs[left]
        columns = [results(frame), held, frame.regs[right], frame.regs[described], frame.regs[predicate]]
        columns += [frame.regs[one] for one in hidden]
        rows = zip(*(np.broadcast_to(one, frame.count).tolist() for one in columns), strict=True)
        for position, (to, of_a, of_b, bits, adds, *masked) in enumerate(rows):
            lane, cores = int(frame.view.lanes[position]), frame.batch.tensor_cores
            block = int(frame.batch.blocks_of(np.array([lane]))[0])
            with _of(position):
                blocks = cores.blocks_of(block, _is_pair(instruction))
                found = Shape.of(bits, kind, _is_pair(instruction))
                one = _Product(frame.batch, blocks, found, to, of_a, of_b, is_held, adds, divides, masked)
                one.check()
            cores.issue(lane, instruction, one, blocks)

    return run


@dataclass(slots=True)
class _Product:
    """One mma of a thread. blocks: one, or a pair. d: the address of D; a, b: descriptors, or A's address in tensor
    memory (is_held). masked: bits of lanes of D that stay as they are, 32 a word."""

    batch: Any
    blocks: tuple[int, ...]
    shape: Shape
    d: int
    a: int
    b: int
    is_held: bool
    adds: bool
    divides: int
    masked: list[int]

    @property
    def is_pair(self) -> bool:
        return len(self.blocks) == 2

    def check(self) -> None:
        """Raise LaneFault for memory that the blocks do not have."""
        lanes, columns = self._cells()
        for block in self.blocks:
            self.batch.tensor_cores.memory.check(block, lanes, columns, "D of tcgen05.mma")
        for name in ("B",) if self.is_held else ("A", "B"):
            self._places(name)
        if self.is_held and self.shape.rows >> self.is_pair != LANES:
            raise LaneFault(
                0, "A of tcgen05.mma in tensor memory of fewer than 128 rows a block: the simulator has 128"
            )

    def _cells(self) -> tuple[Lanes, Lanes]:
        lane, column = split(self.d)
        lanes, columns = self.shape.cells(self.is_pair)
        return lane + lanes, column + columns

    def _places(self, name: str) -> Lanes:
        """Where the rows of 16 bytes of A or B are in a block's shared memory."""
        shape, size = self.shape, self.batch.shared_bytes
        side = name == "B"
        bits, rows = (self.b, shape.columns) if side else (self.a, shape.rows)
        if reason := refused(bits):
            raise LaneFault(0, f"the descriptor of {name}, {bits:#x}, {reason}")
        how = (bits, rows >> self.is_pair, shape.turned[side], BITS[shape.kinds[1 + side]] // 8)
        found, (low, high) = places_of(*how), extent_of(*how)
        if low < 0 or high > size:
            text = f"the descriptor of {name}, {bits:#x}, reads bytes {low:#x} to {high:#x} of shared memory"
            raise LaneFault(0, f"{text}: outside the block's {size} bytes")
        return found

    def _read(self, name: str) -> tuple[Lanes, Any]:
        """A or B of all blocks from shared memory, as bits (rows, depth), and its places."""
        batch, side = self.batch, name == "B"
        places, parts = self._places(name), []
        for block in self.blocks:
            units = (places + block * batch.shared.shape[1]) // ROW_BYTES
            if not batch.shared_written.reshape(-1, ROW_BYTES)[units].all():
                raise LaneFault(0, f"{name} of tcgen05.mma in shared memory that was never written (poison)")
            if batch.shared_start >= 0:
                batch.space.settle_at(batch.shared_start + units.reshape(-1) * ROW_BYTES, ROW_BYTES)
            raw = batch.shared.reshape(-1).view("u8").reshape(-1, 2)[units]
            elements = raw.reshape(len(places), -1).view(f"u{BITS[self.shape.kinds[1 + side]] // 8}")
            parts.append(elements.T if self.shape.turned[side] else elements)
        return np.ascontiguousarray(np.concatenate(parts)), places

    def _held(self) -> tuple[Lanes, Any]:
        """A from tensor memory, packed into columns."""
        lane, column = split(self.a)
        cells = (lane + np.arange(LANES)[:, None], column + np.arange(_DEPTH_BYTES // 4)[None, :])
        memory = self.batch.tensor_cores.memory
        words = np.concatenate([memory.read(block, *cells, "A of tcgen05.mma") for block in self.blocks])
        return np.ascontiguousarray(words).view(f"u{BITS[self.shape.kinds[1]] // 8}"), cells

    def __call__(self, work: Any) -> None:
        shape, memory = self.shape, self.batch.tensor_cores.memory
        cells, is_short = self._cells(), shape.kinds[0] == "f16"
        a, of_a = self._held() if self.is_held else self._read("A")
        b, of_b = self._read("B")
        matrices = [a[None], b[None]]
        for at, (negates, kind) in enumerate(zip(shape.negates, shape.kinds[1:], strict=True)):
            if negates and kind[0] not in "su":
                matrices[at] = matrices[at] ^ matrices[at].dtype.type(1 << BITS[kind] - 1)
        former = None
        if self.adds:
            parts = [memory.read(block, *cells, "D of tcgen05.mma") for block in self.blocks]
            former = np.concatenate(parts)[None].astype("u2" if is_short else "u4")
        how = Precision(saturates=shape.saturates, divides=self.divides)
        found = product(matrices[0], matrices[1], former, shape.kinds, how)[0].astype(np.uint32)
        chosen = np.ones(cells[0].shape, np.bool_)
        for at, block in enumerate(self.blocks):
            each = len(found) // len(self.blocks)
            part = found[at * each : (at + 1) * each]
            if self.masked:
                words = np.array(self.masked[4 * at : 4 * at + 4], np.int64)
                chosen = words[cells[0] // 32] >> cells[0] % 32 & 1 == 0
            memory.write(block, cells[0][chosen], cells[1][chosen], part[chosen], "D of tcgen05.mma")
            rows = of_b if self.is_held else np.concatenate([of_a.reshape(-1), of_b.reshape(-1)])
            where = {"cells": cells[0][chosen], "columns": cells[1][chosen], "rows": rows.reshape(-1)}
            taken = of_a if self.is_held else None
            self.batch.tensor_cores.report(work, "multiplied", block=block, taken=taken, **where)
