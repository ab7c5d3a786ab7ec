"""PTX number types on NumPy lanes: float16 and bfloat16 rounding, packing, minima, and sums that are rounded once.

All functions take and give arrays of one value a lane. 16-bit floats travel as their bits (uint16). Rounding is to
nearest even; a NaN that an operation makes is PTX's canonical one: 0x7fffffff for f32, 0x7fff for f16 and bf16. Sums
and products of f64 have those of hardware (propagate_f64).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

NAMES8 = ("e4m3", "e5m2")
"""Of the 8-bit floats, see float8.py."""

Bits = npt.NDArray[np.uint16]
Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Lanes = npt.NDArray[Any]

NAN16 = np.uint16(0x7FFF)
NAN32 = np.uint32(0x7FFFFFFF)
TINY32 = np.finfo(np.float32).smallest_normal
NAN64 = np.uint64(0x7FFFFFFFFFFFFFFF)
INVALID64 = np.uint64(0xFFF8000000000000)
"""The NaN of a sum or product of float64 that are no NaN."""
QUIET64 = np.uint64(1 << 51)
_HALVES = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)


def canonical_f32(values: Floats) -> Floats:
    """Give every NaN of the array PTX's bits, in place. One pass when there is none: a sum with a NaN is NaN."""
    if math.isnan(np.add.reduce(values, axis=None)):
        values.view(np.uint32)[np.isnan(values)] = NAN32
    return values


def flush_f32(values: Floats) -> Floats:
    """Return the array with every subnormal replaced by the zero of its sign."""
    return np.where(np.abs(values) < TINY32, np.copysign(np.float32(0), values), values)


def canonical_f64(values: Doubles) -> Doubles:
    """As canonical_f32."""
    values.view(np.uint64)[np.isnan(values)] = NAN64
    return values


def propagate_f64(left: Doubles, right: Doubles, out: Doubles) -> None:
    """Give every NaN of out, in place, the bits that add.f64 and mul.f64 give it: those of the operand that is
    NaN, quiet, and INVALID64 where none is. PTX leaves them open; an H100 gives these, see
    tests/matrix/test_hardware_bits.py. Which of two NaNs comes out was not measured; here it is the left one.
    """
    nan = np.isnan(out)
    if not nan.any():
        return
    bits = out.view(np.uint64)
    bits[nan] = INVALID64
    for operand in (right, left):
        of_operand = np.broadcast_to(operand, out.shape)
        kept = np.isnan(of_operand)
        bits[kept] = of_operand[kept].view(np.uint64) | QUIET64


def f16_to_f32(bits: Bits) -> Floats:
    """Exact. NaN payloads become canonical."""
    out: Floats = _HALVES.take(bits)
    return canonical_f32(out)


def bf16_to_f32(bits: Bits) -> Floats:
    """Exact."""
    return np.left_shift(bits, np.uint32(16), dtype=np.uint32).view(np.float32)


def f32_to_bf16(values: Floats) -> Bits:
    """Nearest even, overflow to infinity, subnormals kept (PTX cvt.rn.bf16.f32)."""
    words = values.view(np.uint32)
    rounded = np.right_shift(words, np.uint32(16))
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += words
    rounded >>= np.uint32(16)
    out = rounded.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        out[nan] = NAN16
    return out


def f32_to_f16(values: Floats) -> Bits:
    """Nearest even, overflow to infinity, subnormals kept (PTX cvt.rn.f16.f32)."""
    words = values.view(np.uint32)
    magnitude = words & np.uint32(0x7FFFFFFF)
    sign = (words >> np.uint32(16)) & np.uint32(0x8000)
    normal = (magnitude >> np.uint32(13)) & np.uint32(1)
    normal += magnitude
    normal -= np.uint32(0x38000000 - 0xFFF)
    normal >>= np.uint32(13)
    small = magnitude < np.uint32(0x38800000)
    if small.any():
        # Adding 0.5 makes the adder round at 2**-24, the subnormals' unit; its low bits are then the result.
        subnormal = (magnitude.view(np.float32) + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000)
        np.copyto(normal, subnormal, where=small)
    large = magnitude >= np.uint32(0x477FF000)
    if large.any():
        normal[large] = 0x7C00
        normal[magnitude > np.uint32(0x7F800000)] = NAN16
        sign[magnitude > np.uint32(0x7F800000)] = 0
    normal |= sign
    return normal.astype(np.uint16)


