"""Sums and averages of floats without error, rounded once to float64: what errors are counted from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from kernels.numeric.formats import FORMATS, to_float64


@dataclass(frozen=True, slots=True)
class ExactSum:
    """Sums of the parts without error: value is each exact sum rounded once to float64, magnitude the sum of |x|
    (float64, with a relative error below n * 2**-53). residue is what that rounding left over, where it left anything
    (float64, to a relative error of 2**-52; None: nothing, anywhere)."""

    value: torch.Tensor
    magnitude: torch.Tensor
    residue: torch.Tensor | None = None


def exact_sum(parts: Sequence[torch.Tensor]) -> ExactSum:
    """The sums of the parts (floats of one type), exact and then rounded once to float64.

    Adding in float64 is exact as long as all bits between the last place of the smallest part and the first of the
    largest sum fit into 53; that is so for every float16 and for most other data, and seen from the extremes of the
    data. Otherwise each addition's error is computed (Knuth's two-sum), and elements where one is not zero are summed
    again with care. Infinities and NaN follow IEEE rules, which give the same in every order.
    """
    value = to_float64(parts[0])
    magnitude = value.abs()
    surely_exact = _fits_float64(parts)
    suspect = torch.zeros_like(value, dtype=torch.bool)
    for part in parts[1:]:
        wide = to_float64(part)
        if surely_exact:
            value = value + wide
        else:
            value, lost = two_sum(value, wide)
            suspect |= lost != 0
        magnitude += wide.abs()
    if surely_exact:
        return ExactSum(value, magnitude)
    finite = magnitude.isfinite()
    if parts[0].dtype is torch.float64:  # whose finite parts may overflow on the way, also away from an infinity
        finite = finite_parts(parts)
        if not bool(finite.all()):
            value = torch.where(finite, value, sum(torch.where(part.isfinite(), 0.0, part) for part in parts))
    again = (suspect & finite).nonzero().squeeze(1)
    if not again.numel():
        return ExactSum(value, magnitude)
    residue = torch.zeros_like(value)
    value[again], residue[again] = _sum_with_care([to_float64(part)[again] for part in parts])
    return ExactSum(value, magnitude, residue)


def _sum_with_care(parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and residue of sums of finite float64 parts.

    The errors of additions are added up beside the sum. Where that makes no errors itself, one last addition gives the
    sum rounded once; the others, and those that overflow on their way, are added as fractions.
    """
    value, error = parts[0], torch.zeros_like(parts[0])
    unsure = torch.zeros_like(value, dtype=torch.bool)
    for part in parts[1:]:
        value, lost = two_sum(value, part)
        error, lost = two_sum(error, lost)
        unsure |= lost != 0
    value, residue = two_sum(value, error)
    rest = (unsure | ~value.isfinite()).nonzero().squeeze(1)
    if rest.numel():
        value[rest], residue[rest] = _by_fractions([part[rest] for part in parts], 1)
    return value, residue


def _by_fractions(parts: Sequence[torch.Tensor], divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and residue of sums of finite float64 parts, divided by divisor."""
    device = parts[0].device
    exact = [sum(map(Fraction, row), Fraction()) / divisor for row in torch.stack(list(parts), dim=1).tolist()]
    nearest = [_nearest(one) for one in exact]
    pairs = zip(exact, nearest, strict=True)
    left = [_towards_zero(one - Fraction(near)) if math.isfinite(near) else 0.0 for one, near in pairs]
    value = torch.tensor(nearest, dtype=torch.float64, device=device)
    return value, torch.tensor(left, dtype=torch.float64, device=device)


def exact_average(parts: Sequence[torch.Tensor], total: ExactSum) -> torch.Tensor:
    """The exact sums of the parts, total, divided by their number, in float64: the nearest number, but where the
    quotient comes within some 2**-100 of its size of a tie."""
    value, count = total.value, len(parts)
    quotient = value / count
    # The remainder is a float64, and each step to it is exact: quotient in halves of 26 and 27 bits, count of few bits.
    upper = (quotient.view(torch.int64) & -(1 << 27)).view(torch.float64)
    remainder = (value - upper * count) - (quotient - upper) * count
    if total.residue is not None:
        remainder = remainder + total.residue
    average = torch.where(quotient.isfinite(), quotient + remainder / count, quotient)
    if parts[0].dtype is torch.float64:
        again = (finite_parts(parts) & ~value.isfinite()).nonzero().squeeze(1)
        if again.numel():
            average[again], _ = _by_fractions([part[again] for part in parts], count)
    return average


def two_sum(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 sum and its error: exactly left + right together (Knuth)."""
    total = left + right
    back = total - left
    return total, (left - (total - back)) + (right - back)


def finite_parts(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where no part is infinite or NaN (bool)."""
    finite = to_float64(parts[0]).isfinite()
    for part in parts[1:]:
        finite &= to_float64(part).isfinite()
    return finite


def _nearest(exact: Fraction) -> float:
    """A fraction rounded to float64, infinity for what is too large."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _towards_zero(exact: Fraction) -> float:
    """A fraction as float64, and never half a step where it is less: that would look like a tie."""
    found = float(exact)
    return math.nextafter(found, 0.0) if abs(Fraction(found)) > abs(exact) else found


def _fits_float64(parts: Sequence[torch.Tensor]) -> bool:
    """Whether no float64 sum of these parts, in any order, can lose a bit. False where they hold NaN or infinity."""
    form = FORMATS[parts[0].dtype]
    sizes = [(to_float64(part) if part.dtype.itemsize == 1 else part).abs() for part in parts if part.numel()]
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
