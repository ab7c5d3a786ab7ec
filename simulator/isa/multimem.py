"""multimem.ld_reduce, multimem.st, multimem.red: one address, all replicas. What the switch computes is switch.py's.

The forms are those of the PTX ISA's table; forms() lists them. 8-bit floats need PTX 8.6 and one of FAMILY_TARGETS
(architectures.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.atomic import serve
from simulator.isa.memory import ORDER, check_order, element_type, extend, rows_of, slots_of
from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, operation
from simulator.isa.spaces import address_reader
from simulator.isa.switch import INTEGER, add_once, combine, element_of
from simulator.number.numbers import NAMES8
from simulator.ptx.ir import Instruction

_HALVES = ("f16", "bf16")


def _vectors(names: tuple[str, ...], vectors: str) -> list[str]:
    """Types with each .vec; "1": none."""
    return [name if vector == "1" else f"{vector}.{name}" for name in names for vector in vectors.split()]


def _packed(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(f"{name}x{count}" for name in names)


_SHORT = _vectors(_HALVES, "v2 v4 v8") + _vectors(_packed(_HALVES, 2), "1 v2 v4")
_FP8 = _vectors(NAMES8, "v4 v8") + _vectors(_packed(NAMES8, 2), "v2 v4 v8") + _vectors(_packed(NAMES8, 4), "1 v2 v4")
_SINGLE = _vectors(("f32",), "1 v2 v4")


def _integer_forms() -> list[str]:
    forms = [f"{word}.{name}" for word in ("and", "or", "xor") for name in ("b32", "b64")]
    forms += [f"add.{name}" for name in ("u32", "s32", "u64")]
    return forms + [f"{word}.{name}" for word in ("min", "max") for name in ("u32", "s32", "u64", "s64")]


def _reduce_forms() -> list[str]:
    forms = _integer_forms() + [f"add.{one}" for one in (*_SINGLE, "f64")]
    for ones, accumulator in ((_SHORT, "acc::f32"), (_FP8, "acc::f16")):
        forms += [f"{word}.{one}" for one in ones for word in ("add", f"add.{accumulator}", "min", "max")]
    return forms


def _store_forms() -> list[str]:
    return [*_SINGLE, *_SHORT, *_FP8, "b32", "b64", "u32", "s32", "u64", "s64", "f64"]


def _red_forms() -> list[str]:
    return _integer_forms() + [f"add.{one}" for one in (*_SINGLE, "f64", *_SHORT)]


def _spelled(action: str, forms: list[str]) -> list[str]:
    return [f"multimem.{action}.{form}" for form in forms]


def forms() -> frozenset[str]:
    """All multimem instructions there are, as PTX spells them, without order, scope and .global:
    "multimem.ld_reduce.add.acc::f16.v4.e4m3x4"."""
    parts = (("ld_reduce", _reduce_forms()), ("st", _store_forms()), ("red", _red_forms()))
    return frozenset(form for action, ones in parts for form in _spelled(action, ones))


def _check(instruction: Instruction) -> str:
    """The type that the instruction moves. Raises UnknownInstruction for a wrong order."""
    check_order(instruction)
    return element_type(instruction)


@operation(*_spelled("ld_reduce", _reduce_forms()), neutral=f"{ORDER} global")
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


@operation(*_spelled("st", _store_forms()), neutral=f"{ORDER} global")
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


@operation(*_spelled("red", _red_forms()), neutral=f"{ORDER} global")
def _red(instruction: Instruction, bind: Binder) -> Run:
    """Each replica's cells, element by element, lane after lane: a vector is no single atomic access."""
    name = _check(instruction)
    word = next(one for one in instruction.qualifiers if one in INTEGER)
    element = element_of(name)
    function: Any = add_once(element) if element in ("f32", "f64", *_HALVES) else INTEGER[word]
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
                serve(space, span.index + place * size, kind, _adder(function, values[:, place]))

    return run


def _adder(function: Any, values: Lanes) -> Any:
    return lambda lanes, old: function(old, values[lanes])
