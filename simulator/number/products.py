"""Matrix products as tensor cores of Hopper compute them: D = A B + C of one instruction is one sum.

Of all products and C, each a whole significand, the largest exponent counts, where a product has the sum of its
factors' exponents and is not normalised. All are cut toward zero behind a number of bits below that exponent, and
added exactly. A float32 result is cut toward zero, to 23 bits behind the point or, of 8-bit floats in wgmma, to 13;
a float16 result is rounded to nearest, ties to even. NaN has one pattern, subnormals count.

Data whose sums lose nothing on the way, such as small integers, give the same bits by one float32 matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.number.float8 import FLOATS8

Array = npt.NDArray[Any]
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
"""Bits of an element in registers and in shared memory."""
SMALL = {"e2m3": 6, "e3m2": 6, "e2m1": 4}
"""Bits of the elements that have fewer than 8, each a code in a byte here; they have no infinity and no NaN."""
BITS |= dict.fromkeys(SMALL, 8)
_EXPONENTS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "f32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}
_EXPONENTS |= {"e2m3": (2, 3), "e3m2": (3, 2), "e2m1": (2, 1)}
_GROUP = 16
"""Products of 4-bit elements that are added exactly before anything is cut."""
_NEVER = -4000
"""An exponent below all others, of what adds nothing."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How an instruction sums. fraction: bits kept below the largest exponent; kept: bits behind the point of a float32
    result; saturates: of integers; divides: C is divided by two to the power of it."""

    fraction: int = 25
    kept: int = 23
    saturates: bool = False
    divides: int = 0


@dataclass(frozen=True, slots=True)
class Numbers:
    """Elements as float64, and their exponents: of subnormals the least, of zeros and of what is special _NEVER."""

    values: Array
    exponents: Array
    is_special: bool

    @property
    def unit(self) -> int:
        """The exponent of the largest power of two that divides all of them, 4000 if all are zeros."""
        fractions, exponents = np.frexp(self.values[self.values != 0])
        if not len(fractions):
            return -_NEVER
        whole = (np.abs(fractions) * (1 << 24)).astype(np.int64)
        return int((exponents + np.frexp((whole & -whole).astype(np.float64))[1]).min()) - 25


def decoded(codes: Array, kind: str) -> Numbers:
    """Read elements of a type from their bits."""
    exponent_bits, fraction_bits = _EXPONENTS[kind]
    if kind == "tf32":
        codes = codes & np.uint32(0xFFFFE000)
    shift = 13 if kind == "tf32" else 0
    fields = codes.astype(np.int32) >> fraction_bits + shift & (1 << exponent_bits) - 1
    values = widened(codes, kind).astype(np.float64)
    special = ~np.isfinite(values)
    is_special = bool(special.any())
    exponents = np.maximum(fields, 1) - ((1 << exponent_bits - 1) - 1)
    exponents[(values == 0) | special] = _NEVER
    return Numbers(values, exponents.astype(np.int16), is_special)


def widened(codes: Array, kind: str) -> Array:
    """Elements of a type as float32."""
    if kind in ("f32", "tf32"):
        found: Array = codes.view(np.float32)
    elif kind == "f16":
        found = codes.view(np.float16).astype(np.float32)
    elif kind == "bf16":
        found = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif kind in SMALL:
        found = _small(kind)[codes]
    else:
        found = FLOATS8[kind].to_f32(codes)
    return found


@cache
def _small(kind: str) -> Array:
    """The value of each code, whose exponents have a bias as that of other floats."""
    exponents, bits = _EXPONENTS[kind]
    codes = np.arange(1 << exponents + bits)
    fields, fractions = codes >> bits, codes & (1 << bits) - 1
    whole = np.where(fields > 0, fractions | 1 << bits, fractions)
    half = np.ldexp(whole.astype(np.float32), np.maximum(fields, 1) - (1 << exponents - 1) + 1 - bits)
    return np.concatenate([half, -half])


def decoded_scales(codes: Array, kind: str) -> Numbers:
    """Read scale factors: ue8m0, powers of two of which the last code is NaN, or ue4m3."""
    if kind == "ue4m3":
        return decoded(codes, "e4m3")
    exponents = codes.astype(np.int16) - 127
    special = codes == 255
    values = np.where(special, np.nan, np.ldexp(1.0, exponents.astype(np.int32)))
    return Numbers(values, np.where(special, _NEVER, exponents).astype(np.int16), bool(special.any()))


def multiplied_scaled(
    matrices: tuple[Array, Array], scales: tuple[Array, Array], c: Array | None, kinds: tuple[str, str, str], scale: str
) -> Array:
    """The same with scale factors of blocks along the depth, as bits of (n, rows, blocks) and (n, columns, blocks) of
    the type scale. 4-bit elements in several blocks: groups of 16 are summed exactly, multiplied by both factors, and
    cut 35 bits behind the largest exponent of C and of the groups, where a group has that of its factors. Others have
    one block: each term has the exponents of the factors besides."""
    rest = None if c is None else decoded(c, kinds[0])
    sides = [decoded(one, kind) for one, kind in zip(matrices, kinds[1:], strict=True)]
    factors = [decoded_scales(one, scale) for one in scales]
    if scales[0].shape[-1] > 1:
        return _summed_by_groups(sides, factors, rest)
    left, right = (
        Numbers(one.values * factor.values, one.exponents + factor.exponents, one.is_special or factor.is_special)
        for one, factor in zip(sides, factors, strict=True)
    )
    return _summed(left, right, rest, kinds[0], Precision())


def _summed_by_groups(sides: list[Numbers], factors: list[Numbers], rest: Numbers | None) -> Array:
    a, b = (one.values.reshape(*one.values.shape[:2], -1, _GROUP).transpose(2, 0, 1, 3) for one in sides)
    sums = np.matmul(a.astype(np.float32), b.astype(np.float32).transpose(0, 1, 3, 2)).astype(np.float64)
    count = len(sums) // factors[0].values.shape[-1]
    left, right = (
        [np.repeat(np.moveaxis(part, -1, 0), count, axis=0) for part in (one.values, one.exponents)] for one in factors
    )
    terms = sums * left[0][:, :, :, None] * right[0][:, :, None, :]
    exponents = np.where(terms == 0, _NEVER, left[1][:, :, :, None] + right[1][:, :, None, :])
    if rest is not None:
        terms, exponents = np.concatenate([terms, rest.values[None]]), np.concatenate([exponents, rest.exponents[None]])
    largest = np.maximum(exponents.max(axis=0), -900)
    with np.errstate(invalid="ignore"):
        decided = np.where(np.isfinite(terms), 0.0, terms).sum(axis=0)
    cut = np.trunc(np.where(np.isfinite(terms), terms, 0.0) * _power(35 - largest))
    return _decided(_toward_zero((cut.sum(axis=0) + 0.0) * _power(largest - 35), 23), decided, "f32")


def multiplied(a: Array, b: Array, c: Array | None, kinds: tuple[str, str, str], how: Precision) -> Array:
    """Return the bits of D. a: bits of (n, rows, depth), b: of (n, columns, depth), c: of (n, rows, columns), None for
    zeros; kinds: types of D and C, of A and of B."""
    rest = None if c is None else decoded(c, kinds[0])
    if rest is not None and how.divides:
        shifted = np.maximum(rest.exponents - how.divides, _NEVER).astype(np.int16)
        rest = Numbers(rest.values * 2.0**-how.divides, shifted, rest.is_special)
    return _summed(decoded(a, kinds[1]), decoded(b, kinds[2]), rest, kinds[0], how)


def multiplied_as_halves(a: Array, b: Array, c: Array, kinds: tuple[str, str, str]) -> Array:
    """The same of 8-bit floats for mma.sync, of which Hopper has none: they become float16. The products of the first
    two of each four elements are one sum, to which those of the others are added; at last C is, rounded to nearest."""
    halves = [FLOATS8[kind].to_f16(one) for one, kind in zip((a, b), kinds[1:], strict=True)]
    found: Array | None = None
    for some in (0, 2):
        left, right = (
            one.reshape(*one.shape[:2], -1, 4)[..., some : some + 2].reshape(*one.shape[:2], -1) for one in halves
        )
        found = multiplied(left, right, found, (kinds[0], "f16", "f16"), Precision())
    assert found is not None
    kind, nan = ("f2", 0x7FFF) if kinds[0] == "f16" else ("f4", 0x7FFFFFFF)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = found.view(kind) + np.ascontiguousarray(c).view(kind)
    return np.where(np.isnan(sums), nan, sums.view(found.dtype)).astype(found.dtype)


def _summed(left: Numbers, right: Numbers, rest: Numbers | None, d: str, how: Precision) -> Array:
    parts = [one for one in (left, right, rest) if one is not None]
    if any(one.is_special for one in parts):
        return _with_specials(left, right, rest, d, how)
    if _loses_nothing(left, right, rest, how):
        sums = np.matmul(left.values.astype(np.float32), right.values.astype(np.float32).transpose(0, 2, 1))
        if rest is not None:
            sums += rest.values.astype(np.float32)
        return _bits(sums + np.float32(0), d, how)
    shape = (left.values.shape[0], left.values.shape[1], right.values.shape[1])
    sums = np.empty(shape)
    for at in range(shape[0]):
        _sum_exactly(left, right, rest, how, at, sums[at])
    return _bits(sums, d, how)


def _loses_nothing(left: Numbers, right: Numbers, rest: Numbers | None, how: Precision) -> bool:
    """Whether all terms are multiples of a unit that none is cut below, and all their sums fewer than a float32 or the
    result counts. A subnormal's exponent is larger than its value says."""
    sizes = [float(np.abs(one.values).max()) for one in (left, right)]
    if max(sizes) >= 2.0**120 or min(left.unit, right.unit) < -120:
        return False  # with scale factors float32 may not have them
    most = sizes[0] * sizes[1] * left.values.shape[-1]
    unit, largest = left.unit + right.unit, int(left.exponents.max()) + int(right.exponents.max())
    if rest is not None:
        largest = max(largest, int(rest.exponents.max()))
        most += float(np.abs(rest.values).max())
        unit = min(unit, rest.unit)
    bits = min(how.fraction, how.kept) + 1
    return unit >= max(-120, largest - how.fraction) and (most == 0 or most < 2.0 ** min(bits + unit, 120))


