"""What results must be: the kernels' folds bit by bit, exact sums, distances in ulps, and error bounds with their
derivation.

All of it works on tensors of float32, float16 and bfloat16, with torch's own arithmetic: IEEE 754, to nearest even,
with subnormals (torch.set_flush_denormal must be off, as it is by default). Every step is elementwise and rounded as
IEEE 754 says, so that a GPU's tensors give the same bits as the CPU's.

**Folds.** Peer-to-peer kernels start with the first contribution itself (not with zero plus it, so that -0.0 survives
and a single contribution keeps its bits), add the others in a stated order, and round to the dtype

- accumulator "float32": once, at the end; contributions are widened exactly and added in float32;
- accumulator "native": after every addition, which is an addition in the dtype.

A 16-bit addition is done here as a float32 addition that is rounded to 16 bits. The double rounding is innocuous:
with p bits of significand in the dtype and P in the wider format, P >= 2p + 2 suffices for a sum (Figueroa 1995); 24
>= 2 * 11 + 2 for float16, 24 >= 2 * 8 + 2 for bfloat16. Below the dtype's normal range sums are exact in both formats
(both operands are multiples of the smallest subnormal), and a float32 sum overflows only where bfloat16, which has
the same exponents, does too.

**NaN.** PTX arithmetic gives one canonical NaN (0x7fff for 16 bits, 0x7fffffff for float32), torch another. Which NaN
it is carries no information here: two NaNs are the same wherever bits are compared (same_bits).

**Unordered sums.** See bound().
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format: significand_bits with the hidden one, exponents of the normal numbers' leading
    bit."""

    significand_bits: int
    smallest_exponent: int
    largest_exponent: int
    bits: torch.dtype
    """The signed integer type of the same width."""

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
        return math.ldexp(2.0 - 2.0 * self.unit_roundoff, self.largest_exponent)

    @property
    def overflow(self) -> float:
        """The power of two after the largest number: where infinity sits when it is taken as the next number of the
        line."""
        return math.ldexp(1.0, self.largest_exponent + 1)

    @property
    def infinity_bits(self) -> int:
        return (2 * self.largest_exponent + 1) << (self.significand_bits - 1)


FORMATS: dict[torch.dtype, Format] = {
    torch.float32: Format(24, -126, 127, torch.int32),
    torch.float16: Format(11, -14, 15, torch.int16),
    torch.bfloat16: Format(8, -126, 127, torch.int16),
}


def accumulator_dtype(dtype: torch.dtype, accumulator: str) -> torch.dtype:
    """The type that sums are kept in. ValueError for an accumulator that nobody knows."""
    if accumulator not in ("float32", "native"):
        raise ValueError(f"accumulator '{accumulator}': must be float32 or native")
    return torch.float32 if accumulator == "float32" else dtype


def fold(parts: Sequence[torch.Tensor], accumulator: str, first: torch.Tensor | None = None) -> torch.Tensor:
    """The sum of parts (1-D, one dtype), added in order, bit for bit as the peer-to-peer kernels add.

    first, where given, has for each element the number of the part to start with (int64, 0 to n-1); the others follow
    cyclically. Without it every element starts with part 0. A single part comes back with its own bits.
    """
    wide = accumulator_dtype(parts[0].dtype, accumulator)
    if first is None:
        return _fold_in_order(parts, wide)
    result = torch.empty_like(parts[0])
    for start in torch.unique(first).tolist():
        here = (first == start).nonzero().squeeze(1)
        rotated = [part[here] for part in (*parts[start:], *parts[:start])]
        result[here] = _fold_in_order(rotated, wide)
    return result


def _fold_in_order(parts: Sequence[torch.Tensor], wide: torch.dtype) -> torch.Tensor:
    dtype = parts[0].dtype
    if len(parts) == 1:
        return parts[0].clone()
    total = parts[0].to(torch.float32)
    for part in parts[1:]:
        total = total + part.to(torch.float32)
        if wide is not torch.float32:
            total = total.to(dtype).to(torch.float32)
    return total.to(dtype)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype hold the same bits, or both a NaN (bool). +0 and -0 are not the same."""
    bits = FORMATS[left.dtype].bits
    return (left.view(bits) == right.view(bits)) | (left.isnan() & right.isnan())


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """How many steps along the dtype's numbers lie between left and right (int64).

    The line is that of the numbers in order: +0 and -0 are one place on it, infinity is the step after the largest
    finite number. Two NaNs are 0 apart; a NaN is farther from any number (by nan_distance) than numbers are from each
    other.
    """
    distance = (_place(left) - _place(right)).abs()
    one, other = left.isnan(), right.isnan()
    distance[one ^ other] = nan_distance(left.dtype)
    distance[one & other] = 0
    return distance


def nan_distance(dtype: torch.dtype) -> int:
    """The distance of a NaN from every number: one more than from -infinity to +infinity."""
    return 2 * FORMATS[dtype].infinity_bits + 1


def _place(value: torch.Tensor) -> torch.Tensor:
    """The place on the ordered line, as int64: the bits as magnitude, with the sign."""
    form = FORMATS[value.dtype]
    bits = value.view(form.bits).to(torch.int64)
    magnitude = bits & ((1 << (8 * value.dtype.itemsize - 1)) - 1)
    return torch.where(bits < 0, -magnitude, magnitude)


def round_to(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 rounded once, to nearest even, to dtype. (torch's own conversion to 16 bits goes through float32.)"""
    finite = value.isfinite()
    step = _step(value, dtype)
    rounded = torch.where(finite, torch.round(value / step) * step, value)
    return rounded.to(dtype)


