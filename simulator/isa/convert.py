"""Conversions between types. Those between address spaces are in spaces.py, of 8-bit floats in convert_float8.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import DTYPES, Binder, LaneFrame, Run, fill, operation, value_builder
from simulator.number import numbers
from simulator.ptx.ir import Instruction

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def _register() -> None:
    for source in _INTEGERS:
        for target in _INTEGERS:
            operation(f"cvt.{target}.{source}")(_integer(target, source))
    for source in ("u32", "s32", "u64", "s64"):
        operation(f"cvt.rn.f32.{source}")(value_builder(_cast("f4"), (DTYPES[source],)))
        operation(f"cvt.rn.f64.{source}")(value_builder(_cast("f8"), (DTYPES[source],)))
        for name in ("f32", "f64"):
            operation(f"cvt.rzi.{source}.{name}")(value_builder(_truncate(source, name), (DTYPES[name],)))
    operation("cvt.f64.f32")(value_builder(lambda a: numbers.canonical_f64(a.astype("f8")), ("f4",)))
    operation("cvt.rn.f32.f64")(value_builder(lambda a: numbers.canonical_f32(a.astype("f4")), ("f8",)))
    operation("cvt.f32.f16")(value_builder(numbers.f16_to_f32, ("u2",)))
    operation("cvt.f32.bf16")(value_builder(lambda a: numbers.canonical_f32(numbers.bf16_to_f32(a)), ("u2",)))
    operation("cvt.f64.f16")(value_builder(_to_f64(numbers.f16_to_f32), ("u2",)))
    operation("cvt.f64.bf16")(value_builder(_to_f64(numbers.bf16_to_f32), ("u2",)))
    operation("cvt.rn.f16.f32")(value_builder(numbers.f32_to_f16, ("f4",)))
    operation("cvt.rn.bf16.f32")(value_builder(numbers.f32_to_bf16, ("f4",)))
    for name, narrow in (("f16x2", numbers.f32_to_f16), ("bf16x2", numbers.f32_to_bf16)):
        operation(f"cvt.rn.{name}.f32")(value_builder(_pair(narrow), ("f4", "f4")))
        operation(f"cvt.rn.{name[:-2]}.f64")(value_builder(_from_f64(narrow), ("f8",)))


def _cast(kind: str) -> Any:
    return lambda a: a.astype(kind)


def integer_limits(target: str, source: str) -> tuple[np.dtype[Any], float, float, Any]:
    """Return the dtype of an integer type, its smallest value, the first beyond its largest, and what NaN becomes: 0,
    or the top bit where either type has 64 bits."""
    kind = np.dtype(DTYPES[target])
    low, end = float(np.iinfo(kind).min), 2.0 ** (8 * kind.itemsize - (kind.kind == "i"))
    nothing = 0 if source != "f64" and kind.itemsize <= 4 else 1 << (8 * kind.itemsize - 1)
    return kind, low, end, np.array(nothing, f"u{kind.itemsize}").view(kind)


def _truncate(target: str, source: str) -> Any:
    """Towards zero; out of range saturates (cvt's clamping of float to integer).

    NaN gives 0 from 32 bits to 32; where either type has 64 it gives the destination's top bit.
    """
    kind, low, end, undefined = integer_limits(target, source)
    limits = np.iinfo(kind)

    def function(a: Any) -> Any:
        whole = np.trunc(a.astype("f8"))
        over, under = whole >= end, whole < low
        out = np.where(over | under | np.isnan(whole), 0, whole).astype(kind)
        out = np.where(over, limits.max, np.where(under, limits.min, out)).astype(kind)
        return np.where(np.isnan(whole), undefined, out)

    return function


def _to_f64(widen: Any) -> Any:
    return lambda a: numbers.canonical_f64(widen(a).astype("f8"))


def _from_f64(narrow: Any) -> Any:
    """Rounded once: to odd in float32 first."""
    return lambda a: narrow(numbers.to_odd_f32(a))


def _pair(narrow: Any) -> Any:
    """The first source becomes the upper half."""
    return lambda high, low: numbers.pack(narrow(low), narrow(high))


def _integer(target: str, source: str) -> Any:
    """Cut or extend by the source's signedness; into a wider register, by the destination type's."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        to = bind.write(instruction.operands[0])
        register = bind.register_dtype(instruction.operands[0])
        origin = bind.read(instruction.operands[1], DTYPES[source])
        from_kind, to_kind = DTYPES[source], DTYPES[target]
        from_bytes = np.dtype(from_kind).itemsize
        kept = f"{to_kind[0]}{np.dtype(register).itemsize}"

        def run(frame: LaneFrame) -> None:
            values = frame.regs[origin]
            if values.dtype.itemsize != from_bytes:  # a type narrower than its register: the low bits
                values = values.astype(f"u{from_bytes}")
            fill(frame.regs[to], values.view(from_kind).astype(to_kind).astype(kept))

        return run

    return build


_register()
