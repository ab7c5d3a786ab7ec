"""Integer arithmetic, logic, comparison, selection and moves. Floats have floats.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.isa.registry import (
    DTYPES,
    INTEGER,
    Binder,
    LaneFrame,
    Run,
    fill,
    operation,
    ufunc_builder,
    value_builder,
)
from simulator.isa.spaces import symbol_reader
from simulator.number import numbers
from simulator.ptx.ir import CLOCKS, Immediate, Instruction, Register, Symbol, Vector

_INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def _register_integers() -> None:
    for name in _INTEGERS:
        kind = DTYPES[name]
        operation(f"sub.{name}")(ufunc_builder(np.subtract, kind))
        for opcode in ("add", "min", "max"):
            operation(f"{opcode}.{name}")(ufunc_builder(INTEGER[opcode], kind))
        operation(f"mul.lo.{name}")(ufunc_builder(np.multiply, kind))
        operation(f"mad.lo.{name}")(value_builder(_mad_low, (kind,) * 3))
        if not name.endswith("64"):
            wide = f"{kind[0]}{int(kind[1]) * 2}"
            operation(f"mul.wide.{name}")(value_builder(_wide(wide), (kind, kind)))
            operation(f"mad.wide.{name}")(value_builder(_wide(wide), (kind, kind, wide)))
            operation(f"mul.hi.{name}")(value_builder(_high(wide, kind), (kind, kind)))
        operation(f"div.{name}")(value_builder(_divide, (kind, kind)))
        operation(f"rem.{name}")(value_builder(_remainder, (kind, kind)))
        operation(f"shr.{name}")(_shift(np.right_shift, kind))
    operation("mul.hi.u64")(value_builder(_high_u64, ("u8", "u8")))
    operation("mul.hi.s64")(value_builder(_high_s64, ("i8", "i8")))
    for name in ("s16", "s32", "s64"):
        operation(f"neg.{name}")(ufunc_builder(np.negative, DTYPES[name], 1))
        operation(f"abs.{name}")(ufunc_builder(np.absolute, DTYPES[name], 1))
    for name in ("b16", "b32", "b64"):
        operation(f"shl.{name}")(_shift(np.left_shift, DTYPES[name]))
        operation(f"shr.{name}")(_shift(np.right_shift, DTYPES[name]))
    for name in ("b16", "b32", "b64", "pred"):
        kind = DTYPES[name]
        for opcode in ("and", "or", "xor"):
            operation(f"{opcode}.{name}")(ufunc_builder(INTEGER[opcode], kind))
        operation(f"not.{name}")(ufunc_builder(np.logical_not if name == "pred" else np.invert, kind, 1))


def _mad_low(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _wide(wide: str) -> Any:
    def function(a: Any, b: Any, c: Any = None) -> Any:
        product = np.multiply(a, b, dtype=wide)
        return product if c is None else product + c

    return function


def _high(wide: str, kind: str) -> Any:
    shift = np.dtype(kind).itemsize * 8

    def function(a: Any, b: Any) -> Any:
        return (np.multiply(a, b, dtype=wide) >> shift).astype(kind)

    return function


def _high_u64(a: Any, b: Any) -> Any:
    """The upper 64 bits of a 128-bit product, from four 32-bit ones."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    cross = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (cross >> half)


def _high_s64(a: Any, b: Any) -> Any:
    unsigned = _high_u64(a.view("u8"), b.view("u8")).view("i8")
    return unsigned - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)


def _divide(a: Any, b: Any) -> Any:
    """Towards zero, as PTX. By zero: all ones (PTX leaves it open; GPUs give that)."""
    zero = b == 0
    safe = np.where(zero, np.ones_like(b), b)
    quotient = a // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != a)).astype(quotient.dtype)
    return np.where(zero, np.array(-1).astype(a.dtype), quotient)


def _remainder(a: Any, b: Any) -> Any:
    """The sign of the dividend. By zero: the dividend."""
    return np.where(b == 0, a, a - _divide(a, b) * b)


def _shift(function: Any, kind: str) -> Any:
    """Amounts are unsigned 32-bit and beyond the width mean the width: NumPy's shifts do that for equal types."""

    def build(instruction: Instruction, bind: Binder) -> Run:
        target = bind.write(instruction.operands[0])
        value = bind.read(instruction.operands[1], kind)
        amount = bind.read(instruction.operands[2], "u4")
        bits = np.uint32(np.dtype(kind).itemsize * 8)

        def run(frame: LaneFrame) -> None:
            regs = frame.regs
            count = np.minimum(regs[amount], bits).astype(kind)
            function(regs[value].view(kind), count, out=regs[target].view(kind))

        if isinstance(instruction.operands[2], Immediate):
            fixed = np.array(min(instruction.operands[2].bits & 0xFFFFFFFF, int(bits))).astype(kind)

            def run_fixed(frame: LaneFrame) -> None:
                regs = frame.regs
                function(regs[value].view(kind), fixed, out=regs[target].view(kind))

            return run_fixed
        return run

    return build