def _sum_exactly(left: Numbers, right: Numbers, rest: Numbers | None, how: Precision, at: int, sums: Array) -> None:
    """The sums of one tile, each term cut."""
    a, b = (np.ascontiguousarray(one.values[at].T) for one in (left, right))
    ea, eb = (np.ascontiguousarray(one.exponents[at].T) for one in (left, right))
    largest = np.full(sums.shape, _NEVER, np.int16) if rest is None else rest.exponents[at].copy()
    some = np.empty(sums.shape, np.int16)
    for row, column in zip(ea, eb, strict=True):
        np.add(row[:, None], column, out=some)
        np.maximum(largest, some, out=largest)
    np.maximum(largest, -900, out=largest)
    scale, back = _power(how.fraction - largest), _power(largest - how.fraction)
    if rest is None:
        sums[...] = 0
    else:
        np.multiply(rest.values[at], scale, out=sums)
        np.trunc(sums, out=sums)
    term = np.empty(sums.shape)
    for row, column in zip(a, b, strict=True):
        np.multiply(row[:, None], column, out=term)
        term *= scale
        np.trunc(term, out=term)
        sums += term
    sums += 0.0  # no zero is negative
    sums *= back


def _power(exponents: Array) -> Array:
    """Two to the power of exponents from -1022 to 1023."""
    found: Array = (exponents.astype(np.int64) + 1023 << 52).view(np.float64)
    return found


