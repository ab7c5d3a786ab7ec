"""wgmma: products of matrices by a warpgroup, whose results four warps hold in their registers; and setmaxnreg.

All threads of a warpgroup carry out such an instruction together (simulator/run/warpgroups.py). A is in registers or in
shared memory, B in shared memory, where descriptors say (simulator/memory/descriptors.py). Shared memory is read and
results are there in the step in which the wgmma is issued.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.matrices import INTEGER_KINDS, KINDS, gathered, product, read_rows, registers_of, scattered
from simulator.isa.registry import Binder, LaneFrame, Lanes, Run, UnknownInstruction, operation
from simulator.memory.descriptors import Descriptor, extent_of, places_of
from simulator.memory.space import LaneFault, blamed, fault_where
from simulator.number.products import BITS, Precision
from simulator.observe.events import ProductMoment, tell
from simulator.observe.lanes import WARPGROUP
from simulator.ptx.ir import Immediate, Instruction, Operand, Register, Vector

ROWS = 64
DEPTHS = {32: 8, 16: 16, 8: 32}
"""The depth of one wgmma, by the bits of an element."""
SHAPES = tuple(f"m64n{columns}k{depth}" for columns in range(8, 257, 8) for depth in DEPTHS.values())
_OF_INTEGERS = (8, 24, *range(16, 257, 16))
"""The numbers of columns that wgmma of integers has."""
_SIGNS = {"f16": 0x8000, "bf16": 0x8000, "tf32": 0x80000000, "e4m3": 0x80, "e5m2": 0x80}
FLOAT8 = Precision(fraction=13, kept=13)
REGISTERS = (24, 256, 8)
"""What setmaxnreg takes: from, to, multiples of."""


def _literals(operands: list[Operand], allowed: tuple[int, ...], instruction: Instruction) -> list[int]:
    """The values of literal operands, as signed numbers."""
    values = [one.bits if isinstance(one, Immediate) else None for one in operands]
    wrong = [one for one in values if one not in allowed]
    if wrong:
        text = f"{instruction.mnemonic} with {wrong[0]} where it takes {' or '.join(map(str, allowed))}"
        raise UnknownInstruction(f"{text}; {instruction.where()}")
    return [one for one in values if one is not None]


def _shape_of(instruction: Instruction, kinds: tuple[str, str, str]) -> int:
    """The number of columns. Raises UnknownInstruction for a shape that the types do not have."""
    shape = next((word for word in instruction.qualifiers if word in SHAPES), "")
    columns, _, depth = shape.removeprefix("m64n").partition("k")
    if not shape or int(depth) != DEPTHS[BITS[kinds[1]]] or (kinds[0] == "s32" and int(columns) not in _OF_INTEGERS):
        raise UnknownInstruction(f"the simulator has no such shape of {instruction.mnemonic}; {instruction.where()}")
    return int(columns)


@operation(
    *(f"wgmma.mma_async.{d}.{a}.{b}" for d, a, b in KINDS),
    *(f"wgmma.mma_async{word}.s32.{a}.{b}" for _, a, b in INTEGER_KINDS for word in ("", ".satfinite")),
    neutral=f"sync aligned {' '.join(SHAPES)}",
)
def _multiply(instruction: Instruction, bind: Binder) -> Run:
    """D = A B + D, or A B."""
    words = instruction.qualifiers
    kinds: Any = tuple(word for word in words if word in BITS)
    columns, bits, of_d = _shape_of(instruction, kinds), BITS[kinds[1]], BITS[kinds[0]]
    d, a, b, keeps, *rest = instruction.operands
    is_held = isinstance(a, Vector)
    signs, is_left, is_right = (1, 1), False, False
    if kinds[0] != "s32":
        signs = tuple(_literals(rest[:2], (1, -1), instruction))  # type: ignore[assignment]
        turned = _literals(rest[2:], (0, 1), instruction)
        assert len(turned) == ((1 if is_held else 2) if bits == 16 else 0)
        is_left, is_right = bool(turned[:-1] and turned[0]), bool(turned and turned[-1])
    else:
        assert not rest
    targets = [bind.write(one) for one in registers_of(d, bind)]
    taken = [bind.read(one, "u4") for one in registers_of(a, bind)] if is_held else []
    assert len(targets) == ROWS * columns * of_d // 32 // WARPGROUP
    assert len(taken) in (0, 4)
    left, right = (-1 if is_held else bind.read(a, "u8")), bind.read(b, "u8")
    sizes = {"u8": [b] if is_held else [a, b], "?": [keeps]}
    for size, some in sizes.items():
        assert all(not isinstance(one, Register) or bind.register_dtype(one) == size for one in some)
    predicate = bind.read(keeps, "?")
    how = Precision(saturates="satfinite" in words) if bits > 8 or kinds[0] == "s32" else FLOAT8

    def run(frame: LaneFrame) -> None:
        groups, batch = frame.count // WARPGROUP, frame.batch
        adds = _uniform(frame, predicate, "scale-d")
        lanes = np.asarray(frame.view.lanes)
        numbers = batch.warpgroups.numbers_of(lanes[::WARPGROUP])
        batch.warpgroups.registers.issue(lanes, numbers, targets, taken, instruction)
        b_bits = _uniform(frame, right, "the descriptor of B")
        if is_held:
            matrix, a_places = gathered(frame, taken, bits, 2, groups), None
        else:
            a_bits = _uniform(frame, left, "the descriptor of A")
            matrix, a_places = _read(frame, a_bits, ROWS, is_left, bits, "A")
        other, b_places = _read(frame, b_bits, columns, is_right, bits, "B")
        _report(frame, instruction, numbers, a_places, b_places)
        matrices: list[Lanes] = [matrix, other]
        for one, (sign, kind) in enumerate(zip(signs, kinds[1:], strict=True)):
            if sign < 0:
                matrices[one] = matrices[one] ^ np.array(_SIGNS[kind], matrices[one].dtype)
        former = gathered(frame, targets, of_d, 2, groups, of_d // 16) if adds.any() else None
        if former is not None and not adds.all():
            former[~adds] = 0
        scattered(frame, targets, product(matrices[0], matrices[1], former, kinds, how), 2, of_d // 16)

    return run


def _uniform(frame: LaneFrame, slot: int, what: str) -> Lanes:
    """The value that all threads of a warpgroup give, one a warpgroup."""
    values = np.broadcast_to(frame.regs[slot], frame.count).reshape(-1, WARPGROUP)
    fault_where(values != values[:, :1], lambda _: f"{what} of wgmma differs between threads of a warpgroup")
    found: Lanes = values[:, 0]
    return found


def _read(
    frame: LaneFrame, descriptors: Lanes, rows: int, is_transposed: bool, bits: int, name: str
) -> tuple[Lanes, list[Lanes]]:
    """A matrix of each warpgroup from shared memory, as bits (warpgroups, rows, depth), and where its rows of 16 bytes
    are within the block's memory."""
    batch = frame.batch
    places = [places_of(one, rows, is_transposed) for one in descriptors.tolist()]
    blocks = batch.blocks_of(np.asarray(frame.view.lanes)[::WARPGROUP])
    raw = []
    for position, (given, block) in enumerate(zip(descriptors.tolist(), blocks.tolist(), strict=True)):
        _check(extent_of(given, rows, is_transposed), given, batch.shared_bytes, position * WARPGROUP, name)
        _check_swizzle(frame, block, places[position].reshape(-1), given, position * WARPGROUP, name)
        with blamed(position * WARPGROUP):
            raw.append(read_rows(batch, block, places[position], f"{name} of wgmma"))
    elements = np.stack(raw).reshape(len(places), len(places[0]), -1).view(f"u{bits // 8}")
    return (np.ascontiguousarray(elements.transpose(0, 2, 1)) if is_transposed else elements), places


