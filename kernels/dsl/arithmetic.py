"""Device arithmetic of reductions: contributions as raw 32-bit words in, a running result in a stated precision, words
out.

Operations are inline PTX with their rounding written out (`add.rn`), so that nothing is contracted, reassociated or
flushed, and the result is a function of the order of the contributions alone: kernels/numeric/numerics.py, which states
the rules, folds the same way and finds the same bits.

Words hold elements as memory does: one of 4 bytes, two of 2, four of 1; an element of 8 bytes is two words.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Int32, Int64
from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from cases.dtypes import FLOAT8, FLOATS, SUMS
from kernels.dsl.device import assemble

PACKED_TYPES = {"float32": "f32", "float16": "f16x2", "bfloat16": "bf16x2"}
"""The PTX type that fills one 32-bit word with elements of a data type."""

SHORT_TYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}

INTEGER_TYPES = {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}


@dsl_user_op
def apply(text: str, *words: Any, loc: Any = None, ip: Any = None) -> Any:
    """One instruction from words to a word: text is it without operands."""
    places = ", ".join(f"${i}" for i in range(len(words) + 1))
    operands = [Int32(word) for word in words]
    constraints = "=r" + ",r" * len(words)
    return Int32(assemble(f"{text} {places};", constraints, operands, T.i32(), memory=False, loc=loc, ip=ip))


@dsl_user_op
def apply_wide(text: str, *values: Any, loc: Any = None, ip: Any = None) -> Any:
    """The same on 64-bit values."""
    places = ", ".join(f"${i}" for i in range(len(values) + 1))
    operands = [Int64(value) for value in values]
    constraints = "=l" + ",l" * len(values)
    return Int64(assemble(f"{text} {places};", constraints, operands, T.i64(), memory=False, loc=loc, ip=ip))


@dsl_user_op
def join(lower: Any, upper: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Two words as one 64-bit value."""
    operands = [Int32(lower), Int32(upper)]
    return Int64(assemble("mov.b64 $0, {$1, $2};", "=l,r,r", operands, T.i64(), memory=False, loc=loc, ip=ip))


def split(value: Any) -> tuple[Any, Any]:
    """A 64-bit value as two words (lower, upper)."""
    return Int32(value), Int32(value >> 32)


@dsl_user_op
def halves_of(word: Any, *, loc: Any = None, ip: Any = None) -> tuple[Any, Any]:
    """The lower and the upper 16 bits of a word, as 16-bit registers."""
    pair = ir.Type.parse("!llvm.struct<(i16,i16)>")
    both = assemble("mov.b32 {$0, $1}, $2;", "=h,=h,r", [Int32(word)], pair, memory=False, loc=loc, ip=ip)
    lower, upper = (llvm.extractvalue(T.i16(), both, [i], loc=loc, ip=ip) for i in range(2))
    return lower, upper


@dsl_user_op
def word_of(half: Any, text: str, *, loc: Any = None, ip: Any = None) -> Any:
    """One instruction from a 16-bit register to a word."""
    return Int32(
        llvm.inline_asm(
            T.i32(), [half], f"{text} $0, $1;", "=r,h", has_side_effects=False, asm_dialect=0, loc=loc, ip=ip
        )
    )


@dsl_user_op
def pair_of(lower: Any, upper: Any, text: str, *, loc: Any = None, ip: Any = None) -> Any:
    """Two values, each by the instruction to 16 bits, packed into a word. Each is a word or a tuple of two."""
    halves = [_to_half(value, text, loc, ip) for value in (lower, upper)]
    return Int32(
        llvm.inline_asm(
            T.i32(), halves, "mov.b32 $0, {$1, $2};", "=r,h,h", has_side_effects=False, asm_dialect=0, loc=loc, ip=ip
        )
    )


def _to_half(value: Any, text: str, loc: Any, ip: Any) -> Any:
    words = [Int32(word).ir_value(loc=loc, ip=ip) for word in (value if isinstance(value, tuple) else (value,))]
    places = ", ".join(f"${i}" for i in range(len(words) + 1))
    constraints = "=h" + ",r" * len(words)
    return llvm.inline_asm(
        T.i16(), words, f"{text} {places};", constraints, has_side_effects=False, asm_dialect=0, loc=loc, ip=ip
    )


