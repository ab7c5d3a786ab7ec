"""Atomics: atom gives the old value, red does not. Lanes of one step are served in the order of Space.lane_order.

A vector is changed element by element, and so are the halves of a packed type: as a whole it is no single atomic
access. Additions of f32 in global memory flush subnormal operands and results to zero with their sign; those in shared
memory, and those of all other types, keep them (PTX ISA, "atom").
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from simulator.isa.floats import INFINITY
from simulator.isa.memory import ORDER, check_order, element_type, slots_of
from simulator.isa.registry import DTYPES, INTEGER, Binder, LaneFrame, Lanes, Run, fill, operation
from simulator.isa.spaces import READERS, is_in_heaps, is_own, reach, spread
from simulator.isa.switch import add_once, element_of
from simulator.memory.space import LaneFault, exchanged
from simulator.number import numbers
from simulator.ptx.ir import Instruction, Register

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_FORMS = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
}
_CACHE = "L2::cache_hint"
_WIDE = "b128"


def _keys(opcode: str) -> list[str]:
    spaces = ("", "global.", "shared.", "shared::cta.", "shared::cluster.")
    forms = [
        f"{word}.{name}"
        for word, names in _FORMS.items()
        for name in names
        if opcode == "atom" or word not in ("exch", "cas")
    ]
    keys = [
        f"{opcode}.{space}{form}"
        for form in [*forms, *(f"add.noftz.{name}" for name in _HALVES)]
        for space in spaces
        if not (form.endswith("b128") and space == "shared::cluster.")
    ]
    for space in ("", "global."):
        keys += [f"{opcode}.{space}add.{vector}.f32" for vector in ("v2", "v4")]
        for name in _HALVES:
            vectors = ("v2", "v4") if name.endswith("x2") else ("v2", "v4", "v8")
            keys += [f"{opcode}.{space}{word}.noftz.{one}.{name}" for word in ("add", "min", "max") for one in vectors]
    return keys


def _word_of(instruction: Instruction) -> str:
    return next(word for word in instruction.qualifiers if word in _FORMS)


def _of_floats(word: str, name: str, in_global: bool) -> Any:
    """How old and new value of a float type are combined."""
    if name in _HALVES:
        element = element_of(name)
        if word == "add":
            return add_once(element)
        return lambda old, new: numbers.pick_bits(old, new, INFINITY[element], word == "max", propagate=False)
    add = add_once(name)
    if name == "f32" and in_global:
        return lambda old, new: numbers.flush_f32(add(numbers.flush_f32(old), numbers.flush_f32(new)))
    return add


def _increment(old: Lanes, limit: Lanes) -> Lanes:
    return np.where(old >= limit, np.uint32(0), old + np.uint32(1))


def _decrement(old: Lanes, limit: Lanes) -> Lanes:
    return np.where((old == 0) | (old > limit), limit, old - np.uint32(1))


_WHOLE: dict[str, Any] = INTEGER | {
    "inc": _increment,
    "dec": _decrement,
    "exch": lambda old, new: new,
    "cas": lambda old, compared, new: np.where(old == compared, new, old),
}


def _exchange_equal_wide(old: Lanes, compared: Lanes, new: Lanes) -> Lanes:
    """cas of 128 bits: complex numbers only carry them."""
    differ = old.view("u8") != compared.view("u8")
    return np.where(differ.reshape(-1, 2).any(axis=1), old, new)


def combination(word: str, name: str, in_global: bool) -> Any:
    """Return the function from old and given values to new ones of an operation on a PTX type."""
    if name == _WIDE and word == "cas":
        return _exchange_equal_wide
    return _of_floats(word, name, in_global) if name in ("f32", "f64", *_HALVES) else _WHOLE[word]


def _build(instruction: Instruction, bind: Binder, returns: bool) -> Run:
    check_order(instruction)
    word, name = _word_of(instruction), element_type(instruction)
    kind, part = DTYPES[name], "c16" if name == _WIDE else DTYPES[element_of(name)]
    operands = list(instruction.operands)
    wanted = operands.pop(0) if returns else Register("_")
    targets = slots_of(wanted, True, bind, kind) if wanted != Register("_") else None
    space_name = next((one for one in instruction.qualifiers if one.startswith(("global", "shared"))), "")
    space = space_name if space_name == "shared::cluster" else space_name.partition("::")[0]
    addresses = READERS[space](operands.pop(0), bind)
    if _CACHE in instruction.qualifiers:
        operands.pop()
    sources = [slots_of(operand, False, bind, kind) for operand in operands]
    assert len(sources) == (2 if word == "cas" else 1)
    count = len(sources[0])
    functions = [combination(word, name, in_global) for in_global in (False, True)]
    width = np.dtype(kind).itemsize * count

    def run(frame: LaneFrame) -> None:
        columns = []
        for slots in sources:
            matrix = np.empty((frame.count, count), kind)
            for position, slot in enumerate(slots):
                matrix[:, position] = frame.regs[slot].view(kind)
            columns.append(matrix.view(part))
        old = changed_cells(frame, space, addresses(frame), width, part, functions, columns, instruction)
        for position, slot in enumerate(targets or ()):
            if slot is not None:
                fill(frame.regs[slot], np.ascontiguousarray(old.view(kind)[:, position]))

    return run


def changed_cells(
    frame: LaneFrame,
    space: str,
    addresses: Lanes,
    width: int,
    kind: str,
    functions: list[Any],
    columns: list[Lanes],
    instruction: Instruction,
) -> Lanes:
    """Change the cells of each lane, elements of dtype kind side by side, in any state space ("": generic).

    functions: from old and given values to new ones, outside and in global memory. columns: the given values, matrices
    of one row a lane. Returns the old values likewise.
    """
    old = np.empty(columns[0].shape, kind)
    size = np.dtype(kind).itemsize
    if space == "" and not is_in_heaps(addresses):

        def run(some: LaneFrame, space: str, mine: Lanes, lanes: Any) -> None:
            given = [column[lanes] for column in columns]
            old[lanes] = changed_cells(some, space, mine, width, kind, functions, given, instruction)

        spread(frame, addresses, run)
        return old
    heaps = frame.batch.space
    if space in ("", "global"):
        index = heaps.resolve(frame.view, addresses, width, instruction, "atomic").index
        exchange = heaps.exchange
    else:
        if space == "shared::cluster":
            _refuse_pairs(frame, addresses, instruction)
        reached = reach(frame, space, addresses, width, instruction, "atomic")
        index, exchange = reached.index, partial(exchanged, reached.flat)
    function = functions[space in ("", "global")]
    order = heaps.lane_order(frame.count)
    for element in range(columns[0].shape[1]):
        given = [column[:, element] for column in columns]

        def combine(lanes: Lanes, before: Lanes, given: list[Lanes] = given) -> Lanes:
            found: Lanes = function(before, *(one[lanes] for one in given))
            return found

        old[:, element], changed = exchange(index + element * size, kind, combine, order)
        if changed:
            heaps.version += 1
    return old


def _refuse_pairs(frame: LaneFrame, addresses: Lanes, instruction: Instruction) -> None:
    """Raise LaneFault for pairs of halves in another block's shared memory, which an H200 adds there as one integer.

    Seen in 2026-11 with ptxas 13.5 and with the compiler of driver 580.
    """
    kind = element_type(instruction)
    if kind not in ("f16x2", "bf16x2"):
        return
    own = is_own(frame, addresses.astype(np.int64))
    if not own.all():
        text = "of another block's shared memory: GPUs add integers there (seen on an H200), use halves one by one"
        raise LaneFault(int(np.argmin(own)), f"{instruction.opcode} on {kind} {text}")


@operation(*_keys("atom"), neutral=f"{ORDER} {_CACHE}")
def _atom(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=True)


@operation(*_keys("red"), neutral=f"{ORDER} {_CACHE}")
def _red(instruction: Instruction, bind: Binder) -> Run:
    return _build(instruction, bind, returns=False)