_SELECTED = ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")


@operation(*(f"selp.{name}" for name in _SELECTED))
def _select(instruction: Instruction, bind: Binder) -> Run:
    target = bind.write(instruction.operands[0])
    kind = bind.register_dtype(instruction.operands[0])
    yes, no = (bind.read(operand, kind) for operand in instruction.operands[1:3])
    condition = bind.read(instruction.operands[3], "?")

    def run(frame: LaneFrame) -> None:
        regs = frame.regs
        regs[target][...] = np.where(regs[condition], regs[yes], regs[no])

    return run


@operation(
    *(f"mov.{name}" for name in ("pred", "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"))
)
def _move(instruction: Instruction, bind: Binder) -> Run:
    target, source = instruction.operands
    if isinstance(source, Vector):
        return _join(target, source, bind)
    if isinstance(target, Vector):
        return _divide_word(target, source, bind)
    to = bind.write(target)
    kind = bind.register_dtype(target)
    if isinstance(source, Symbol):
        address = symbol_reader(source, bind)
        return lambda frame: fill_address(frame.regs[to], address(frame))
    if isinstance(source, Register) and source.name in CLOCKS:
        wide = source.name in ("%globaltimer", "%clock64")
        assert kind == ("u8" if wide else "u4")
        shift, mask = (32 if source.name.endswith("hi") else 0), (1 << (64 if wide else 32)) - 1
        return lambda frame: frame.regs[to].fill(frame.batch.space.clock_ns >> shift & mask)
    assert not isinstance(source, Register) or (kind == "?") == (bind.register_dtype(source) == "?")
    origin = bind.read(source, kind)

    def run(frame: LaneFrame) -> None:
        frame.regs[to][...] = frame.regs[origin]

    return run


@operation("mov.b128")
def _move_wide(instruction: Instruction, bind: Binder) -> Run:
    """Between registers of 128 bits, or one and its parts: two of 64 or four of 32."""
    target, source = instruction.operands
    assert isinstance(target, Vector)
    assert isinstance(source, Vector)
    kinds = [{2: "u8", 4: "u4"}[len(one.parts)] for one in (target, source)]
    for one, kind in zip((target, source), kinds, strict=True):
        assert all(bind.register_dtype(part) == kind for part in one.parts if part != Register("_"))
    targets = [None if one == Register("_") else bind.write(one) for one in target.parts]
    sources = [bind.read(one, kinds[1]) for one in source.parts]

    def run(frame: LaneFrame) -> None:
        rows = np.stack([np.broadcast_to(frame.regs[slot], frame.count) for slot in sources], axis=1).view(kinds[0])
        for position, slot in enumerate(targets):
            if slot is not None:
                fill(frame.regs[slot], rows[:, position])

    return run


def fill_address(target: Any, addresses: Any) -> None:
    """Addresses into a register of 32 or 64 bits."""
    target[...] = np.asarray(addresses).astype(np.uint64).astype(target.dtype)


def _join(target: Any, source: Vector, bind: Binder) -> Run:
    """mov.b32 d, {low, high}: the parts side by side, the first one lowest."""
    to = bind.write(target)
    kind = bind.register_dtype(target)
    part = f"u{np.dtype(kind).itemsize // len(source.parts)}"
    slots = [bind.read(one, part) for one in source.parts]

    def run(frame: LaneFrame) -> None:
        parts = frame.regs[to].view(part).reshape(-1, len(slots))
        for position, slot in enumerate(slots):
            parts[:, position] = frame.regs[slot]

    return run


def _divide_word(target: Vector, source: Any, bind: Binder) -> Run:
    """mov.b32 {low, high}, s."""
    assert isinstance(source, Register)
    kind = bind.register_dtype(source)
    part = f"u{np.dtype(kind).itemsize // len(target.parts)}"
    origin = bind.read(source, kind)
    slots = [None if one == Register("_") else bind.write(one) for one in target.parts]

    def run(frame: LaneFrame) -> None:
        parts = frame.regs[origin].view(part).reshape(-1, len(slots))
        for position, slot in enumerate(slots):
            if slot is not None:
                fill(frame.regs[slot], parts[:, position])

    return run


@operation("prmt.b32")
def _permute(instruction: Instruction, bind: Binder) -> Run:
    """Each nibble of the selector picks one of eight bytes; its top bit replicates that byte's sign."""
    target = bind.write(instruction.operands[0])
    low, high, selector = (bind.read(operand, "u4") for operand in instruction.operands[1:])

    def run(frame: LaneFrame) -> None:
        regs = frame.regs
        both = regs[low].astype(np.uint64) | regs[high].astype(np.uint64) << np.uint64(32)
        out = np.zeros(frame.count, np.uint32)
        for position in range(4):
            nibble = regs[selector] >> np.uint32(4 * position) & np.uint32(15)
            byte = (both >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(np.uint32) & np.uint32(
                255
            )
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            out |= np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * position)
        regs[target][...] = out

    return run


