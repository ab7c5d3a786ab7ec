"""tcgen05.mma: products of matrices, of which A and B lie in shared memory (A also in tensor memory) and D in tensor
memory.

With cta_group::2 both blocks of a pair hold half of A, B and D. Block-scaled kinds multiply blocks of elements along
the depth by scale factors, bytes of tensor memory: those of row r of A or B in lane r % 32 of each quarter and
column r / 32. No GPU has confirmed any of this: layouts are those of the PTX ISA and of CuTe, sums those of MMA-Sim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.isa.matrices import product, read_rows
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, operation
from simulator.isa.spaces import shared_reader
from simulator.isa.tcgen05 import GROUPS, checked_places, is_by_pair, unpacked
from simulator.memory.descriptors import DEPTH_BYTES, places_of
from simulator.memory.space import LaneFault, blamed
from simulator.memory.tensor_memory import LANES, split
from simulator.number.products import BITS, SMALL, Precision, multiplied_scaled
from simulator.ptx.ir import Address, Immediate, Instruction, Vector

_NARROW = ("e4m3", "e5m2", "", "e2m3", "e3m2", "e2m1")
KINDS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "bf16"),
    "tf32": ("", "", "tf32"),
    "f8f6f4": _NARROW,
    "i8": ("u8", "s8"),
    "mxf8f6f4": _NARROW,
    "mxf4": ("", "e2m1"),
    "mxf4nvf4": ("", "e2m1"),
}
"""Types of A and B by their numbers in an instruction's descriptor."""
BLOCKS = {
    "mxf8f6f4": {"": 1, "scale_vec::1X": 1, "block32": 1},
    "mxf4": {"": 2, "scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}
"""Scale factors of a row, by kind and by what the instruction says of them."""
_RESULTS = ("f16", "f32", "s32", "")
_ALLOWED = {"i8": ("s32",), "tf32": ("f32",), "f16": ("f16", "f32"), "f8f6f4": ("f16", "f32")}
_QUARTER = 32


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scale factors: how many a row has, their type, and the byte in which they begin, of A and of B."""

    blocks: int
    kind: str
    first: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the 32 bits of an instruction's descriptor say. kinds: types of D, A and B; negates, turned: of A and B;
    turned matrices are those whose rows follow each other; is_packed: 4-bit elements with no padding."""

    kinds: tuple[str, str, str]
    rows: int
    columns: int
    negates: tuple[bool, bool]
    turned: tuple[bool, bool]
    saturates: bool
    is_packed: bool
    scaling: Scaling | None

    @staticmethod
    def of(bits: int, kind: str, is_pair: bool, blocks: int) -> Shape:
        """Read a descriptor; blocks: scale factors of a row. Raises LaneFault for one that the kind does not have."""
        names = [KINDS[kind][at] if (at := bits >> low & 7) < len(KINDS[kind]) else "" for low in (7, 10)]
        result = "f32" if blocks else _RESULTS[bits >> 4 & 3]
        rows, columns = (bits >> 24 & 31) * 16, (bits >> 17 & 63) * 8
        told, allowed = f"the instruction descriptor {bits:#010x} of .kind::{kind}", _ALLOWED.get(kind, ("f32",))
        if not all(names) or result not in allowed:
            text = f"{told} has types that the simulator does not have; it has"
            listed = ", ".join(one for one in KINDS[kind] if one)
            raise LaneFault(0, f"{text} {listed} into {', '.join(allowed)}")
        if bits & 7 or bits >> (31 if blocks else 30):
            text = "sparse matrix or one of 96 elements along the depth" if blocks else "sparse or shifted matrix"
            raise LaneFault(0, f"{told} is of a {text}, which the simulator does not have")
        unit, some = (8 if (rows == 64 or blocks) and not is_pair else 16), (128,) if blocks else (64, 128)
        some = (128, 256) if is_pair else some
        if rows not in some or columns % unit or not unit <= columns <= 256:
            text = f"{told} says {rows} rows and {columns} columns; cta_group::{1 + is_pair} has"
            raise LaneFault(0, f"{text} {' or '.join(map(str, some))} rows, and at most 256 columns")
        turned = (bool(bits >> 15 & 1), bool(bits >> 16 & 1))
        for name, is_turned in zip(names, turned, strict=True):
            if is_turned and (name in SMALL or name == "tf32"):
                raise LaneFault(0, f"{told} is of transposed matrices of {name}, which the simulator does not have")
        negates = (bool(bits >> 13 & 1), bool(bits >> 14 & 1))
        scaling = None
        if blocks:
            scaling = Scaling(blocks, "ue8m0" if bits >> 23 & 1 else "ue4m3", (bits >> 29 & 3, bits >> 4 & 3))
            if scaling.kind == "ue4m3" and (kind != "mxf4nvf4" or blocks != 4):
                raise LaneFault(0, f"{told} has scale factors of ue4m3; {blocks} a row have ue8m0 (bit 23)")
            if wrong := [one for one in scaling.first if one % blocks or one + blocks > 4]:
                raise LaneFault(0, f"{told} has scale factors from byte {wrong[0]} on, and a row has {blocks} of 4")
        kinds, saturates = (result, names[0], names[1]), bool(bits >> 3 & 1) and not blocks
        return Shape(kinds, rows, columns, negates, turned, saturates, kind.startswith("mxf4"), scaling)

    def cells(self, is_pair: bool) -> tuple[Lanes, Lanes]:
        """Lanes and columns of D in one block, from its address on."""
        row, column = np.arange(self.rows >> is_pair)[:, None], np.arange(self.columns)[None, :]
        if len(row) == LANES:
            return row + 0 * column, column + 0 * row
        if is_pair:
            half = column // (self.columns // 2)
            return row + 64 * half, column - half * (self.columns // 2) + 0 * row
        return row // 16 * 32 + row % 16 + 0 * column, column + 0 * row

    def scale_cells(self, side: bool, is_pair: bool) -> tuple[Lanes, Lanes]:
        """Lanes and columns of the scale factors of A or B in one block, as (copies, rows), from their address on: a
        copy in each quarter of the lanes, or of B if D lies in two halves, of each half in two quarters."""
        count = self.columns if side else self.rows >> is_pair
        half = count // 2 if side and is_pair and self.rows == LANES else count
        row, copies = np.arange(count), np.arange(4 if half == count else 2)[:, None]
        lanes = copies * _QUARTER + row // half * 2 * _QUARTER + row % half % _QUARTER
        return lanes, 0 * copies + row % half // _QUARTER


@operation(
    *(f"tcgen05.mma.{group}.kind::{kind}" for group in GROUPS for kind in KINDS if kind not in BLOCKS),
    *(
        ".".join(("tcgen05.mma", group, f"kind::{kind}", "block_scale", *([size] if size else [])))
        for group in GROUPS
        for kind, sizes in BLOCKS.items()
        for size in sizes
    ),
    neutral=" ".join(f"collector::a::{word}" for word in ("fill", "use", "lastuse", "discard")),
)
def _multiply(instruction: Instruction, bind: Binder) -> Run:
    """D = A B + D, or A B, by one thread."""
    d, a, b, shape, *rest = instruction.operands
    words = instruction.qualifiers
    kind = next(word for word in words if word.startswith("kind::"))[6:]
    sizes = BLOCKS.get(kind, {"": 0})
    blocks = next((sizes[word] for word in words if word in sizes), sizes.get("", 0))
    mask = rest.pop(0).parts if isinstance(rest[0], Vector) else ()  # type: ignore[union-attr]
    scales = [shared_reader(rest.pop(0), bind) for _ in range(2 if blocks else 0)]
    keeps, *scale = rest
    assert len(scale) <= 1
    divides = scale[0].bits if scale and isinstance(scale[0], Immediate) else 0
    assert 0 <= divides < 16
    assert not scale or kind in ("f16", "tf32")
    assert len(mask) in (0, 0 if blocks else 8 if is_by_pair(instruction) else 4)
    is_held = isinstance(a, Address)
    results, right, described = shared_reader(d, bind), bind.read(b, "u8"), bind.read(shape, "u4")
    left: Any = shared_reader(a, bind) if is_held else bind.read(a, "u8")
    predicate = bind.read(keeps, "?")
    hidden = [bind.read(one, "u4") for one in mask]

    def run(frame: LaneFrame) -> None:
        held = left(frame) if is_held else frame.regs[left]
        columns = [results(frame), held, frame.regs[right], frame.regs[described], frame.regs[predicate]]
        columns += [one(frame) for one in scales] + [frame.regs[one] for one in hidden]
        rows = zip(*(np.broadcast_to(one, frame.count).tolist() for one in columns), strict=True)
        for position, (to, of_a, of_b, bits, adds, *more) in enumerate(rows):
            lane, cores = int(frame.view.lanes[position]), frame.batch.tensor_cores
            block = int(frame.batch.blocks_of(np.array([lane]))[0])
            with blamed(position):
                pair = cores.blocks_of(block, is_by_pair(instruction))
                found = Shape.of(bits, kind, is_by_pair(instruction), blocks)
                one = _Product(frame.batch, pair, found, to, of_a, of_b, is_held, adds, divides, more)
                one.check()
            cores.issue(lane, instruction, one, pair)

    return run


@dataclass(slots=True)
class _Product:
    """One mma of a thread. blocks: one, or a pair. d: the address of D; a, b: descriptors, or A's address in tensor
    memory (is_held). more: of scaled ones the addresses of the scale factors of A and B, of others bits of lanes of D
    that stay as they are, 32 a word."""

    batch: Any
    blocks: tuple[int, ...]
    shape: Shape
    d: int
    a: int
    b: int
    is_held: bool
    adds: bool
    divides: int
    more: list[int]

    @property
    def is_pair(self) -> bool:
        return len(self.blocks) == 2

    def check(self) -> None:
        """Raise LaneFault for memory that the blocks do not have."""
        memory = self.batch.tensor_cores.memory
        for block in self.blocks:
            memory.check(block, *self._cells(), "D of tcgen05.mma")
            for side in (0, 1) if self.shape.scaling else ():
                memory.check(block, *self._scale_cells(side), _scale_name(side))
        for name in ("B",) if self.is_held else ("A", "B"):
            self._places(name)
        if self.is_held and self.shape.rows >> self.is_pair != LANES:
            text = "A of tcgen05.mma in tensor memory of fewer than 128 rows a block: the simulator has 128"
            raise LaneFault(0, text)

    def _cells(self) -> tuple[Lanes, Lanes]:
        lane, column = split(self.d)
        lanes, columns = self.shape.cells(self.is_pair)
        return lane + lanes, column + columns

    def _scale_cells(self, side: int) -> tuple[Lanes, Lanes]:
        """The upper 2 bits of an address say what the instruction's descriptor says, too."""
        lane, column = split(self.more[side] & (1 << 30) - 1)
        lanes, columns = self.shape.scale_cells(bool(side), self.is_pair)
        return lane + lanes, column + columns

    def _places(self, name: str) -> Lanes:
        """Where the rows of 16 bytes of A or B are in a block's shared memory."""
        shape, side = self.shape, name == "B"
        bits, rows = (self.b, shape.columns) if side else (self.a, shape.rows)
        element_bytes = BITS[shape.kinds[1 + side]] // 8
        found = places_of(bits, rows >> self.is_pair, shape.turned[side], element_bytes)
        return checked_places(found, bits, name, self.batch.shared_bytes)

    def _read(self, name: str) -> tuple[Lanes, Any]:
        """A or B of all blocks from shared memory, as bits (rows, depth), and its places."""
        side = name == "B"
        places, parts = self._places(name), []
        kind = self.shape.kinds[1 + side]
        for block in self.blocks:
            units = read_rows(self.batch, block, places, f"{name} of tcgen05.mma")
            if kind in SMALL:
                units = unpacked(units, SMALL[kind], 32 if self.shape.is_packed else 16)
            elements = units.reshape(len(places), -1).view(f"u{BITS[kind] // 8}")
            parts.append(elements.T if self.shape.turned[side] else elements)
        return np.ascontiguousarray(np.concatenate(parts)), places

    def _held(self) -> tuple[Lanes, Any]:
        """A from tensor memory, packed into columns."""
        lane, column = split(self.a)
        cells = (lane + np.arange(LANES)[:, None], column + np.arange(DEPTH_BYTES // 4)[None, :])
        memory, kind = self.batch.tensor_cores.memory, self.shape.kinds[1]
        words = np.concatenate([memory.read(block, *cells, "A of tcgen05.mma") for block in self.blocks])
        found = np.ascontiguousarray(words).view(f"u{BITS[kind] // 8}")
        if self.shape.is_packed:
            found = unpacked(found, SMALL[kind], 32).reshape(len(found), -1)
        elif kind in SMALL:  # as tcgen05.cp leaves them
            found = found >> (2 if kind == "e2m1" else 1) & (1 << SMALL[kind]) - 1
        return found, cells

    def _scales(self, side: int) -> Lanes:
        """Scale factors of A or B, as bits (rows, blocks). Each quarter of the lanes, and each block of a pair, has a
        copy of its own."""
        scaling, memory = self.shape.scaling, self.batch.tensor_cores.memory
        assert scaling is not None
        cells, name = self._scale_cells(side), _scale_name(side)
        copies = np.stack([memory.read(block, *cells, name) for block in self.blocks])  # blocks, copies, rows
        wanted = copies >> 8 * scaling.first[side] & (1 << 8 * scaling.blocks) - 1
        wrong = wanted != (wanted[:1, :1] if side else wanted[:, :1])
        if wrong.any():
            _, copy, row = (int(one[0]) for one in np.nonzero(wrong))
            where = f"lane {cells[0][copy, row]}, column {cells[1][copy, row]}"
            raise LaneFault(0, f"{name} differ from their copy at lane {cells[0][0, row]}: {where}")
        words = wanted[0, 0] if side else wanted[:, 0].reshape(-1)
        found: Lanes = (words[:, None] >> 8 * np.arange(scaling.blocks) & 0xFF).astype(np.uint8)
        if scaling.kind == "ue4m3" and (found >> 7).any():
            raise LaneFault(0, f"{name} of ue4m3 have bit 7, which is 0")
        return found

    def __call__(self, work: Any) -> None:
        shape, memory = self.shape, self.batch.tensor_cores.memory
        cells, is_short = self._cells(), shape.kinds[0] == "f16"
        a, of_a = self._held() if self.is_held else self._read("A")
        b, of_b = self._read("B")
        matrices = [a[None], b[None]]
        for at, (negates, kind) in enumerate(zip(shape.negates, shape.kinds[1:], strict=True)):
            if negates and kind[0] not in "su":
                matrices[at] = matrices[at] ^ matrices[at].dtype.type(1 << SMALL.get(kind, BITS[kind]) - 1)
        former = None
        if self.adds:
            parts = [memory.read(block, *cells, "D of tcgen05.mma") for block in self.blocks]
            former = np.concatenate(parts)[None].astype("u2" if is_short else "u4")
        taken = [of_a] if self.is_held else []
        if shape.scaling:
            scales = (self._scales(0)[None], self._scales(1)[None])
            found = multiplied_scaled((matrices[0], matrices[1]), scales, former, shape.kinds, shape.scaling.kind)[0]
            taken += [self._scale_cells(side) for side in (0, 1)]
        else:
            how = Precision(saturates=shape.saturates, divides=self.divides)
            found = product(matrices[0], matrices[1], former, shape.kinds, how)[0].astype(np.uint32)
        chosen, each = np.ones(cells[0].shape, np.bool_), len(found) // len(self.blocks)
        rows = of_b.reshape(-1) if self.is_held else np.concatenate([of_a.reshape(-1), of_b.reshape(-1)])
        for at, block in enumerate(self.blocks):
            part = found[at * each : (at + 1) * each]
            if self.more and not shape.scaling:
                words = np.array(self.more[4 * at : 4 * at + 4], np.int64)
                chosen = words[cells[0] // 32] >> cells[0] % 32 & 1 == 0
            memory.write(block, cells[0][chosen], cells[1][chosen], part[chosen], "D of tcgen05.mma")
            where = {"cells": cells[0][chosen], "columns": cells[1][chosen], "rows": rows}
            self.batch.tensor_cores.report(work, "multiplied", block=block, taken=_joined(taken), **where)


def _scale_name(side: int) -> str:
    return f"scale factors of {'AB'[side]} of tcgen05.mma"


def _joined(cells: list[tuple[Lanes, Lanes]]) -> tuple[Lanes, Lanes] | None:
    """Lanes and columns of all cells, None without any."""
    every = [[np.ravel(part) for part in np.broadcast_arrays(*one)] for one in cells]
    return (np.concatenate([one[0] for one in every]), np.concatenate([one[1] for one in every])) if every else None
