"""Matrices that a warp holds in its registers: loads and stores of 8 x 8 elements of 16 bits, transposition, mma.sync.

All 32 lanes of a warp carry out such an instruction together (simulator/run/meetings.py). Of a matrix of 8 rows lane l
holds, in a register, row l / 4 and as many neighbouring columns as the register has elements, from l % 4 times their
number on. Larger matrices are blocks of these: A and D of mma.sync have one or two below each other, A and B one or two
beside each other along the depth, which a register's elements go along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, fill, operation
from simulator.isa.spaces import READERS, load_rows, store_rows
from simulator.memory.space import LaneFault, blamed
from simulator.number.products import BITS, Precision, multiplied, multiplied_as_halves, multiplied_integers
from simulator.ptx.ir import Instruction, Operand, Register, Vector

WARP = 32
ROW_BYTES = 16
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_WORDS = f"sync aligned m8n8 trans shared shared::cta {' '.join(_COUNTS)}"


def registers_of(operand: Operand, bind: Binder) -> tuple[Operand, ...]:
    """The registers of a vector, or the one, of 32 bits."""
    found = operand.parts if isinstance(operand, Vector) else (operand,)
    assert all(not isinstance(one, Register) or bind.register_dtype(one) == "u4" for one in found)
    return found


def whole_warps(frame: LaneFrame, instruction: Instruction) -> int:
    """Return how many warps carry out an instruction. Raises LaneFault for one of which some lanes do not."""
    lanes = np.asarray(frame.view.lanes)
    places = lanes % frame.view.launched.block % WARP
    if frame.count % WARP or (places.reshape(-1, WARP) != np.arange(WARP)).any():
        _, firsts, counts = np.unique(lanes - places, return_index=True, return_counts=True)
        part = int(np.argmax(counts < WARP))
        text = f"{instruction.opcode} by a part of a warp: all {WARP} lanes carry it out, and {counts[part]} came"
        raise LaneFault(int(firsts[part]), text)
    return frame.count // WARP


# Loads and stores


def _count_of(instruction: Instruction) -> int:
    """How many matrices are moved."""
    words = instruction.qualifiers
    counts = [_COUNTS[word] for word in words if word in _COUNTS]
    if len(counts) != 1 or "m8n8" not in words or {"shared", "shared::cta"} <= set(words):
        raise UnknownInstruction(f"the simulator has no such shape of {instruction.mnemonic}; {instruction.where()}")
    return counts[0]


def _matrices(instruction: Instruction, vector: Operand, count: int, bind: Binder) -> tuple[Operand, ...]:
    registers = registers_of(vector, bind)
    if len(registers) != count:
        raise UnknownInstruction(
            f"{len(registers)} registers for {instruction.mnemonic}, which takes {count}; {instruction.where()}"
        )
    return registers


def _rows_of(frame: LaneFrame, addresses: Any, count: int) -> tuple[LaneFrame, Lanes, Lanes]:
    """The lanes that give addresses of rows, as a frame, and their positions and addresses: of each warp the first 8
    for each matrix."""
    given = np.flatnonzero(np.arange(frame.count) % WARP < 8 * count)
    found = np.asarray(addresses(frame))
    return frame.batch.narrow(frame, given, []), given, np.broadcast_to(found, frame.count)[given]


def _space_of(instruction: Instruction) -> str:
    return "shared" if any(word.startswith("shared") for word in instruction.qualifiers) else ""


@operation("ldmatrix.b16", neutral=_WORDS)
def _load_matrices(instruction: Instruction, bind: Binder) -> Run:
    """Each matrix into a register of each lane; rows of 16 bytes lie where lanes say."""
    vector, address = instruction.operands
    count = _count_of(instruction)
    targets = [bind.write(one) for one in _matrices(instruction, vector, count, bind)]
    space, is_transposed = _space_of(instruction), "trans" in instruction.qualifiers
    addresses = READERS[space](address, bind)

    def run(frame: LaneFrame) -> None:
        warps = whole_warps(frame, instruction)
        some, given, places = _rows_of(frame, addresses, count)
        with blamed(given):
            rows = load_rows(some, space, places, ROW_BYTES, "u2", instruction)
        matrices = rows.reshape(warps, count, 8, 8)
        if is_transposed:
            matrices = matrices.transpose(0, 1, 3, 2)
        words = np.ascontiguousarray(matrices).view("u4").reshape(warps, count, WARP)
        for number, target in enumerate(targets):
            fill(frame.regs[target], words[:, number].reshape(-1))

    return run


@operation("stmatrix.b16", neutral=_WORDS)
def _store_matrices(instruction: Instruction, bind: Binder) -> Run:
    """The same the other way."""
    address, vector = instruction.operands
    count = _count_of(instruction)
    sources = [bind.read(one, "u4") for one in _matrices(instruction, vector, count, bind)]
    space, is_transposed = _space_of(instruction), "trans" in instruction.qualifiers
    addresses = READERS[space](address, bind)

    def run(frame: LaneFrame) -> None:
        warps = whole_warps(frame, instruction)
        words = np.stack([np.broadcast_to(frame.regs[one], frame.count).reshape(warps, WARP) for one in sources], 1)
        matrices = np.ascontiguousarray(words).view("u2").reshape(warps, count, 8, 8)
        if is_transposed:
            matrices = matrices.transpose(0, 1, 3, 2)
        some, given, places = _rows_of(frame, addresses, count)
        with blamed(given):
            store_rows(some, space, places, np.ascontiguousarray(matrices).reshape(-1, 8), instruction)

    return run


@operation("movmatrix.m8n8.trans.b16", neutral="sync aligned")
def _transpose(instruction: Instruction, bind: Binder) -> Run:
    """A matrix in registers, transposed."""
    (to,), (of,) = (registers_of(one, bind) for one in instruction.operands)
    target, source = bind.write(to), bind.read(of, "u4")

    def run(frame: LaneFrame) -> None:
        warps = whole_warps(frame, instruction)
        matrices = np.broadcast_to(frame.regs[source], frame.count).copy().view("u2").reshape(warps, 8, 8)
        fill(frame.regs[target], np.ascontiguousarray(matrices.transpose(0, 2, 1)).view("u4").reshape(-1))

    return run


# Products


def read_rows(batch: Any, block: int, places: Lanes, what: str) -> Lanes:
    """Return rows of 16 bytes of a block's shared memory as bytes, (*places, 16). Raises LaneFault for poison."""
    units = (places + block * batch.shared.shape[1]) // ROW_BYTES
    if not batch.shared_written.reshape(-1, ROW_BYTES)[units].all():
        raise LaneFault(0, f"{what} in shared memory that was never written (poison)")
    if batch.shared_start >= 0:
        batch.space.settle_at(batch.shared_start + units.reshape(-1) * ROW_BYTES, ROW_BYTES)
    found: Lanes = batch.shared.reshape(-1, ROW_BYTES)[units]
    return found


