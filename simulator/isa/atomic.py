"""Atomics: atom gives the old value, red does not. Lanes of one step are served in lane order."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.memory import ORDER, check_order, element_type
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, fill, operation
from simulator.isa.spaces import READERS, is_in_heaps, reach, spread
from simulator.number import numbers
from simulator.ptx.ir import Instruction, Register

_INTEGER_OPERATIONS: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
}
_FORMS = {
    "add": ("u32", "s32", "u64", "f32"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b32", "b64"),
}
_KEYS = [f"{word}.{name}" for word, names in _FORMS.items() for name in names]


def _keys(opcode: str) -> list[str]:
    keys = []
    for form in _KEYS:
        word = form.split(".")[0]
        if opcode == "red" and word in ("exch", "cas"):
            continue
        keys += [f"{opcode}.{form}", *(f"{opcode}.{space}.{form}" for space in ("global", "shared", "shared::cta"))]
    return keys


def serve(space: Any, index: Lanes, kind: str, combine: Any) -> Lanes:
    """Read, combine(lanes, old) and write back, lane by lane where addresses meet.

    Returns the old values; counts a change.
    """
    old, changed = exchanged(space.memory, index, kind, combine)
    if changed:
        space.version += 1
    return old


def exchanged(flat: Lanes, index: Lanes, kind: str, combine: Any) -> tuple[Lanes, bool]:
    """The same on any bytes; says whether they changed."""
    size = np.dtype(kind).itemsize
    cells = flat.view(kind)
    position = index // size
    old = np.empty(len(index), kind)
    changed = False
    for now in _turns(position):
        old[now] = cells[position[now]]
        new = combine(now, old[now])
        changed |= bool((new.view(f"u{size}") != old[now].view(f"u{size}")).any())
        cells[position[now]] = new
    return old, changed


def _turns(position: Lanes) -> list[Lanes]:
    """Lanes in turns: those whose cell nobody before them has, those with one before them, and so on."""
    order = np.argsort(position, kind="stable")
    ordered = position[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    if len(starts) == len(position):
        return [order]
    turn = np.arange(len(position)) - np.repeat(starts, np.diff([*starts, len(position)]))
    return np.split(order[np.argsort(turn, kind="stable")], np.cumsum(np.bincount(turn))[:-1])


def _operation_of(instruction: Instruction) -> str:
    return next(word for word in instruction.qualifiers if word in _FORMS)


def _build(instruction: Instruction, bind: Binder, returns: bool) -> Run:
    check_order(instruction)
    word = _operation_of(instruction)
    kind = DTYPES[element_type(instruction)]
    operands = list(instruction.operands)
    wanted = operands.pop(0) if returns else Register("_")
    target = None if wanted == Register("_") else bind.write(wanted)
    space_name = next((one for one in instruction.qualifiers if one.startswith(("global", "shared"))), "")
    addresses = READERS[space_name.partition("::")[0]](operands[0], bind)
    values = [bind.read(operand, kind) for operand in operands[1:]]

    def run(frame: LaneFrame) -> None:
        places = addresses(frame)
        sources = [np.broadcast_to(frame.regs[slot].view(kind), frame.count) for slot in values]

        def combine(lanes: Lanes, old: Lanes) -> Lanes:
            if word == "cas":
                return np.where(old == sources[0][lanes], sources[1][lanes], old)
            result: Lanes = _INTEGER_OPERATIONS[word](old, sources[0][lanes])
            return numbers.canonical_f32(result) if kind == "f4" else result

        old = changed_cells(frame, space_name.partition("::")[0], places, kind, combine, instruction)
        if target is not None:
            fill(frame.regs[target], old)

    return run


def changed_cells(
    frame: LaneFrame, space: str, addresses: Lanes, kind: str, combine: Any, instruction: Instruction
) -> Lanes:
    """Change one cell a lane in any state space ("": generic) and return the old values; combine as in serve."""
    size = np.dtype(kind).itemsize
    if space == "global" or (space == "" and is_in_heaps(addresses)):
        heaps = frame.batch.space
        span = heaps.resolve(frame.view, addresses, size, instruction, "atomic")
        return serve(heaps, span.index, kind, combine)
    if space:
        reached = reach(frame, space, addresses, size, instruction, "atomic")
        return exchanged(reached.flat, reached.index, kind, combine)[0]
    old = np.empty(frame.count, kind)

    def run(some: LaneFrame, space: str, mine: Lanes, lanes: Any) -> None:
        positions = np.arange(frame.count)[lanes]
        old[lanes] = changed_cells(
            some, space, mine, kind, lambda turn, before: combine(positions[turn], before), instruction
        )

    spread(frame, addresses, run)
    return old


@operation(*_keys("atom"), neutral=ORDER)
def _atom(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=True)


@operation(*_keys("red"), neutral=ORDER)
def _red(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=False)
