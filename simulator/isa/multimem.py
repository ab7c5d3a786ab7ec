"""multimem.ld_reduce, multimem.st, multimem.red: one address, all replicas.

How a switch adds floats is not specified. Two models (fabric.multimem): "exact" sums exactly and rounds once, as was
measured on hardware; "stated" folds in rank order in the precision that the instruction names (.acc, or the type
itself).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator import numbers
from simulator.ir import Instruction
from simulator.isa.atomic import serve
from simulator.isa.memory import ORDER, address_reader, check_order, element_type, extend, rows_of, slots_of
from simulator.isa.registry import DTYPES, Binder, Frame, Lanes, Run, operation

_HALF = {"f16": ("f16", "acc::f32"), "bf16": ("bf16", "acc::f32")}
_INTEGER: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _reduce_keys() -> list[str]:
    forms = [f"{word}.{name}" for word in ("and", "or", "xor") for name in ("b32", "b64")]
    forms += [f"add.{name}" for name in ("u32", "s32", "u64")]
    forms += [f"{word}.{name}" for word in ("min", "max") for name in ("u32", "s32", "u64", "s64")]
    forms += [f"add.{vector}f32" for vector in ("", "v2.", "v4.")] + ["add.f64"]
    for name in ("f16", "bf16"):
        for acc in ("", "acc::f32."):
            forms += [f"add.{vector}{name}" for vector in (f"{acc}v2.", f"{acc}v4.", f"{acc}v8.")]
            forms += [f"add.{acc}{vector}{name}x2" for vector in ("", "v2.", "v4.")]
    return forms


def _with_opcode(action: str, forms: list[str]) -> list[str]:
    return [f"multimem.{action}.{form}" for form in forms]


@operation(*_with_opcode("ld_reduce", _reduce_keys()), neutral=f"{ORDER} global")
def _load_reduce(instruction: Instruction, bind: Binder) -> Run:
    check_order(instruction)
    name = element_type(instruction)
    word = next(one for one in instruction.qualifiers if one in _INTEGER)
    kind = DTYPES[name]
    targets = slots_of(instruction.operands[0], True, bind, kind)
    addresses = address_reader(instruction.operands[1], bind)
    width = np.dtype(kind).itemsize * len(targets)
    accumulate = "acc::f32" in instruction.qualifiers

    def run(frame: Frame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), width, instruction, "reduce")
        parts = [space.gather(span, kind) for span in spans]
        rows = _combine(parts, name, word, accumulate, frame.batch.multimem)
        for position, slot in enumerate(targets):
            extend(frame.regs[slot], rows[:, position], kind)

    return run


def _combine(parts: list[Lanes], name: str, word: str, accumulate: bool, model: str) -> Lanes:
    """The reduction over replicas (rank order) of matrices (lanes, elements), as bits of the PTX type."""
    if name in ("f32", "f64"):
        return _floats(parts, name, model)
    if name.startswith(("f16", "bf16")):
        halves = [np.ascontiguousarray(part).view(np.uint16) for part in parts]
        return _halves(halves, name.startswith("b"), accumulate, model).view(DTYPES[name])
    total = parts[0]
    for part in parts[1:]:
        total = _INTEGER[word](total, part)
    return total


def _floats(parts: list[Lanes], name: str, model: str) -> Lanes:
    if name == "f64" and model == "exact":
        return numbers.canonical_f64(numbers.exact_sum_f64(parts))
    if model == "stated":
        total = parts[0] + parts[0].dtype.type(0)
        for part in parts[1:]:
            total = total + part
        return numbers.canonical_f64(total) if name == "f64" else numbers.canonical_f32(total)
    return numbers.canonical_f32(numbers.exact_sum(parts).astype(np.float32))


def _halves(parts: list[Lanes], brain: bool, accumulate: bool, model: str) -> Lanes:
    widen, narrow = (numbers.bf16_to_f32, numbers.f32_to_bf16) if brain else (numbers.f16_to_f32, numbers.f32_to_f16)
    values = [widen(part) for part in parts]
    if model == "exact":
        return narrow(numbers.to_odd_f32(numbers.exact_sum(values, 8 if brain else 11)))
    total = values[0] + np.float32(0)
    for value in values[1:]:
        total = total + value if accumulate else widen(narrow(total + value))
    return narrow(total)


def _store_keys() -> list[str]:
    forms = [f"{vector}{name}" for name in ("f32", "f16x2", "bf16x2") for vector in ("", "v2.", "v4.")]
    forms += [f"{vector}{name}" for name in ("f16", "bf16") for vector in ("v2.", "v4.", "v8.")]
    return [*forms, "b32", "b64", "u32", "s32", "u64", "s64", "f64"]


@operation(*_with_opcode("st", _store_keys()), neutral=f"{ORDER} global")
def _store(instruction: Instruction, bind: Binder) -> Run:
    check_order(instruction)
    kind = f"u{np.dtype(DTYPES[element_type(instruction)]).itemsize}"
    addresses = address_reader(instruction.operands[0], bind)
    sources = slots_of(instruction.operands[1], False, bind, kind)
    width = np.dtype(kind).itemsize * len(sources)

    def run(frame: Frame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), width, instruction, "broadcast")
        rows = rows_of(frame, sources, kind)
        for span in spans:
            space.scatter(span, rows)

    return run


def _red_keys() -> list[str]:
    forms = [f"{word}.{name}" for word in ("and", "or", "xor") for name in ("b32", "b64")]
    forms += [f"add.{name}" for name in ("u32", "s32", "u64")]
    return forms + [f"{word}.{name}" for word in ("min", "max") for name in ("u32", "s32", "u64", "s64")]


@operation(*_with_opcode("red", _red_keys()), neutral=f"{ORDER} global")
def _red(instruction: Instruction, bind: Binder) -> Run:
    check_order(instruction)
    word = next(one for one in instruction.qualifiers if one in _INTEGER)
    kind = DTYPES[element_type(instruction)]
    addresses = address_reader(instruction.operands[0], bind)
    source = bind.read(instruction.operands[1], kind)
    size = np.dtype(kind).itemsize

    def run(frame: Frame) -> None:
        space = frame.batch.space
        spans = space.resolve_multicast(frame.view, addresses(frame), size, instruction, "red")
        values = np.broadcast_to(frame.regs[source].view(kind), frame.count)
        for span in spans:
            serve(space, span.index, kind, lambda lanes, old: _INTEGER[word](old, values[lanes]))

    return run
