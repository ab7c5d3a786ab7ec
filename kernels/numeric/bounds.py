"""What results may be without a promised order, and with no more than the accumulator's precision: error bounds with
their derivation, for sums, averages, minima and maxima of floats.

Let x_1 .. x_n be an element's contributions, S = sum x_i, M = sum |x_i|, p the bits of the accumulator's
significand and u = 2**-p its unit roundoff (float16 for float8: 2**-11).

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
down(S)) to max(S + (n-1) u M, up(S)). Native float8 may be added in float16 and narrowed after each addition, which
rounds twice: there u = (1 + 2**-p) (1 + 2**-11) - 1, and the classical (1 + u)**(n-1) - 1 stands for (n-1) u, because
Jeannerod and Rump's proof wants one rounding to nearest.

The float64 computation of S, M and the ends costs less than 2**-50 M, which is added; for float64 itself that is
eight more roundings. Where M reaches the accumulator's largest number an order exists in which a partial sum
overflows; nothing is demanded there.

*float8 overflows* into its largest number, into infinity (e5m2) or into NaN (e4m3fn, which has no infinity): how
the switch narrows is its own. Where the interval goes beyond the largest number, that number and the overflow are
permitted both; so they are where a contribution is infinite. In native float8 an infinity among the contributions
may have been made finite by any addition: nothing is demanded.

*avg before the sum.* Libraries, and kernels for the few elements that they fold beside the switch, may multiply each
contribution by 1/n in the accumulator's type. Let g be (n-1) u (or what stands for it), c the 1/n that is farthest off,
a = (1 + u) (1 + |n c - 1|) - 1 the error of such a product and t the accumulator's smallest subnormal. The products y_i
obey |y_i - x_i / n| <= a |x_i| / n + 0.51 t (t / 2, and a little for native float8's second rounding), and their sum
errs by g sum |y_i|; altogether by E = (g (1 + a) + a) M / n + 0.51 (1 + g) n t. With A = S / n the results go from
min(A - E, down(A)) to max(A + E, up(A)), with an accumulator wider than the dtype from down(A - E) to up(A + E).

*avg after the sum.* A multimem kernel makes the result from V (of the dtype, from low to high as above) by one rounded
product and one rounding (numerics.average_of_sum), which are monotone: the results go from that of the least V to that
of the greatest. For accumulators of the dtype's own precision, a library's among them, this needs no room of its own:
its error is at most (g + a (1 + g)) M / n + t / 2. Otherwise the interval spans both.

*min and max by multimem.* PTX says nothing of NaN and of zeros' signs: right is the min or max of the contributions
that are numbers, either zero for a zero, and NaN where any contribution is NaN; of e5m2 57344 for infinity, too.

*How sharp it is.* At bfloat16 with a float32 accumulator the room is one ulp or two to either side: a fold in
bfloat16 and a dropped contribution fall out of it; so with float8 and a float16 accumulator. With a native
accumulator the room grows as n: a dropped contribution of standard normal data in bfloat16 shows in 87 % of the
elements at 8 ranks, 46 % at 16, 0.2 % at 32, none at 72, where (n - 1) u = 0.28 and only the exact inputs can
tell. Averages have a little more room: 84 % at 8. Native float8, with u = 1/16 and 1/8, shows it in 56 % (e4m3fn) and
16 % (e5m2) of the sums at 4 ranks, in 24 % and in none of the averages; at 8 ranks in none of either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels.numeric.exact import ExactSum, exact_average, exact_sum, finite_parts
from kernels.numeric.formats import FLOAT8, FORMATS, Format, is_nan, on_grid, to_float64
from kernels.numeric.numerics import accumulator_dtype, average_of_sum, averaging_factor

LIBRARY = "library"
"""The accumulator of a library's case: unknown here. The dtype itself is the least precise that it may be."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What results an unordered reduction may have: every number of the dtype from low to high (float64; see bound()).

    Infinities of the dtype count as the number after its largest (Format.overflow), in low, high and exact too. Where
    any result goes, low is -inf and high is inf. may_be_nan says where NaN is right, too (None: never); where only
    NaN is, low and high are NaN. exact is the exact result, NaN and infinities as they are where contributions hold
    them.
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
        return inside if self.may_be_nan is None else inside | (is_nan(result) & self.may_be_nan)

    def piece(self, start: int, end: int) -> Bound:
        """Return the bound of the elements from start to end."""
        ends = (self.exact[start:end], self.low[start:end], self.high[start:end])
        return Bound(*ends, self.formula, None if self.may_be_nan is None else self.may_be_nan[start:end])

    @property
    def largest_error(self) -> float:
        """The largest distance from the exact result that any element is permitted; 0 when no exact result is
        finite."""
        room = torch.maximum(self.high - self.exact, self.exact - self.low)[self.exact.isfinite()]
        return float(room.max()) if room.numel() else 0.0

    def largest_share(self, result: torch.Tensor) -> float:
        """The largest share of its own room that any element used up: above 1 just when permits() says no somewhere."""
        if not result.numel():
            return 0.0
        value = _real(result)
        room = torch.where(value > self.exact, self.high - self.exact, self.exact - self.low)
        error = (value - self.exact).abs()
        share = torch.where(error == 0, 0.0, error / room)
        good = torch.where(share.isnan() | (self.low == -math.inf) & (self.high == math.inf), 0.0, share).clamp(
            0.0, 1.0
        )
        return float(torch.where(self.permits(result), good, torch.where(share > 1, share, math.inf)).max())