def _check(extent: tuple[int, int], bits: int, size: int, position: int, name: str) -> None:
    """Raise LaneFault for a descriptor that points outside a block's memory. extent: the bytes that it reads."""
    low, high = extent
    if low < 0 or high > size:
        one = Descriptor.of(bits)
        text = f"the descriptor of {name}, {bits:#x}, reads bytes {low:#x} to {high:#x} of shared memory (start "
        text += f"{one.start:#x}, leading {one.leading}, stride {one.stride}, swizzle {one.swizzle_bytes})"
        raise LaneFault(position, f"{text}: outside the block's {size} bytes")


def _check_swizzle(frame: LaneFrame, block: int, places: Lanes, bits: int, position: int, name: str) -> None:
    """Raise LaneFault for a swizzle that is not that of the tensor copy which left the matrix."""
    swizzle = Descriptor.of(bits).swizzle_bytes
    found = frame.batch.warpgroups.tiles.other_swizzle(block, places, swizzle, frame.batch.shared[block])
    if found is not None:
        copied, instruction = found
        text = f"the descriptor of {name}, {bits:#x}, has a swizzle of {swizzle} bytes, and what it reads was copied"
        raise LaneFault(position, f"{text} with one of {copied} at PTX line {instruction.line}")


def _report(frame: LaneFrame, instruction: Instruction, numbers: Lanes, a: list[Lanes] | None, b: list[Lanes]) -> None:
    """Tell the listeners what each warpgroup reads until it waits."""
    events = frame.batch.space.events
    if not events.product:
        return
    registers, none = frame.batch.warpgroups.registers, np.zeros((0, 2), np.int64)
    lanes = np.asarray(frame.view.lanes).reshape(-1, WARPGROUP)
    for at, number in enumerate(numbers.tolist()):
        group = int(registers.groups[number])
        matrices = (none if a is None else a[at], b[at])
        who = (frame.view.launched, lanes[at], events.step)
        tell(events.product, ProductMoment(*who, instruction, "issued", group, matrices))


