"""The number formats that collectives work in: their limits, rounding to them, and distances along their numbers.

For the floats of cases/dtypes.py and for its integers. Every step is elementwise and rounded as IEEE 754
says, so that a GPU's tensors give the same bits as the CPU's (torch.set_flush_denormal must be off, as it is by
default). torch has few operations for float8 and for unsigned integers: here they are done on the signed integers of
the same width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cases.dtypes import SIGNIFICAND_BITS

INT64_MAX = (1 << 63) - 1

Rounding = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: significand_bits with the hidden one, exponents of the normal numbers' leading
    bit. Without infinity (float8_e4m3fn) all bits set is the only NaN, and numbers go up to the pattern before it."""

    significand_bits: int
    smallest_exponent: int
    largest_exponent: int
    bits: torch.dtype
    """The signed integer type of the same width."""
    has_infinity: bool = True

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest."""
        return math.ldexp(1.0, -self.significand_bits)

    @property
    def smallest_subnormal(self) -> float:
        return math.ldexp(1.0, self.smallest_exponent - self.significand_bits + 1)

    @property
    def smallest_normal(self) -> float:
        return math.ldexp(1.0, self.smallest_exponent)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        steps = 1 if self.has_infinity else 2
        return math.ldexp(2.0 - 2.0 * steps * self.unit_roundoff, self.largest_exponent)

    @property
    def overflow(self) -> float:
        """Where the number after the largest would be: a power of two, and infinity's place when that is taken as the
        next number of the line. float64 can't hold its own: inf there."""
        if self.largest_exponent == 1023:
            return math.inf
        return self.largest + math.ldexp(1.0, self.largest_exponent - self.significand_bits + 1)

    @property
    def largest_bits(self) -> int:
        """The pattern of the largest finite number."""
        return self.infinity_bits - 1

    @property
    def infinity_bits(self) -> int:
        """The pattern after the largest finite number's: infinity, or the NaN of a format that has none."""
        width = 8 * self.bits.itemsize
        if not self.has_infinity:
            return (1 << (width - 1)) - 1
        return (2 * self.largest_exponent + 1) << (self.significand_bits - 1)


FORMATS: dict[torch.dtype, Format] = {
    torch.float64: Format(SIGNIFICAND_BITS["float64"], -1022, 1023, torch.int64),
    torch.float32: Format(SIGNIFICAND_BITS["float32"], -126, 127, torch.int32),
    torch.float16: Format(SIGNIFICAND_BITS["float16"], -14, 15, torch.int16),
    torch.bfloat16: Format(SIGNIFICAND_BITS["bfloat16"], -126, 127, torch.int16),
    torch.float8_e4m3fn: Format(SIGNIFICAND_BITS["float8_e4m3fn"], -6, 8, torch.int8, has_infinity=False),
    torch.float8_e5m2: Format(SIGNIFICAND_BITS["float8_e5m2"], -14, 15, torch.int8),
}

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)

_INTEGER_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_float(dtype: torch.dtype) -> bool:
    return dtype in FORMATS


def is_signed(dtype: torch.dtype) -> bool:
    """Whether an integer type has negative numbers."""
    return dtype not in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def bits_of(value: torch.Tensor) -> torch.Tensor:
    """The same memory as signed integers of the same width, whatever the type."""
    return value.view(_INTEGER_BITS[value.dtype.itemsize])


def is_nan(value: torch.Tensor) -> torch.Tensor:
    """Where a tensor of any type holds NaN (bool)."""
    if value.dtype in FLOAT8:
        form = FORMATS[value.dtype]
        return (bits_of(value) & 0x7F) > form.largest_bits + form.has_infinity
    return value.isnan()


def widen(value: torch.Tensor) -> torch.Tensor:
    """Floats in the type that they are computed with here: float64 as it is, all others exactly in float32."""
    return value if value.dtype is torch.float64 else value.to(torch.float32)


