"""Conversions between types, and between address spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator import numbers
from simulator.ir import Instruction
from simulator.isa.registry import DTYPES, Binder, Frame, Run, fill, operation, value_builder

_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def _register() -> None:
    for source in _INTEGERS:
        for target in _INTEGERS:
            operation(f"cvt.{target}.{source}")(_integer(target, source))
    for source in ("u32", "s32", "u64", "s64"):
        operation(f"cvt.rn.f32.{source}")(value_builder(_cast("f4"), (DTYPES[source],)))
    for target in ("u32", "s32"):
        operation(f"cvt.rzi.{target}.f32")(value_builder(_truncate(target), ("f4",)))
    operation("cvt.f64.f32")(value_builder(lambda a: numbers.canonical_f64(a.astype("f8")), ("f4",)))
    operation("cvt.rn.f32.f64")(value_builder(lambda a: numbers.canonical_f32(a.astype("f4")), ("f8",)))
    operation("cvt.f32.f16")(value_builder(numbers.f16_to_f32, ("u2",)))
    operation("cvt.f32.bf16")(value_builder(lambda a: numbers.canonical_f32(numbers.bf16_to_f32(a)), ("u2",)))
    operation("cvt.rn.f16.f32")(value_builder(numbers.f32_to_f16, ("f4",)))
    operation("cvt.rn.bf16.f32")(value_builder(numbers.f32_to_bf16, ("f4",)))
    for name, narrow in (("f16x2", numbers.f32_to_f16), ("bf16x2", numbers.f32_to_bf16)):
        operation(f"cvt.rn.{name}.f32")(value_builder(_pair(narrow), ("f4", "f4")))


def _cast(kind: str) -> Any:
    return lambda a: a.astype(kind)


def _truncate(target: str) -> Any:
    """Towards zero; out of range saturates, NaN gives 0 (cvt's clamping of float to integer)."""
    limits = np.iinfo(DTYPES[target])

    def function(a: Any) -> Any:
        wide = np.clip(np.trunc(a.astype("f8")), limits.min, limits.max)
        return np.where(np.isnan(wide), 0, wide).astype(DTYPES[target])

    return function


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

        def run(frame: Frame) -> None:
            values = frame.regs[origin]
            if values.dtype.itemsize != from_bytes:  # a type narrower than its register: the low bits
                values = values.astype(f"u{from_bytes}")
            fill(frame.regs[to], values.view(from_kind).astype(to_kind).astype(kept))

        return run

    return build


@operation("cvta.global.u64", "cvta.to.global.u64")
def _to_global(instruction: Instruction, bind: Binder) -> Run:
    """Generic and global addresses are the same number here, as they are on GPUs."""
    to = bind.write(instruction.operands[0])
    origin = bind.read(instruction.operands[1], "u8")

    def run(frame: Frame) -> None:
        frame.regs[to][...] = frame.regs[origin]

    return run


_register()