def widen(word: Any, dtype: str) -> list[Any]:
    """The elements of a word of a 2-byte or 1-byte float type as float32 words. Exact."""
    if dtype == "bfloat16":
        # bfloat16 is the upper half of a float32, so no conversion is needed, and NaN payloads live on.
        return [Int32(word) << 16, Int32(word) & Int32(-65536)]
    if dtype == "float16":
        return [word_of(half, "cvt.f32.f16") for half in halves_of(word)]
    return [element for pair in widen_short(word, dtype) for element in widen(pair, "float16")]


def narrow(elements: Sequence[Any], dtype: str) -> Any:
    """float32 words, two or four, rounded to nearest even to a word; fp8 saturates, NaN becomes the canonical one."""
    if dtype in FLOAT8:
        text = f"cvt.rn.satfinite.{SHORT_TYPES[dtype]}x2.f32"
        return pair_of((elements[1], elements[0]), (elements[3], elements[2]), text)
    return apply(f"cvt.rn.{PACKED_TYPES[dtype]}.f32", elements[1], elements[0])


def widen_short(word: Any, dtype: str) -> list[Any]:
    """The four fp8 elements of a word as two words of float16 pairs. Exact."""
    return [word_of(half, f"cvt.rn.f16x2.{SHORT_TYPES[dtype]}x2") for half in halves_of(word)]


def narrow_short(pairs: Sequence[Any], dtype: str) -> Any:
    """Two words of float16 pairs rounded to nearest even to four fp8 elements, saturating."""
    return pair_of(pairs[0], pairs[1], f"cvt.rn.satfinite.{SHORT_TYPES[dtype]}x2.f16x2")


@dataclass(frozen=True)
class Reduction:
    """A running reduction of words of dtype in the accumulator's precision: start with one, add others, finish.

    The start is the first contribution itself, not zero plus it: so -0.0 survives, and one contribution alone comes
    out with its own bits (a caller with a single contribution needs neither start nor finish). The state is a list of
    words, or of 64-bit values for elements of 8 bytes. avg: floats are multiplied by 1 / world_size before they are
    added, integers divided at the end, towards zero.
    """

    dtype: str
    accumulator: str
    reduction: str
    world_size: int

    @property
    def form(self) -> str:
        """What the state is made of: the dtype itself, or what its elements are widened to."""
        if self.dtype in FLOAT8:
            return "float32" if self.accumulator == "float32" and self.reduction in SUMS else "float16"
        return "float32" if self.accumulator == "float32" else self.dtype

    @property
    def scaled(self) -> bool:
        return self.reduction == "avg" and self.dtype in FLOATS

    def start(self, words: Sequence[Any]) -> list[Any]:
        """A contribution as state."""
        state = self._widened(words)
        if not self.scaled:
            return state
        if self.form == "float64":
            return [apply_wide("mul.rn.f64", value, Int64(_constant(self))) for value in state]
        text = f"mul.rn.{PACKED_TYPES[self.form]}"
        return self._rounded([apply(text, word, Int32(_constant(self))) for word in state])

    def add(self, state: Sequence[Any], words: Sequence[Any]) -> list[Any]:
        """The state with one contribution more."""
        combine = _combination(self.reduction, self.form)
        return self._rounded([combine(left, right) for left, right in zip(state, self.start(words), strict=True)])

    def finish(self, state: Sequence[Any]) -> list[Any]:
        """The state as words of dtype."""
        return self._narrowed(self._divided(state))

    def scale(self, words: Sequence[Any]) -> list[Any]:
        """avg from a sum of dtype that was made elsewhere: times 1 / world_size in float32 (float64), rounded once."""
        if self.reduction != "avg" or self.world_size == 1:
            return list(words)
        wide = self if self.dtype not in FLOATS else Reduction(self.dtype, "float32", "avg", self.world_size)
        if self.dtype == "float64":
            wide = self
        return wide.finish(wide.start(words))

    def _widened(self, words: Sequence[Any]) -> list[Any]:
        if self.dtype in ("float64", "int64", "uint64"):
            return [join(words[i], words[i + 1]) for i in range(0, len(words), 2)]
        if self.form == self.dtype:
            return list(words)
        if self.form == "float16":
            return [pair for word in words for pair in widen_short(word, self.dtype)]
        return [element for word in words for element in widen(word, self.dtype)]

    def _rounded(self, state: list[Any]) -> list[Any]:
        """fp8 with a native accumulator: to the type and back after every operation."""
        if self.dtype not in FLOAT8 or self.accumulator != "native" or self.reduction not in SUMS:
            return state
        pairs = [narrow_short(state[i : i + 2], self.dtype) for i in range(0, len(state), 2)]
        return [pair for word in pairs for pair in widen_short(word, self.dtype)]

    def _divided(self, state: Sequence[Any]) -> list[Any]:
        if self.reduction != "avg" or self.dtype in FLOATS:
            return list(state)
        do = apply_wide if self.dtype.endswith("64") else apply
        number = Int64(self.world_size) if self.dtype.endswith("64") else Int32(self.world_size)
        return [do(f"div.{INTEGER_TYPES[self.dtype]}", value, number) for value in state]

    def _narrowed(self, state: Sequence[Any]) -> list[Any]:
        if self.dtype in ("float64", "int64", "uint64"):
            return [word for value in state for word in split(value)]
        if self.form == self.dtype:
            return list(state)
        if self.form == "float16":
            return [narrow_short(state[i : i + 2], self.dtype) for i in range(0, len(state), 2)]
        count = 4 if self.dtype in FLOAT8 else 2
        return [narrow(state[i : i + count], self.dtype) for i in range(0, len(state), count)]