def gathered(frame: LaneFrame, slots: list[int], bits: int, row_blocks: int, groups: int, beside: int = 1) -> Lanes:
    """The matrices that the lanes of groups of warps hold, as bits (groups, rows, columns).

    bits: of an element. beside: how many registers hold neighbouring columns, 2 in D of 32-bit elements. The warps of a
    group have rows below each other."""
    words = np.stack([np.broadcast_to(frame.regs[slot], frame.count) for slot in slots])
    columns, warps = len(slots) // (row_blocks * beside), frame.count // groups // WARP
    held = words.view(f"u{bits // 8}").reshape(columns, row_blocks, beside, groups, warps, 8, 4, 32 // bits)
    found: Lanes = held.transpose(3, 4, 1, 5, 0, 6, 2, 7).reshape(groups, warps * row_blocks * 8, -1)
    return found


def scattered(frame: LaneFrame, slots: list[int], values: Lanes, row_blocks: int, beside: int = 1) -> None:
    """Give the rows of matrices to the lanes' registers, see gathered."""
    columns, warps = len(slots) // (row_blocks * beside), values.shape[1] // (row_blocks * 8)
    held = values.reshape(len(values), warps, row_blocks, 8, columns, 4, beside, 4 // values.itemsize)
    words = np.ascontiguousarray(held.transpose(4, 2, 6, 0, 1, 3, 5, 7)).view("u4").reshape(len(slots), -1)
    for slot, word in zip(slots, words, strict=True):
        fill(frame.regs[slot], word)


FLOATS8 = ("e4m3", "e5m2")
INTEGERS = ("s8", "u8")
KINDS = (
    ("f16", "f16", "f16"),
    ("f32", "f16", "f16"),
    ("f32", "bf16", "bf16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for d in ("f16", "f32") for a in FLOATS8 for b in FLOATS8),
)
"""Types of D and C, of A and of B, of floats."""
INTEGER_KINDS = tuple(("s32", a, b) for a in INTEGERS for b in INTEGERS)


def product(a: Lanes, b: Lanes, c: Lanes | None, kinds: tuple[str, str, str], how: Precision) -> Lanes:
    """Bits of D, as numbers.products says. how.saturates is of integers."""
    if kinds[0] != "s32":
        return multiplied(a, b, c, kinds, how)
    left, right = (one.view("i1") if kind == "s8" else one for one, kind in zip((a, b), kinds[1:], strict=True))
    return multiplied_integers(left, right, c, how.saturates)


_SHAPES = {
    "m16n8k4": ("tf32",),
    "m16n8k8": ("f16", "bf16", "tf32"),
    "m16n8k16": ("f16", "bf16", *FLOATS8, *INTEGERS),
    "m16n8k32": (*FLOATS8, *INTEGERS),
    "m8n8k16": INTEGERS,
}
"""The shapes of mma.sync, and the types of A that each is for."""


def _size_of(shape: str) -> tuple[int, int, int]:
    rows, _, rest = shape[1:].partition("n")
    columns, _, depth = rest.partition("k")
    return int(rows), int(columns), int(depth)


@operation(
    *(f"mma.{d}.{a}.{b}.{d}" for d, a, b in KINDS),
    *(f"mma{word}.s32.{a}.{b}.s32" for _, a, b in INTEGER_KINDS for word in ("", ".satfinite")),
    neutral=f"sync aligned row col {' '.join(_SHAPES)}",
)
def _multiply(instruction: Instruction, bind: Binder) -> Run:
    """D = A B + C of one warp."""
    words = instruction.qualifiers
    kinds: Any = tuple(word for word in words if word in BITS)[:3]
    shape = next((word for word in words if word in _SHAPES), "")
    if kinds[1] not in _SHAPES.get(shape, ()) or "row.col" not in instruction.mnemonic:
        raise UnknownInstruction(f"the simulator has no such shape of {instruction.mnemonic}; {instruction.where()}")
    rows, columns, depth = _size_of(shape)
    bits, of_d = BITS[kinds[1]], BITS[kinds[0]]
    counts = [rows * columns * of_d, rows * depth * bits, columns * depth * bits, rows * columns * of_d]
    d, a, b, c = (
        _matrices(instruction, one, count // 32 // WARP, bind)
        for one, count in zip(instruction.operands, counts, strict=True)
    )
    targets = [bind.write(one) for one in d]
    left, right, rest = ([bind.read(one, "u4") for one in some] for some in (a, b, c))
    how = Precision(saturates="satfinite" in words)
    beside, blocks = of_d // 16, rows // 8
    multiply: Any = product if kinds[1] not in FLOATS8 else multiplied_as_halves
    more = (how,) if multiply is product else ()

    def run(frame: LaneFrame) -> None:
        warps = whole_warps(frame, instruction)
        matrices = (
            gathered(frame, left, bits, blocks, warps),
            gathered(frame, right, bits, 1, warps),
            gathered(frame, rest, of_d, blocks, warps, beside),
        )
        scattered(frame, targets, multiply(*matrices, kinds, *more), blocks, beside)

    return run