def _real(result: torch.Tensor) -> torch.Tensor:
    """The result as float64, infinities moved to the number after the largest."""
    overflow = FORMATS[result.dtype].overflow
    return to_float64(result).clamp(-overflow, overflow)


def bound(
    parts: Sequence[torch.Tensor], accumulator: str, reduction: str = "sum", total: ExactSum | None = None
) -> Bound:
    """Return what a reduction of floats may give without a promised order, and with only the accumulator's precision.

    total is exact_sum(parts), where the caller has it already (sum and avg). accumulator may be LIBRARY. ValueError
    where dtype, accumulator and reduction don't belong together.
    The derivation is in the module's docstring.
    """
    if reduction in ("min", "max"):
        return _of_extremes(parts, reduction)
    dtype = parts[0].dtype
    wide = FORMATS[accumulator_dtype(dtype, "native" if accumulator == LIBRARY else accumulator, reduction)]
    total = total or exact_sum(parts)
    if len(parts) == 1:
        return _of_one(parts, total)
    return _of_sum(parts, total, wide) if reduction == "sum" else _of_average(parts, total, wide)


def _of_sum(parts: Sequence[torch.Tensor], total: ExactSum, wide: Format) -> Bound:
    dtype = parts[0].dtype
    error = _error(dtype, wide, len(parts)) * total.magnitude
    ends, formula = _around(total.value, error, dtype, wide)
    formula += f", E = {_share(dtype, wide, len(parts))} * sum|x|"
    return _limited(parts, total, wide, total.value, ends, formula)


def _around(
    value: torch.Tensor, error: torch.Tensor, dtype: torch.dtype, wide: Format
) -> tuple[tuple[torch.Tensor, torch.Tensor], str]:
    """The ends that an error leaves a result, before or after it was rounded, and that in words."""
    low, high = value - error, value + error
    if wide is not FORMATS[dtype]:
        ends = on_grid(low, dtype, torch.floor), on_grid(high, dtype, torch.ceil)
        return ends, "down(S - E) <= out <= up(S + E)"
    low = torch.minimum(low, on_grid(value, dtype, torch.floor))
    high = torch.maximum(high, on_grid(value, dtype, torch.ceil))
    return (low, high), "min(S - E, down(S)) <= out <= max(S + E, up(S))"