def _bits(sums: Array, d: str, how: Precision) -> Array:
    """The bits of results in the type of D."""
    if d == "f16":
        with np.errstate(over="ignore"):
            found: Array = sums.astype(np.float16).view(np.uint16)
        return found
    if sums.dtype == np.float32 and how.kept == 23:
        bits: Array = sums.view(np.uint32)
        return bits
    return _toward_zero(sums.astype(np.float64), how.kept)


def _toward_zero(sums: Array, kept: int) -> Array:
    """float64 as float32 with some bits behind the point, cut toward zero."""
    raw = np.ascontiguousarray(sums).view(np.uint64) & np.uint64((1 << 64) - (1 << 52 - kept))
    cut = raw.view(np.float64)
    small = np.abs(cut) < 2.0**-126
    if small.any():
        cut = np.where(small, np.trunc(cut * 2.0**149) * 2.0**-149, cut)
    with np.errstate(over="ignore"):
        found: Array = cut.astype(np.float32).view(np.uint32)
    return found


def _with_specials(left: Numbers, right: Numbers, rest: Numbers | None, d: str, how: Precision) -> Array:
    """Where infinities and NaNs are among the terms they decide; all other sums are as ever."""
    finite = [_finite(one) for one in (left, right)]
    made = _summed(finite[0], finite[1], None if rest is None else _finite(rest), d, how)
    with np.errstate(invalid="ignore"):
        decided = np.zeros(made.shape) if rest is None else np.where(np.isfinite(rest.values), 0.0, rest.values)
        a, b = left.values, right.values
        for at in range(a.shape[-1]):
            if not (np.isfinite(a[..., at]).all() and np.isfinite(b[..., at]).all()):
                term = a[..., at][:, :, None] * b[..., at][:, None, :]
                decided = decided + np.where(np.isfinite(term), 0.0, term)
    return _decided(made, decided, d)


def _decided(made: Array, decided: Array, d: str) -> Array:
    """The bits of sums, but where infinities and NaNs are."""
    infinity, nan = (0x7C00, 0x7FFF) if d == "f16" else (0x7F800000, 0x7FFFFFFF)
    sign = 0x8000 if d == "f16" else 0x80000000
    made = np.where(np.isinf(decided), np.where(decided < 0, infinity | sign, infinity), made)
    return np.where(np.isnan(decided), nan, made).astype(np.uint16 if d == "f16" else np.uint32)


def _finite(one: Numbers) -> Numbers:
    return Numbers(np.where(np.isfinite(one.values), one.values, 0.0), one.exponents, False)


def multiplied_integers(a: Array, b: Array, c: Array | None, saturates: bool) -> Array:
    """Return D of integers: a, b of 8 bits, c and D int32, which wraps or saturates."""
    sums = np.matmul(a.astype(np.float32), b.astype(np.float32).transpose(0, 2, 1)).astype(np.int64)
    if c is not None:
        sums += c.view(np.int32)
    if saturates:
        sums = np.clip(sums, -(1 << 31), (1 << 31) - 1)
    found: Array = sums.astype(np.int32).view(np.uint32)
    return found
