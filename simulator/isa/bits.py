"""Counting, reversing and masking bits; three-input logic; sums with a carry; integers of 16 bits two to a word; dot
products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import DTYPES, Binder, LaneFrame, Lanes, Run, by_parts, fill, operation, value_builder
from simulator.ptx.ir import CARRY, Immediate, Instruction, Register

_WIDTHS = {"b32": "u4", "b64": "u8"}


def _popcount(a: Lanes) -> Lanes:
    found: Lanes = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1), axis=1).sum(1)
    counted: Lanes = found.astype(np.uint32)
    return counted


def _leading_zeros(a: Lanes) -> Lanes:
    big_endian = np.ascontiguousarray(a).byteswap().view(np.uint8).reshape(len(a), -1)
    bits = np.unpackbits(big_endian, axis=1)
    found: Lanes = np.where(bits.any(axis=1), bits.argmax(axis=1), bits.shape[1]).astype(np.uint32)
    return found


def _reverse(kind: str) -> Any:
    def function(a: Lanes) -> Lanes:
        data = np.ascontiguousarray(a).byteswap().view(np.uint8).reshape(len(a), -1)  # the top bit first
        bits = np.unpackbits(data, axis=1)
        out: Lanes = np.packbits(bits, axis=1, bitorder="little").view(kind).reshape(-1)
        return out

    return function


def _find(name: str, shift: bool) -> Any:
    """bfind: the place of the highest bit that is not the sign, or how far it lies below the top; else all ones."""
    bits = int(name[1:])

    def function(a: Lanes) -> Lanes:
        unsigned = a.view(f"u{bits // 8}")
        if name[0] == "s":
            unsigned = np.where(a < 0, ~unsigned, unsigned)
        zeros = _leading_zeros(unsigned)
        found = zeros if shift else np.uint32(bits - 1) - zeros
        return np.where(unsigned == 0, np.uint32(0xFFFFFFFF), found).astype(np.uint32)

    return function


def _mask(wrap: bool) -> Any:
    """bmsk: b ones from bit a on."""

    def function(a: Lanes, b: Lanes) -> Lanes:
        start, count = (one & np.uint32(31) if wrap else np.minimum(one, np.uint32(32)) for one in (a, b))
        ones = (np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)
        return (ones << start.astype(np.uint64)).astype(np.uint32)

    return function


def _extended(signed: bool, wrap: bool) -> Any:
    """szext: the low b bits of a, extended."""

    def function(a: Lanes, b: Lanes) -> Lanes:
        count = (b & np.uint32(31) if wrap else np.minimum(b, np.uint32(32))).astype(np.uint64)
        ones = (np.uint64(1) << count) - np.uint64(1)
        field = a.astype(np.uint64) & ones
        if signed:
            top = (count > 0) & (field >> (np.maximum(count, np.uint64(1)) - np.uint64(1)) & np.uint64(1)).astype(bool)
            field = np.where(top, field | ~ones, field)
        return field.astype(np.uint32)

    return function


def _register_bits() -> None:
    for name, kind in _WIDTHS.items():
        operation(f"popc.{name}")(value_builder(_popcount, (kind,)))
        operation(f"clz.{name}")(value_builder(_leading_zeros, (kind,)))
        operation(f"brev.{name}")(value_builder(_reverse(kind), (kind,)))
    for name in ("u32", "s32", "u64", "s64"):
        operation(f"bfind.{name}")(value_builder(_find(name, False), (DTYPES[name],)))
        operation(f"bfind.shiftamt.{name}")(value_builder(_find(name, True), (DTYPES[name],)))
    for word in ("clamp", "wrap"):
        operation(f"bmsk.{word}.b32")(value_builder(_mask(word == "wrap"), ("u4", "u4")))
        for name in ("u32", "s32"):
            operation(f"szext.{word}.{name}")(value_builder(_extended(name == "s32", word == "wrap"), ("u4", "u4")))
    for name in ("b16", "b32", "b64"):
        kind = DTYPES[name]
        operation(f"cnot.{name}")(value_builder(lambda a, kind=kind: (a == 0).astype(kind), (kind,)))


@operation("lop3.b32")
def _three_input_logic(instruction: Instruction, bind: Binder) -> Run:
    """Bit 4 * a + 2 * b + c of the table is the result for bits a, b, c."""
    target = bind.write(instruction.operands[0])
    sources = [bind.read(one, "u4") for one in instruction.operands[1:4]]
    (table,) = instruction.operands[4:]
    assert isinstance(table, Immediate)
    assert 0 <= table.bits <= 255

    def run(frame: LaneFrame) -> None:
        a, b, c = (np.broadcast_to(frame.regs[slot], frame.count) for slot in sources)
        out = np.zeros(frame.count, np.uint32)
        for row in range(8):
            if table.bits >> row & 1:
                out |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        fill(frame.regs[target], out)

    return run


# Wide and narrow sums


def _as_object(a: Lanes) -> Any:
    return a.astype(object)


def _high_sum(name: str) -> Any:
    """mad.hi: the upper half of a product, plus c."""
    bits = int(name[1:])
    unsigned, kind = f"u{bits // 8}", DTYPES[name]

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        exact = (_as_object(a) * _as_object(b) >> bits) + _as_object(c)
        found: Lanes = (exact & ((1 << bits) - 1)).astype(unsigned).view(kind)
        return found

    return function


def _of_24_bits(word: str, name: str, adds: bool) -> Any:
    """mul24 and mad24: of the low 24 bits of each factor; .lo the low 32 bits of the 48, .hi the high 32."""
    shift = 0 if word == "lo" else 16

    def cut(a: Lanes) -> Any:
        wide = a.astype(np.int64) & 0xFFFFFF
        return np.where(wide >> 23, wide - (1 << 24), wide) if name == "s32" else wide

    def function(a: Lanes, b: Lanes, c: Any = 0) -> Lanes:
        product = cut(a) * cut(b) >> shift
        found: Lanes = ((product + c) & 0xFFFFFFFF).astype(np.uint32)
        return found

    return value_builder(function, (DTYPES[name],) * (3 if adds else 2))


def _apart(kind: str) -> Any:
    """sad: |a - b| + c."""

    def function(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        found: Lanes = np.where(a > b, a - b, b - a) + c
        return found

    return value_builder(function, (kind,) * 3)


def _clipped(sign: int) -> Any:
    def function(a: Lanes, b: Lanes) -> Lanes:
        exact = a.astype(np.int64) + sign * b.astype(np.int64)
        found: Lanes = np.clip(exact, -(1 << 31), (1 << 31) - 1).astype(np.int32)
        return found

    return value_builder(function, ("i4", "i4"))


def _relu(function: Any) -> Any:
    return lambda a, b: np.maximum(function(a, b), 0)


def _register_sums() -> None:
    for name in ("u16", "s16", "u32", "s32", "u64", "s64"):
        operation(f"mad.hi.{name}")(value_builder(_high_sum(name), (DTYPES[name],) * 3))
        operation(f"sad.{name}")(_apart(DTYPES[name]))
    for name in ("u32", "s32"):
        for word in ("lo", "hi"):
            operation(f"mul24.{word}.{name}")(_of_24_bits(word, name, False))
            operation(f"mad24.{word}.{name}")(_of_24_bits(word, name, True))
    operation("add.sat.s32")(_clipped(1))
    operation("sub.sat.s32")(_clipped(-1))
    for name in ("u16x2", "s16x2"):
        kind = "i2" if name[0] == "s" else "u2"
        for opcode, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
            operation(f"{opcode}.{name}")(value_builder(by_parts(function, kind, "u4"), ("u4", "u4")))
    for opcode, function in (("min", np.minimum), ("max", np.maximum)):
        relu = _relu(function)
        operation(f"{opcode}.relu.s16x2")(value_builder(by_parts(relu, "i2", "u4"), ("u4", "u4")))
        operation(f"{opcode}.relu.s32")(value_builder(relu, ("i4", "i4")))


def _carried(opcode: str, adds_carry: bool, word: str = "") -> Any:
    """add, sub or mad of unsigned numbers with the carry (a borrow, for sub) of those before, or for those behind."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        bits = 64 if instruction.qualifiers[-1].endswith("64") else 32
        kind = f"u{bits // 8}"
        signed = instruction.qualifiers[-1][0] == "s" and opcode == "mad"
        target = bind.write(instruction.operands[0])
        sources = [bind.read(one, kind) for one in instruction.operands[1:]]
        before = bind.read(Register(CARRY), "?") if adds_carry else None
        after = bind.write(Register(CARRY)) if "cc" in instruction.qualifiers else None

        def run(frame: LaneFrame) -> None:
            values = [_as_object(np.broadcast_to(frame.regs[slot], frame.count)) for slot in sources]
            carry = _as_object(frame.regs[before].astype(np.int64)) if before is not None else 0
            if opcode == "sub":
                exact = values[0] - values[1] - carry
            elif opcode == "add":
                exact = values[0] + values[1] + carry
            else:
                factors = values[:2]
                if signed:
                    factors = [np.where(one >= 1 << (bits - 1), one - (1 << bits), one) for one in factors]
                product = factors[0] * factors[1]
                part = (product >> bits if word == "hi" else product) & ((1 << bits) - 1)
                exact = part + values[2] + carry
            fill(frame.regs[target], (exact & ((1 << bits) - 1)).astype(kind))
            if after is not None:
                fill(frame.regs[after], (exact >> bits != 0).astype(np.bool_))

        return run

    return build


