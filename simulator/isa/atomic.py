"""Atomics on global memory: atom gives the old value, red does not. Lanes of one step are served in lane order.

add.f32 flushes subnormal inputs and results to zeros of the same sign, as it does on GPUs (PTX ISA, "atom"; an H100
gives the bits of tests/simulator/isa/vectors_atomic.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.memory import ORDER, address_reader, check_order, element_type
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, fill, operation
from simulator.number import numbers
from simulator.ptx.ir import Instruction, Register

_OPERATIONS: dict[str, Any] = {
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
        keys += [f"{opcode}.{form}", f"{opcode}.global.{form}"]
    return keys


def serve(space: Any, index: Lanes, kind: str, combine: Any) -> Lanes:
    """Read, combine(lanes, old) and write back, lane by lane where addresses meet.

    Returns the old values; counts a change.
    """
    size = np.dtype(kind).itemsize
    cells = space.memory.view(kind)
    position = index // size
    old = np.empty(len(index), kind)
    changed = False
    for now in _turns(position):
        old[now] = cells[position[now]]
        new = combine(now, old[now])
        changed |= bool((new.view(f"u{size}") != old[now].view(f"u{size}")).any())
        cells[position[now]] = new
    if changed:
        space.version += 1
    return old


def _turns(position: Lanes) -> list[Lanes]:
    """Return lanes in turns: the first lane of each cell, then the second of each, and so on."""
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
    addresses = address_reader(operands[0], bind)
    values = [bind.read(operand, kind) for operand in operands[1:]]
    size = np.dtype(kind).itemsize

    def run(frame: LaneFrame) -> None:
        space = frame.batch.space
        span = space.resolve(frame.view, addresses(frame), size, instruction, "atomic")
        sources = [np.broadcast_to(frame.regs[slot].view(kind), frame.count) for slot in values]

        def combine(lanes: Lanes, old: Lanes) -> Lanes:
            if word == "cas":
                return np.where(old == sources[0][lanes], sources[1][lanes], old)
            if kind == "f4":
                flushed = numbers.flush_f32(old) + numbers.flush_f32(sources[0][lanes])
                return numbers.canonical_f32(numbers.flush_f32(flushed))
            result: Lanes = _OPERATIONS[word](old, sources[0][lanes])
            return result

        old = serve(space, span.index, kind, combine)
        if target is not None:
            fill(frame.regs[target], old)

    return run


@operation(*_keys("atom"), neutral=ORDER)
def _atom(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=True)


@operation(*_keys("red"), neutral=ORDER)
def _red(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=False)