def _of_average(parts: Sequence[torch.Tensor], total: ExactSum, wide: Format) -> Bound:
    before = _of_premultiplied(parts, total, wide)
    if wide is FORMATS[parts[0].dtype]:
        return before
    after = _of_sum_times(parts, total, wide)
    return Bound(
        before.exact,
        torch.minimum(before.low, after.low),
        torch.maximum(before.high, after.high),
        f"{before.formula}; or {after.formula}",
        before.may_be_nan if after.may_be_nan is None else after.may_be_nan,  # what overflows before, does so after
    )


def _of_premultiplied(parts: Sequence[torch.Tensor], total: ExactSum, wide: Format) -> Bound:
    dtype, count = parts[0].dtype, len(parts)
    growth, unit = _growth(dtype, wide, count), _unit(dtype, wide)
    factors = [averaging_factor(one, count) for one in FORMATS if FORMATS[one] is wide]
    product = (1 + unit) * (1 + max(unit, *(abs(count * factor - 1) for factor in factors))) - 1
    share = growth * (1 + product) + product
    subnormals = 0.51 * (1 + growth) * count
    average = exact_average(parts, total)
    error = (share / count + 2.0**-50) * total.magnitude + subnormals * wide.smallest_subnormal
    ends, formula = _around(average, error, dtype, wide)
    formula = formula.replace("S", "A")
    formula += f", A = S / {count}, E = {share:.4g} * sum|x| / {count} + {subnormals:.4g} subnormals"
    return _limited(parts, total, wide, average, ends, formula)


def _of_sum_times(parts: Sequence[torch.Tensor], total: ExactSum, wide: Format) -> Bound:
    """The switch's sum, from the least to the greatest, multiplied by the kernel."""
    dtype, count = parts[0].dtype, len(parts)
    form = FORMATS[dtype]
    limit = _of_sum(parts, total, wide)
    anything = (limit.low == -math.inf) & (limit.high == math.inf)

    def finished(end: torch.Tensor) -> torch.Tensor:
        infinite = torch.where(end.abs() >= form.overflow, end * math.inf, end)
        end = infinite if form.has_infinity else end.clamp(-form.largest, form.largest)
        return _real(average_of_sum(end.to(torch.float32), count, dtype))

    return Bound(
        limit.exact,
        torch.where(anything, limit.low, finished(limit.low)),
        torch.where(anything, limit.high, finished(limit.high)),
        f"round(V / {count}), {limit.formula.replace('out', 'V')}",
        limit.may_be_nan,
    )


def _of_one(parts: Sequence[torch.Tensor], total: ExactSum) -> Bound:
    dtype = parts[0].dtype
    exact = _on_line(total.value, FORMATS[dtype])
    low, high = _with_saturation(dtype, _real(parts[0]), _real(parts[0]))
    nan = is_nan(parts[0])
    return Bound(exact, low, high, "one contribution: itself", nan if bool(nan.any()) else None)


def _of_extremes(parts: Sequence[torch.Tensor], reduction: str) -> Bound:
    dtype = parts[0].dtype
    pick, worst = (torch.minimum, math.inf) if reduction == "min" else (torch.maximum, -math.inf)
    nan = is_nan(parts[0])
    all_nan, any_nan = nan.clone(), nan.clone()
    best = torch.where(nan, worst, to_float64(parts[0]))
    for part in parts[1:]:
        nan = is_nan(part)
        all_nan &= nan
        any_nan |= nan
        best = pick(best, torch.where(nan, worst, to_float64(part)))
    exact = torch.where(all_nan, math.nan, best)
    overflow = FORMATS[dtype].overflow
    low, high = _with_saturation(dtype, exact.clamp(-overflow, overflow), exact.clamp(-overflow, overflow))
    formula = f"out is the {reduction} of the numbers among x, or NaN where one is NaN"
    return Bound(exact, low, high, formula, any_nan if bool(any_nan.any()) else None)