def _taken(mode: str) -> Any:
    """Which of eight bytes a mode of prmt puts at each position, by the lowest two bits of its selector."""
    functions: dict[str, Any] = {
        "f4e": lambda start, position: start + position,
        "b4e": lambda start, position: start - position & 7,
        "rc8": lambda start, position: start,
        "ecl": max,
        "ecr": min,
        "rc16": lambda start, position: 2 * (start & 1) + (position & 1),
    }
    return np.array([[functions[mode](start, position) for position in range(4)] for start in range(4)])


@operation(*(f"prmt.b32.{mode}" for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")))
def _permute_by_mode(instruction: Instruction, bind: Binder) -> Run:
    (mode,) = (word for word in instruction.qualifiers if word != "b32")
    taken = _taken(mode)
    target = bind.write(instruction.operands[0])
    low, high, selector = (bind.read(operand, "u4") for operand in instruction.operands[1:])

    def run(frame: LaneFrame) -> None:
        words = [np.broadcast_to(frame.regs[slot], frame.count) for slot in (low, high)]
        given = np.ascontiguousarray(np.stack(words, axis=1)).view(np.uint8)
        places = taken[np.broadcast_to(frame.regs[selector] & np.uint32(3), frame.count)]
        fill(frame.regs[target], np.take_along_axis(given, places, axis=1).view(np.uint32)[:, 0])

    return run


@operation(*(f"slct{form}" for name in _SELECTED for form in (f".{name}.s32", f".{name}.f32", f".ftz.{name}.f32")))
def _select_by_sign(instruction: Instruction, bind: Binder) -> Run:
    """a where c is not below zero, else b; also where c is no number."""
    kind, by = (DTYPES[word] for word in instruction.qualifiers if word != "ftz")
    flush = "ftz" in instruction.qualifiers
    target = bind.write(instruction.operands[0])
    slots = [bind.read(one, kind) for one in instruction.operands[1:3]]
    decides = bind.read(instruction.operands[3], by)
    unsigned = f"u{np.dtype(kind).itemsize}"

    def run(frame: LaneFrame) -> None:
        given = frame.regs[decides].view(by)
        first = (numbers.flush_f32(given) if flush else given) >= 0
        fill(frame.regs[target], np.where(first, *(frame.regs[slot].view(unsigned) for slot in slots)))

    return run


def _low_bits(count: Any, kind: str) -> Any:
    """Return a mask of the lowest count bits, all from the width on. NumPy's shifts by the width give 0."""
    bits = np.dtype(kind).itemsize * 8
    return ~np.left_shift(np.array(~0 & ((1 << bits) - 1), kind), np.minimum(count, bits).astype(kind))


def _extract(name: str) -> Any:
    """bfe: a field of c bits from bit b on (both modulo 256). What lies beyond the top is 0, or the field's sign."""
    kind = f"u{np.dtype(DTYPES[name]).itemsize}"
    bits = np.dtype(kind).itemsize * 8

    def function(a: Any, b: Any, c: Any) -> Any:
        start, length = b & np.uint32(255), c & np.uint32(255)
        there = np.minimum(length, np.where(start < bits, bits - start, 0))
        field = np.right_shift(a, np.minimum(start, bits).astype(kind)) & _low_bits(there, kind)
        if name[0] == "u":
            return field
        top = np.minimum(start + length - np.where(length > 0, 1, 0), bits - 1).astype(kind)
        negative = (length > 0) & (np.right_shift(a, top) & np.array(1, kind)).astype(np.bool_)
        return np.where(negative, field | ~_low_bits(there, kind), field)

    return value_builder(function, (kind, "u4", "u4"))


def _insert(kind: str) -> Any:
    """bfi: the low d bits of a into b from bit c on (both modulo 256); what goes beyond the top is dropped."""
    bits = np.dtype(kind).itemsize * 8

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        start = np.minimum(c & np.uint32(255), bits).astype(kind)
        mask = np.left_shift(_low_bits(d & np.uint32(255), kind), start)
        return (b & ~mask) | (np.left_shift(a, start) & mask)

    return value_builder(function, (kind, kind, "u4", "u4"))


def _funnel(left: bool, wrap: bool) -> Any:
    """shf: 64 bits, a the lower half and b the upper, shifted; the upper half comes out (left) or the lower."""

    def function(a: Any, b: Any, c: Any) -> Any:
        count = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
        return ((both << count) >> np.uint64(32) if left else both >> count).astype(np.uint32)

    return value_builder(function, ("u4", "u4", "u4"))


def _register_fields() -> None:
    for name in ("u32", "s32", "u64", "s64"):
        operation(f"bfe.{name}")(_extract(name))
    for name in ("b32", "b64"):
        operation(f"bfi.{name}")(_insert(DTYPES[name]))
    for way in ("l", "r"):
        for mode in ("wrap", "clamp"):
            operation(f"shf.{way}.{mode}.b32")(_funnel(way == "l", mode == "wrap"))


_register_integers()
_register_fields()
