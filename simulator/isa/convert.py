"""Conversions between types. Those between address spaces are in spaces.py, of 8-bit floats in convert_modes.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, fill, operation, value_builder
from simulator.number import numbers
from simulator.ptx.ir import Instruction

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def _register() -> None:
    for source in INTEGERS:
        for target in INTEGERS:
            operation(f"cvt.{target}.{source}")(narrow_builder(_cast(DTYPES[target]), source, target))
    for source in ("u32", "s32", "u64", "s64"):
        operation(f"cvt.rn.f32.{source}")(value_builder(_cast("f4"), (DTYPES[source],)))
        operation(f"cvt.rn.f64.{source}")(value_builder(_cast("f8"), (DTYPES[source],)))
        for name in ("f32", "f64"):
            truncated = to_integer(source, name, lambda a: np.trunc(a.astype("f8")))
            operation(f"cvt.rzi.{source}.{name}")(value_builder(truncated, (DTYPES[name],)))
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


def to_integer(target: str, source: str, whole: Callable[[Lanes], Lanes]) -> Callable[[Lanes], Lanes]:
    """A function of floats of a type that whole makes whole numbers of: beyond the range of the integer type comes its
    end, of NaN 0, or the top bit where either type has 64 bits."""
    kind = np.dtype(DTYPES[target])
    limits = np.iinfo(kind)
    low, end = float(limits.min), 2.0 ** (8 * kind.itemsize - (kind.kind == "i"))
    top = 0 if source != "f64" and kind.itemsize <= 4 else 1 << (8 * kind.itemsize - 1)
    undefined = np.array(top, f"u{kind.itemsize}").view(kind)

    def function(a: Lanes) -> Lanes:
        found = whole(a)
        over, under, nan = found >= end, found < low, np.isnan(found)
        out = np.where(over | under | nan, 0, found).astype(kind)
        out = np.where(over, limits.max, np.where(under, limits.min, out)).astype(kind)
        return np.where(nan, undefined, out)

    return function


def _to_f64(widen: Any) -> Any:
    return lambda a: numbers.canonical_f64(widen(a).astype("f8"))


def _from_f64(narrow: Any) -> Any:
    """Rounded once: to odd in float32 first."""
    return lambda a: narrow(numbers.to_odd_f32(a))


def _pair(narrow: Any) -> Any:
    """The first source becomes the upper half."""
    return lambda high, low: numbers.pack(narrow(low), narrow(high))


def narrow_builder(function: Callable[[Lanes], Lanes], source: str, target: str = "") -> Any:
    """A builder of a function of a type that may be narrower than its register, whose low bits it then takes. target:
    an integer type that is extended by its sign into a wider register."""
    kind = DTYPES[source]
    size = np.dtype(kind).itemsize

    def build(instruction: Instruction, bind: Binder) -> Run:
        to, origin = bind.write(instruction.operands[0]), bind.read(instruction.operands[1], kind)
        width = np.dtype(bind.register_dtype(instruction.operands[0])).itemsize
        kept = f"{DTYPES[target][0]}{width}" if target else ""

        def run(frame: LaneFrame) -> None:
            values = frame.regs[origin]
            if values.dtype.itemsize != size:
                values = values.astype(f"u{size}")
            out = function(values.view(kind))
            fill(frame.regs[to], out.astype(kept) if kept else out)

        return run

    return build


_register()