def _limited(
    parts: Sequence[torch.Tensor],
    total: ExactSum,
    wide: Format,
    exact: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
    formula: str,
) -> Bound:
    """A bound from its ends, with what holds where sums overflow and where contributions are no finite numbers."""
    dtype = parts[0].dtype
    form = FORMATS[dtype]
    low, high = (end.clamp(-form.overflow, form.overflow) for end in ends)
    boundless = total.magnitude * (1 + _error(dtype, wide, len(parts))) > wide.largest
    may_be_nan = None
    given = ~total.magnitude.isfinite()
    if bool(given.any()):
        given &= ~finite_parts(parts)
        special = exact.clamp(-form.overflow, form.overflow)  # infinity's place on the line, or NaN
        low, high = torch.where(given, special, low), torch.where(given, special, high)
        anything, nan_too = _of_given(parts, total, wide)
        boundless = torch.where(given, anything, boundless)
        may_be_nan = given & nan_too
    low, high = _with_saturation(dtype, low, high)
    if not form.has_infinity:
        beyond = (high > form.largest) | (low < -form.largest)
        may_be_nan = beyond if may_be_nan is None else may_be_nan | beyond
    low, high = torch.where(boundless, -math.inf, low), torch.where(boundless, math.inf, high)
    if bool(boundless.any()):
        may_be_nan = boundless if may_be_nan is None else may_be_nan | boundless
    return Bound(_on_line(exact, form), low, high, formula, may_be_nan)


def _of_given(parts: Sequence[torch.Tensor], total: ExactSum, wide: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """Of elements with NaN or infinities among the contributions: where anything is right (an infinity that native
    float8 may have made finite), and where NaN is: a finite sum may overflow on its way to an infinity of the other
    sign."""
    values = [to_float64(part) for part in parts]
    holds_nan, finite = torch.zeros_like(values[0], dtype=torch.bool), torch.zeros_like(values[0])
    for value in values:
        holds_nan |= value.isnan()
        finite += torch.where(value.isfinite(), value.abs(), 0.0)
    anything = ~holds_nan if wide is FORMATS[torch.float8_e5m2] else torch.zeros_like(holds_nan)
    return anything, total.value.isnan() | (finite > wide.largest)


def _with_saturation(dtype: torch.dtype, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float8: where an end is beyond the largest number, that number is within."""
    if dtype not in FLOAT8:
        return low, high
    largest = FORMATS[dtype].largest
    return low.clamp(max=largest), high.clamp(min=-largest)


def _on_line(exact: torch.Tensor, form: Format) -> torch.Tensor:
    """Finite numbers beyond the largest moved to the number after it."""
    return torch.where(exact.isfinite(), exact.clamp(-form.overflow, form.overflow), exact)


def _unit(dtype: torch.dtype, wide: Format) -> float:
    """The largest relative error of one operation."""
    if dtype in FLOAT8 and wide is FORMATS[dtype]:
        return (1 + wide.unit_roundoff) * (1 + FORMATS[torch.float16].unit_roundoff) - 1
    return wide.unit_roundoff


def _growth(dtype: torch.dtype, wide: Format, count: int) -> float:
    """The largest error of a sum of count numbers, as a share of sum|x|."""
    unit = _unit(dtype, wide)
    return float((1 + unit) ** (count - 1) - 1) if unit > wide.unit_roundoff else (count - 1) * unit


def _error(dtype: torch.dtype, wide: Format, count: int) -> float:
    """The same, with what is lost in float64 here."""
    return _growth(dtype, wide, count) + 2.0**-50


def _share(dtype: torch.dtype, wide: Format, count: int) -> str:
    """_growth in words."""
    if _unit(dtype, wide) > wide.unit_roundoff:
        return f"(1.0005 * (1 + 2^-{wide.significand_bits}))^{count - 1} - 1"
    return f"{count - 1} * 2^-{wide.significand_bits}"