HALVES: dict[str, tuple[Callable[[Bits], Floats], Callable[[Floats], Bits]]] = {
    "f16": (f16_to_f32, f32_to_f16),
    "bf16": (bf16_to_f32, f32_to_bf16),
}
"""How bits of a type become float32, and the other way."""


def unpack(words: Words) -> tuple[Bits, Bits]:
    """The low and the high half of each 32-bit word."""
    halves = np.ascontiguousarray(words).view(np.uint16)
    return halves[0::2], halves[1::2]


def pack(low: Bits, high: Bits) -> Words:
    """Two halves to a word."""
    out: Words = np.left_shift(high, np.uint32(16), dtype=np.uint32) | low
    return out


def to_odd_f32(values: Doubles) -> Floats:
    """float64 to float32, rounded to odd: a second rounding to 22 bits or fewer then gives what one rounding would."""
    out = values.astype(np.float32)
    back = out.astype(np.float64)
    inexact = (back != values) & np.isfinite(values)
    if inexact.any():
        words = out.view(np.uint32)
        words[inexact & (np.abs(back) > np.abs(values))] -= np.uint32(1)
        words[inexact] |= np.uint32(1)
    return out


def fused_odd(a: Floats, b: Floats, c: Floats) -> Doubles:
    """a * b + c: the product is exact in float64, the sum is rounded there to odd."""
    return odd_f64(*two_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)))


def fma_f32(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c, rounded once."""
    return canonical_f32(fused_odd(a, b, c).astype(np.float32))


def fma_f64(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """a * b + c, rounded once: product and sums with their errors, the last of them rounded to odd.

    Where an error could be too small or a product too big for float64, Python's fractions take over.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    product, low = two_product(a, b)
    middle, least = two_sum(c, low)
    high, rest = two_sum(product, middle)
    out = high + odd_f64(*two_sum(least, rest))
    plain = ~(np.isfinite(a) & np.isfinite(b)) | (a == 0) | (b == 0)
    out[plain] = (a * b + c)[plain]
    kept = np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c)
    out[kept] = c[kept]
    size_a, size_b = np.abs(a), np.abs(b)
    safe = (np.minimum(size_a, size_b) > 2.0**-480) & (np.maximum(size_a, size_b) < 2.0**480) & (np.abs(c) < 2.0**1000)
    for index in np.flatnonzero(~(safe | plain | kept)):
        out[index] = once(Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index])))
    return canonical_f64(out)


