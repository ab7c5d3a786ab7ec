"""multimem.ld_reduce, multimem.st, multimem.red: one address, all replicas. What the switch computes is switch.py's.

The forms are those of cases/multimem.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cases.multimem import FORMS
from simulator.isa.memory import ORDER, check_order, element_type, extend, rows_of, slots_of
from simulator.isa.registry import DTYPES, INTEGER, Binder, LaneFrame, Lanes, Run, operation
from simulator.isa.spaces import address_reader
from simulator.isa.switch import add_once, combine, element_of
from simulator.ptx.ir import Instruction


def _forms(action: str) -> list[str]:
    return [form.key for form in FORMS if form.action == action]


def _check(instruction: Instruction) -> str:
    """The type that the instruction moves. Raises UnknownInstruction for a wrong order."""
    check_order(instruction)
    return element_type(instruction)


@operation(*_forms("ld_reduce"), neutral=f"{ORDER} global")
def _load_reduce(instruction: Instruction, bind: Binder) -> Run:
    name = _check(instruction)
    word = next(one for one in instruction.qualifiers if one in INTEGER)
    accumulator = next((one.removeprefix("acc::") for one in instruction.qualifiers if one.startswith("acc::")), "")
    kind = DTYPES[name]
    targets = slots_of(instruction.operands[0], True, bind, kind)
    addresses = address_reader(instruction.operands[1], bind)
    width = np.dtype(kind).itemsize * len(targets)

    def run(frame: LaneFrame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), width, instruction, "reduce")
        parts = [space.gather(span, kind) for span in spans]
        rows = combine(parts, name, word, accumulator, frame.batch.multimem)
        for position, slot in enumerate(targets):
            extend(frame.regs[slot], rows[:, position], kind)

    return run


@operation(*_forms("st"), neutral=f"{ORDER} global")
def _store(instruction: Instruction, bind: Binder) -> Run:
    kind = f"u{np.dtype(DTYPES[_check(instruction)]).itemsize}"
    addresses = address_reader(instruction.operands[0], bind)
    sources = slots_of(instruction.operands[1], False, bind, kind)
    width = np.dtype(kind).itemsize * len(sources)

    def run(frame: LaneFrame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), width, instruction, "broadcast")
        rows = rows_of(frame, sources, kind)
        for span in spans:
            space.scatter(span, rows)

    return run


@operation(*_forms("red"), neutral=f"{ORDER} global")
def _red(instruction: Instruction, bind: Binder) -> Run:
    """Each replica's cells, element by element, lane after lane: a vector is no single atomic access."""
    name = _check(instruction)
    word = next(one for one in instruction.qualifiers if one in INTEGER)
    element = element_of(name)
    function: Any = add_once(element) if element in ("f32", "f64", "f16", "bf16") else INTEGER[word]
    unsigned = f"u{np.dtype(DTYPES[name]).itemsize}"
    kind = DTYPES[element]
    size = np.dtype(kind).itemsize
    addresses = address_reader(instruction.operands[0], bind)
    sources = slots_of(instruction.operands[1], False, bind, unsigned)
    width = np.dtype(unsigned).itemsize * len(sources)

    def run(frame: LaneFrame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), width, instruction, "red")
        values = rows_of(frame, sources, unsigned).view(kind)
        for span in spans:
            for place in range(values.shape[1]):
                index, change = span.index + place * size, _adder(function, values[:, place])
                space.version += space.exchange(index, kind, change, space.lane_order(frame.count))[1]

    return run


def _adder(function: Any, values: Lanes) -> Any:
    return lambda lanes, old: function(old, values[lanes])