def to_float64(value: torch.Tensor) -> torch.Tensor:
    """Numbers of any type as float64: exact but for 64-bit integers, which are rounded."""
    if value.dtype is torch.uint64:
        bits = bits_of(value)
        high, low = (bits >> 32) & 0xFFFFFFFF, bits & 0xFFFFFFFF
        return high.to(torch.float64) * 2.0**32 + low.to(torch.float64)
    if value.dtype is torch.uint32:
        return (bits_of(value).to(torch.int64) & 0xFFFFFFFF).to(torch.float64)
    return value.to(torch.float32).to(torch.float64) if value.dtype in FLOAT8 else value.to(torch.float64)


def narrow(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float32 or float64 rounded once, to nearest even, to a float type.

    float8 as PTX's satfinite does it: what is beyond the largest finite number, and infinity itself, becomes that
    number with its sign; NaN stays NaN. Other types overflow to infinity. (torch's own conversion to float8 saturates
    in some versions and not in others: nothing here gives it anything that is too large.)
    """
    if value.dtype is torch.float64 and dtype is not torch.float64:
        return round_to(value, dtype)
    return _saturated(value, dtype).to(dtype)


def _saturated(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in FLOAT8:
        return value
    largest = FORMATS[dtype].largest
    return value.clamp(-largest, largest)


def round_to(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 rounded once, to nearest even, to dtype; float8 with satfinite. (torch's own conversion to 16 bits goes
    through float32.)"""
    rounded = _saturated(on_grid(value, dtype, torch.round), dtype)
    return rounded.to(torch.float32).to(dtype) if dtype in FLOAT8 else rounded.to(dtype)


def on_grid(value: torch.Tensor, dtype: torch.dtype, rounding: Rounding) -> torch.Tensor:
    """float64 values moved to the dtype's grid by torch.round, floor or ceil, as if exponents had no upper end; NaN and
    infinities stay."""
    if dtype is torch.float64:
        return value
    step = _step(value, dtype)
    return torch.where(value.isfinite(), rounding(value / step) * step, value)


def _step(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbours of dtype around each float64 value (as if exponents had no upper end)."""
    form = FORMATS[dtype]
    _, exponent = torch.frexp(torch.where(value.isfinite(), value, 1.0))
    exponent = (exponent.to(torch.int64) - 1).clamp(min=form.smallest_exponent) - (form.significand_bits - 1)
    return ((exponent + 1023) << 52).view(torch.float64)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype hold the same bits, or both a NaN (bool). +0 and -0 are not the same."""
    same = bits_of(left) == bits_of(right)
    return same | (is_nan(left) & is_nan(right)) if is_float(left.dtype) else same


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """How many steps along the dtype's numbers lie between left and right (int64, at most INT64_MAX).

    The line is that of the numbers in order: +0 and -0 are one place on it, infinity is the step after the largest
    finite number. Two NaNs are 0 apart; a NaN is farther from any number (by nan_distance) than numbers are from each
    other. Between integers it is the absolute difference. 64-bit types have distances above INT64_MAX, which count as
    that.
    """
    one, other = _place(left), _place(right)
    distance = torch.maximum(one, other) - torch.minimum(one, other)
    if left.dtype.itemsize == 8:
        distance = torch.where(distance < 0, INT64_MAX, distance)  # it has wrapped around
    if is_float(left.dtype):
        nan, nan_too = is_nan(left), is_nan(right)
        distance[nan ^ nan_too] = nan_distance(left.dtype)
        distance[nan & nan_too] = 0
    return distance


def nan_distance(dtype: torch.dtype) -> int:
    """The distance of a NaN from every number: one more than from the lowest to the highest, but at most INT64_MAX."""
    form = FORMATS[dtype]
    return min(2 * (form.largest_bits + form.has_infinity) + 1, INT64_MAX)


def _place(value: torch.Tensor) -> torch.Tensor:
    """The place on the ordered line, as int64. Floats: the bits as magnitude, with the sign. uint64: 2**63 lower."""
    bits = bits_of(value).to(torch.int64)
    width = 8 * value.dtype.itemsize
    if is_float(value.dtype):
        magnitude = bits & ((1 << (width - 1)) - 1)
        return torch.where(bits < 0, -magnitude, magnitude)
    if is_signed(value.dtype):
        return bits
    return bits ^ -(1 << 63) if width == 64 else bits & ((1 << width) - 1)
