"""Float arithmetic and minima. 16-bit floats are computed from their bits, alone or two to a word.

All results are rounded once, to nearest even, subnormals kept; a NaN that comes out is PTX's canonical one, of sums
and products of f64 what hardware gives. min and max order -0 below +0; without .NaN a NaN counts for
nothing beside a number, with it NaN wins (f64 has no .NaN).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from simulator.isa.registry import DTYPES, Binder, LaneFrame, Run, by_parts, operation, ufunc_builder, value_builder
from simulator.number import numbers
from simulator.ptx.ir import Instruction

_ARITHMETIC: dict[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}
"""The pattern of infinity, by type: beyond it lie the NaN."""


def _register() -> None:
    for name in ("f32", "f64"):
        kind = DTYPES[name]
        for opcode, function in _ARITHMETIC.items():
            operation(f"{opcode}.{name}", neutral="rn")(_float(function, kind))
        operation(f"div.rn.{name}")(_float(np.divide, kind))
        operation(f"rcp.rn.{name}")(value_builder(_reciprocal, (kind,)))
        operation(f"neg.{name}")(ufunc_builder(np.negative, kind, 1))
        operation(f"abs.{name}")(ufunc_builder(np.absolute, kind, 1))
    operation("fma.rn.f32")(value_builder(numbers.fma_f32, ("f4", "f4", "f4")))
    operation("fma.rn.f64")(value_builder(numbers.fma_f64, ("f8", "f8", "f8")))
    for name in _HALVES:
        kind, sign = DTYPES[name], 0x80008000 if name.endswith("x2") else 0x8000
        for opcode, function in _ARITHMETIC.items():
            operation(f"{opcode}.{name}")(value_builder(half(function, name), (kind, kind)))
        operation(f"fma.rn.{name}")(value_builder(half(numbers.fma_odd, name), (kind,) * 3))
        operation(f"neg.{name}")(value_builder(_flip(sign, kind), (kind,)))
        operation(f"abs.{name}")(value_builder(_clear(sign, kind), (kind,)))
    for word in ("min", "max"):
        for name in ("f32", "f64", *_HALVES):
            operation(f"{word}.{name}")(_minimum(name, word == "max", propagate=False))
            if name != "f64":
                operation(f"{word}.NaN.{name}")(_minimum(name, word == "max", propagate=True))


def _float(function: Any, kind: str) -> Any:
    """Nearest even is what NumPy does. A NaN gets PTX's canonical bits, that of a sum or product of f64 what hardware
    gives, wherever somebody could look at them."""
    is_measured = kind == "f8" and function in (np.add, np.multiply)
    canonical = numbers.canonical_f32 if kind == "f4" else numbers.canonical_f64

    def build(instruction: Instruction, bind: Binder) -> Run:
        target = bind.write(instruction.operands[0])
        left, right = (bind.read(operand, kind) for operand in instruction.operands[1:])

        def run(frame: LaneFrame) -> None:
            regs = frame.regs
            out = regs[target].view(kind)
            function(regs[left].view(kind), regs[right].view(kind), out=out)
            canonical(out)

        def run_measured(frame: LaneFrame) -> None:
            regs = frame.regs
            one, other = regs[left].view(kind), regs[right].view(kind)
            out = function(one, other)  # of its own: the target may be an operand
            numbers.propagate_f64(one, other, out)
            regs[target].view(kind)[:] = out

        def run_raw(frame: LaneFrame) -> None:
            regs = frame.regs
            function(regs[left].view(kind), regs[right].view(kind), out=regs[target].view(kind))

        if not bind.bits_matter(instruction.operands[0]):
            return run_raw
        return run_measured if is_measured else run

    return build


def _reciprocal(a: Any) -> Any:
    one = a.dtype.type(1)
    return numbers.canonical_f32(one / a) if a.dtype == np.float32 else numbers.canonical_f64(one / a)


def half(function: Any, name: str) -> Any:
    """A function of float32 lanes as one of 16-bit floats, or of two of them in a word.

    float32's rounding of one sum or product, then ours, give what one rounding would, for 24 >= 2 * 11 + 2.
    """
    widen, narrow = numbers.HALVES[name.removesuffix("x2")]
    return _halved(lambda *halves: narrow(function(*map(widen, halves))), name)


def _halved(function: Any, name: str) -> Any:
    return by_parts(function, "u2", "u4") if name.endswith("x2") else function


def _flip(sign: int, kind: str) -> Any:
    mask = np.array(sign, kind)
    return lambda a: a ^ mask


def _clear(sign: int, kind: str) -> Any:
    mask = ~np.array(sign, kind)
    return lambda a: a & mask


def _minimum(name: str, larger: bool, propagate: bool) -> Any:
    kind = DTYPES[name]
    if name in ("f32", "f64"):
        most = 3 if name == "f32" else 2

        def pick(first: Any, *rest: Any) -> Any:
            return reduce(lambda a, b: numbers.pick_floats(a, b, larger, propagate), rest, first)

        def build(instruction: Instruction, bind: Binder) -> Run:
            return value_builder(pick, (kind,) * min(len(instruction.operands) - 1, most))(instruction, bind)

        return build
    infinity = INFINITY[name.removesuffix("x2")]
    function = _halved(lambda a, b: numbers.pick_bits(a, b, infinity, larger, propagate), name)
    return value_builder(function, (kind, kind))


def flush_half(bits: Any) -> Any:
    """Subnormals of float16 as zeros of their sign."""
    return np.where(bits & np.uint16(0x7C00), bits, bits & np.uint16(0x8000))


_register()