@operation("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", neutral="sync aligned")
def _order(instruction: Instruction, bind: Binder) -> Run:
    """wait_group leaves as many of the latest groups under way as it says."""
    words = instruction.qualifiers
    is_wait = "wait_group" in words
    operands = list(instruction.operands)
    assert len(operands) == is_wait
    allowed = operands[0].bits if is_wait and isinstance(operands[0], Immediate) else 0
    assert not is_wait or (isinstance(operands[0], Immediate) and allowed >= 0)

    def run(frame: LaneFrame) -> None:
        warpgroups, lanes = frame.batch.warpgroups, np.asarray(frame.view.lanes)
        numbers = warpgroups.numbers_of(lanes[::WARPGROUP])
        if is_wait:
            warpgroups.registers.wait(lanes, numbers, allowed, instruction)
        elif "fence" in words:
            warpgroups.registers.fence(numbers)
        else:
            warpgroups.registers.commit(numbers)

    return run


@operation(*(f"setmaxnreg.{word}.u32" for word in ("inc", "dec")), neutral="sync aligned")
def _registers(instruction: Instruction, bind: Binder) -> Run:
    """Registers are not counted here: only what a GPU does not take is refused."""
    (operand,) = instruction.operands
    least, most, unit = REGISTERS
    count = operand.bits if isinstance(operand, Immediate) else 0
    if count % unit or not least <= count <= most:
        text = f"setmaxnreg of {count} registers; it takes a multiple of {unit} from {least} to {most}"
        raise UnknownInstruction(f"{text}; {instruction.where()}")
    return lambda frame: None


def watched(run: Run, instruction: Instruction, sources: list[int], targets: list[int]) -> Run:
    """The function of another instruction that reads or gives registers of wgmma, which has to wait for these."""

    def check(frame: LaneFrame) -> None:
        warpgroups = frame.batch.warpgroups
        warpgroups.registers.touch(warpgroups.numbers_of(np.asarray(frame.view.lanes)), sources, targets, instruction)
        run(frame)

    return check