def _combination(reduction: str, form: str) -> Callable[[Any, Any], Any]:
    """The operation on two values of a form: words, or 64-bit values."""
    wide = form in ("float64", "int64", "uint64")
    do = apply_wide if wide else apply
    if reduction in ("and", "or", "xor"):
        return lambda left, right: do(f"{reduction}.b{64 if wide else 32}", left, right)
    if form in INTEGER_TYPES:
        kind = INTEGER_TYPES[form]
        text = f"{reduction}.{kind}" if reduction in ("min", "max") else f"add.{kind}"
        return lambda left, right: do(text, left, right)
    if reduction in SUMS:
        text = "add.rn.f64" if wide else f"add.rn.{PACKED_TYPES[form]}"
        return lambda left, right: do(text, left, right)
    if wide:
        return lambda left, right: extreme_double(left, right, reduction)
    return lambda left, right: do(f"{reduction}.NaN.{PACKED_TYPES[form]}", left, right)


def extreme_double(left: Any, right: Any, reduction: str) -> Any:
    """min or max of two float64, NaN where one is NaN, -0 below +0: PTX has no .NaN for them.

    As integers: with the lower 63 bits of negative numbers inverted the order of the bits is that of the numbers.
    """
    lowest = Int64(1) << 63
    ordered = [value ^ ((value >> 63) & ~lowest) for value in (left, right)]
    smaller = ordered[0] < ordered[1]
    first, second = (left, right) if reduction == "min" else (right, left)
    found = cutlass.select_(smaller, first, second)
    infinity = Int64(0x7FF0_0000_0000_0000)
    for value in (left, right):
        found = cutlass.select_((value & ~lowest) > infinity, Int64(0x7FF8_0000_0000_0000), found)
    return found


def _constant(reduction: Reduction) -> int:
    """1 / world_size in the type that contributions are multiplied in, as a word (64 bits: a float64)."""
    single = struct.unpack("f", struct.pack("f", 1 / reduction.world_size))[0]
    if reduction.form == "float64":
        return int(struct.unpack("q", struct.pack("d", 1 / reduction.world_size))[0])
    if reduction.form == "float32":
        return int(struct.unpack("i", struct.pack("f", single))[0])
    if reduction.form == "bfloat16":
        bits = struct.unpack("I", struct.pack("f", single))[0]
        half = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    else:
        if reduction.dtype in FLOAT8 and reduction.accumulator == "native":
            single = _rounded_short(single, reduction.dtype)
        half = struct.unpack("H", struct.pack("e", single))[0]
    return int(struct.unpack("i", struct.pack("I", half << 16 | half))[0])


def _rounded_short(value: float, dtype: str) -> float:
    """A number from 0 to 1 rounded to nearest even to an fp8 type."""
    significand_bits, smallest_step = (4, -9) if dtype == "float8_e4m3fn" else (3, -16)
    step = max(math.frexp(value)[1] - significand_bits, smallest_step)
    return math.ldexp(round(math.ldexp(value, -step)), step)