def two_product(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Return, by Dekker, the rounded product and its error, from halves of 26 bits whose products are exact."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halved(a), _halved(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halved(a: Doubles) -> tuple[Doubles, Doubles]:
    scaled = a * 134217729.0  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


def fma_odd(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c of values that 16 bits hold, rounded to odd in float32: rounded to 16 bits it is rounded once."""
    return to_odd_f32(fused_odd(a, b, c))


def pick_floats(a: Lanes, b: Lanes, larger: bool, propagate: bool) -> Lanes:
    """PTX min (max, if larger) of float32 or float64 lanes: -0 is below +0.

    propagate: a NaN on either side gives NaN (.NaN). Without, the other operand counts, and NaN comes of two NaN only.
    """
    out: Lanes = np.atleast_1d((np.maximum if larger else np.minimum)(a, b))
    if not propagate and math.isnan(np.add.reduce(out, axis=None)):  # fmin's scalar loop lets signalling NaN win
        np.copyto(out, b, where=np.isnan(a))
        np.copyto(out, a, where=np.isnan(b))
    same = a == b
    if same.any():
        bits = f"u{out.dtype.itemsize}"
        signs = np.bitwise_and if larger else np.bitwise_or  # of equal values only zeros differ, in their sign
        signs(a.view(bits), b.view(bits), out=out.view(bits), where=same)
    return canonical_f32(out) if out.dtype == np.float32 else canonical_f64(out)


def pick_bits(a: Lanes, b: Lanes, infinity: int, larger: bool, propagate: bool) -> Lanes:
    """As pick_floats, of floats of 8 or 16 bits kept as their bits; what lies above infinity, sign aside, is NaN."""
    whole = np.dtype(f"i{a.dtype.itemsize}")
    top = np.array(np.iinfo(whole).max, whole)
    shift = np.array(8 * whole.itemsize - 1, whole)
    left, right = a.view(whole), b.view(whole)
    function = np.maximum if larger else np.minimum
    # With the magnitude of negative ones turned over, patterns are ordered as integers; the same turn brings them back.
    picked = function(left ^ (left >> shift & top), right ^ (right >> shift & top))
    out = np.atleast_1d(picked ^ (picked >> shift & top))
    no_left, no_right = (left & top) > infinity, (right & top) > infinity
    if no_left.any() or no_right.any():
        if not propagate:
            np.copyto(out, right, where=no_left)
            np.copyto(out, left, where=no_right)
        np.copyto(out, top, where=(no_left | no_right) if propagate else (no_left & no_right))
    return out.view(a.dtype)


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """Knuth's: the rounded sum and its error; their exact sum is a + b where nothing overflows."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def odd_f64(total: Doubles, error: Doubles) -> Doubles:
    """Return total + error (|error| at most half a unit of total), rounded to odd in float64."""
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error)
    if not inexact.any():
        return total
    bits = total.view(np.uint64).copy()
    away = inexact & ((error < 0) != (total < 0)) & (total != 0)
    bits[away] -= np.uint64(1)
    bits[inexact] |= np.uint64(1)
    return bits.view(np.float64)


def exact_sum(parts: list[Floats], significant_bits: int = 24) -> Doubles:
    """The sum over the list, rounded once, to odd in float64: rounding it further to 51 bits or fewer is correct.

    parts hold values of significant_bits each. Where their exponents lie close enough, float64 holds every sum
    exactly. Else: a running sum with its error terms; where an error term itself was not exact, Python's exact fsum
    takes over. Starts from +0, so -0 never comes out. Infinities and NaN follow IEEE addition.
    """
    if _binades(parts) + significant_bits + len(parts).bit_length() <= 53:
        plain = parts[0] + np.float64(0)
        for part in parts[1:]:
            plain += part
        return plain
    total = np.zeros(parts[0].shape, np.float64)
    error = np.zeros(parts[0].shape, np.float64)
    lost = np.zeros(parts[0].shape, np.bool_)
    for part in parts:
        total, this = two_sum(total, part.astype(np.float64))
        if not this.any():
            continue
        error, rest = two_sum(error, this)
        lost |= rest != 0
    special = ~np.isfinite(total)
    if not error.any() and not special.any():
        return total
    folded, residue = two_sum(total, error)
    out = odd_f64(folded, residue)
    for index in np.argwhere(lost & ~special):
        out[tuple(index)] = _fsum_to_odd([float(part[tuple(index)]) for part in parts])
    if special.any():
        plain = np.zeros(parts[0].shape, np.float64)
        for part in parts:
            plain = plain + part.astype(np.float64)
        out[special] = plain[special]
    return out


def exact_sum_f64(parts: list[Doubles]) -> Doubles:
    """The sum over the list, exact and rounded once to float64. Never -0."""
    total = np.zeros(parts[0].shape, np.float64)
    unsure = np.zeros(parts[0].shape, np.bool_)
    for part in parts:
        total, error = two_sum(total, part)
        unsure |= error != 0  # a NaN too
    for index in np.argwhere(unsure):
        total[tuple(index)] = _sum_once([float(part[tuple(index)]) for part in parts])
    return total


def _sum_once(values: list[float]) -> float:
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return sum(special)
    return once(sum(map(Fraction, values), Fraction(0)))


def once(exact: Fraction) -> float:
    """Return a fraction rounded to float64; what is too big is an infinity."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _binades(parts: list[Floats]) -> int:
    """How many powers of two lie between the smallest and largest non-zero magnitude; subnormals count generously."""
    sign = np.uint32(0x7FFFFFFF)
    largest, smallest = 0, 0xFFFFFFFF
    for part in parts:
        magnitude = part.view(np.uint32) & sign
        largest = max(largest, int(magnitude.max(initial=0)))
        magnitude -= np.uint32(1)  # zero becomes the largest of all
        smallest = min(smallest, int(magnitude.min(initial=0xFFFFFFFF)))
    if largest >= 0x7F800000:
        return 1 << 16
    if smallest < 0x00800000:
        return 1 << 8 if largest >= 0x00800000 else 24
    return max(0, (largest >> 23) - (smallest >> 23)) + 1 if smallest < sign else 0


def _fsum_to_odd(values: list[float]) -> float:
    total = math.fsum(values)
    error = math.fsum([*values, -total])
    return float(odd_f64(np.array([total]), np.array([error]))[0])