def _register_carries() -> None:
    for name in ("u32", "s32", "u64", "s64"):
        for opcode in ("add", "sub"):
            operation(f"{opcode}.cc.{name}")(_carried(opcode, False))
            operation(f"{opcode}c.{name}")(_carried(opcode, True))
            operation(f"{opcode}c.cc.{name}")(_carried(opcode, True))
        for word in ("lo", "hi"):
            operation(f"mad.{word}.cc.{name}")(_carried("mad", False, word))
            operation(f"madc.{word}.{name}")(_carried("mad", True, word))
            operation(f"madc.{word}.cc.{name}")(_carried("mad", True, word))


# Dot products


def _dot(instruction: Instruction, bind: Binder) -> Run:
    """dp4a: four bytes by four bytes; dp2a: two halves of a by the low or the high two bytes of b. Plus c."""
    kinds = ["i" if one == "s32" else "u" for one in instruction.qualifiers if one in ("s32", "u32")]
    target = bind.write(instruction.operands[0])
    sources = [bind.read(one, "u4") for one in instruction.operands[1:]]
    two = instruction.opcode == "dp2a"
    start = 2 if "hi" in instruction.qualifiers else 0

    def run(frame: LaneFrame) -> None:
        a, b, c = (np.ascontiguousarray(np.broadcast_to(frame.regs[slot], frame.count)) for slot in sources)
        left = a.view(f"{kinds[0]}{2 if two else 1}").reshape(frame.count, -1).astype(np.int64)
        right = b.view(f"{kinds[1]}1").reshape(frame.count, -1).astype(np.int64)
        right = right[:, start : start + 2] if two else right
        fill(frame.regs[target], ((left * right).sum(axis=1) + c.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32))

    return run


for _a in ("u32", "s32"):
    for _b in ("u32", "s32"):
        operation(f"dp4a.{_a}.{_b}", f"dp2a.lo.{_a}.{_b}", f"dp2a.hi.{_a}.{_b}")(_dot)


_register_bits()
_register_sums()
_register_carries()