def _step(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbours of dtype around each float64 value (as if exponents had no upper end)."""
    form = FORMATS[dtype]
    _, exponent = torch.frexp(torch.where(value.isfinite(), value, 1.0))
    exponent = (exponent.to(torch.int64) - 1).clamp(min=form.smallest_exponent) - (form.significand_bits - 1)
    return ((exponent + 1023) << 52).view(torch.float64)


@dataclass(frozen=True, slots=True)
class ExactSum:
    """Sums of the parts without error: value is each exact sum rounded once to float64, magnitude the sum of |x|
    (float64, with a relative error below n * 2**-53)."""

    value: torch.Tensor
    magnitude: torch.Tensor


def exact_sum(parts: Sequence[torch.Tensor]) -> ExactSum:
    """The sums of the parts, exact and then rounded once to float64.

    Adding in float64 is exact as long as all bits between the last place of the smallest part and the first of the
    largest sum fit into 53; that is so for every float16 and for most other data, and seen from the extremes of the
    data. Otherwise each addition's error is computed (Knuth's two-sum), and elements where one is not zero are summed
    again by math.fsum. Infinities and NaN follow IEEE rules, which give the same in every order.
    """
    value = parts[0].to(torch.float64)
    magnitude = value.abs()
    surely_exact = _fits_float64(parts)
    suspect = torch.zeros_like(value, dtype=torch.bool)
    for part in parts[1:]:
        wide = part.to(torch.float64)
        total = value + wide
        if not surely_exact:
            back = total - value
            suspect |= ((value - (total - back)) + (wide - back)) != 0
        value = total
        magnitude += wide.abs()
    again = (suspect & magnitude.isfinite()).nonzero().squeeze(1)
    if again.numel():
        rows = torch.stack([part[again].to(torch.float64) for part in parts], dim=1).tolist()
        value[again] = torch.tensor([math.fsum(row) for row in rows], dtype=torch.float64, device=value.device)
    return ExactSum(value, magnitude)


def _fits_float64(parts: Sequence[torch.Tensor]) -> bool:
    """Whether no float64 sum of these parts, in any order, can lose a bit. False where they hold NaN or infinity."""
    form = FORMATS[parts[0].dtype]
    sizes = [part.abs() for part in parts if part.numel()]
    peaks = [float(size.amax()) for size in sizes]
    if not all(math.isfinite(peak) for peak in peaks):
        return False
    largest = max(peaks, default=0.0)
    if largest == 0.0:
        return True
    smallest = min(float(torch.where(size == 0, math.inf, size).amin()) for size in sizes)
    first = math.frexp(largest)[1] + (len(parts) - 1).bit_length()
    last = max(math.frexp(smallest)[1], form.smallest_exponent + 1) - form.significand_bits
    return first - last <= 53


@dataclass(frozen=True, slots=True)
class Bound:
    """What results an unordered sum may have: every number of the dtype from low to high (float64; see bound()).

    Infinities of the dtype count as the power of two after its largest number, in low, high and exact too. Where the
    exact sum itself is NaN or infinite, the result has to be just that. Where a partial sum may have overflowed in
    some order, low is -inf and high is inf, and any result goes. may_be_nan: where such an overflow may have met an
    infinity of the other sign among the contributions, NaN is right, too.
    """

    exact: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    formula: str
    may_be_nan: torch.Tensor | None = None

    def permits(self, result: torch.Tensor) -> torch.Tensor:
        """Which elements of a result (of the parts' dtype) are within the bound (bool). +0 and -0 are the same
        here."""
        value = _real(result)
        inside = (self.low <= value) & (value <= self.high)
        special = (result.to(torch.float64) == self.exact) | (result.isnan() & self.exact.isnan())
        if self.may_be_nan is not None:
            special |= result.isnan() & self.may_be_nan
        return torch.where(self.exact.isfinite(), inside | (self.low == -math.inf), special)

    @property
    def largest_error(self) -> float:
        """The largest distance from the exact sum that any element is permitted; 0 when no exact sum is finite."""
        room = torch.maximum(self.high - self.exact, self.exact - self.low)[self.exact.isfinite()]
        return float(room.max()) if room.numel() else 0.0

    def largest_share(self, result: torch.Tensor) -> float:
        """The largest share of its own room that any element used up: above 1, inf or NaN where permits() says no."""
        value = _real(result)
        room = torch.where(value > self.exact, self.high - self.exact, self.exact - self.low)
        error = (value - self.exact).abs()
        share = torch.where(error == 0, 0.0, error / room)
        share = torch.where(self.low == -math.inf, 0.0, share)
        share = torch.where(self.exact.isfinite(), share, torch.where(self.permits(result), 0.0, math.inf))
        return float(torch.where(share.isnan(), math.inf, share).max())


def _real(result: torch.Tensor) -> torch.Tensor:
    """The result as float64, infinities moved to the power of two after the largest number."""
    overflow = FORMATS[result.dtype].overflow
    return result.to(torch.float64).clamp(-overflow, overflow)


def bound(parts: Sequence[torch.Tensor], accumulator: str, total: ExactSum | None = None) -> Bound:
    """What a sum of parts may be when nobody promises an order, nor more than the accumulator's precision.

    total is exact_sum(parts), where the caller has it already.

    Let x_1 .. x_n be an element's contributions, S = sum x_i, M = sum |x_i|, p the bits of the accumulator's
    significand and u = 2**-p its unit roundoff.

    *Any order.* Rounding to nearest after each addition, in any order or tree, the computed sum V obeys |V - S| <= (n
    - 1) u M: each of the n - 1 additions contributes a relative error of at most u to the terms below it, and
    Jeannerod and Rump (2013) show that the higher-order terms of the classical gamma_{n-1} = (n-1)u / (1 - (n-1)u)
    can be dropped, for every n. Underflow adds nothing: a sum in the subnormal range is exact, as long as subnormals
    are not flushed. n = 1 leaves no room at all: the result is the contribution.

    *The rounding to the dtype.* A switch gives 16-bit results within one ulp of the sum, and not always the nearest
    (measured by others on GB200): a faithful rounding, that is one of the two neighbours of V, or V itself where it
    is representable. So with an accumulator wider than the dtype the permitted results are the dtype's numbers from
    down(S - (n-1) u M) to up(S + (n-1) u M), down and up being the directed roundings to the dtype's grid; subnormal
    numbers have their own, absolute, grid, so that there the rounding costs up to one smallest subnormal.

    *Accumulator of the dtype's own precision.* Then every V is representable and no rounding follows. But hardware
    may sum exactly and round once, faithfully, whatever the instruction asked for. So: from min(S - (n-1) u M,
    down(S)) to max(S + (n-1) u M, up(S)).

    The float64 computation of S, M and the ends costs less than 2**-50 M, which is added. Where M reaches the
    accumulator's largest number an order exists in which a partial sum overflows; nothing is demanded there.

    *How sharp it is.* At bfloat16 with a float32 accumulator the room is one ulp or two to either side: a fold in
    bfloat16 and a dropped contribution fall out of it. With a native accumulator the room grows as n: a dropped
    contribution of standard normal data in bfloat16 shows in 87 % of the elements at 8 ranks, 46 % at 16, 0.2 % at
    32, none at 72, where (n - 1) u = 0.28 and only the exact inputs can tell.
    """
    dtype = parts[0].dtype
    wide = FORMATS[accumulator_dtype(dtype, accumulator)]
    total = total or exact_sum(parts)
    overflow = FORMATS[dtype].overflow
    exact = torch.where(total.value.isfinite(), total.value.clamp(-overflow, overflow), total.value)
    if len(parts) == 1:
        return Bound(exact, exact, exact, "one contribution: itself")
    additions = len(parts) - 1
    error = (additions * wide.unit_roundoff + 2.0**-50) * total.magnitude
    low, high = total.value - error, total.value + error
    share = f"{additions} * 2^-{wide.significand_bits} * sum|x|"
    if wide is FORMATS[dtype]:
        low = torch.minimum(low, _toward(total.value, dtype, torch.floor))
        high = torch.maximum(high, _toward(total.value, dtype, torch.ceil))
        formula = f"min(S - E, down(S)) <= out <= max(S + E, up(S)), E = {share}"
    else:
        low, high = _toward(low, dtype, torch.floor), _toward(high, dtype, torch.ceil)
        formula = f"down(S - E) <= out <= up(S + E), E = {share}"
    low, high = low.clamp(-overflow, overflow), high.clamp(-overflow, overflow)
    boundless = total.magnitude + error > wide.largest
    low, high = torch.where(boundless, -math.inf, low), torch.where(boundless, math.inf, high)
    may_be_nan = None
    if bool(exact.isinf().any()):
        finite = sum(torch.where(part.isfinite(), part, 0).abs().to(torch.float64) for part in parts)
        may_be_nan = exact.isinf() & (finite > wide.largest)
    return Bound(exact, low, high, formula, may_be_nan)


def _toward(value: torch.Tensor, dtype: torch.dtype, rounding: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """float64 values moved to the dtype's grid by torch.floor or torch.ceil; NaN and infinities stay."""
    step = _step(value, dtype)
    return torch.where(value.isfinite(), rounding(value / step) * step, value)
