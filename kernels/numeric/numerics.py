"""What a reduction gives, bit by bit: the rules for rounding, NaN, zeros, subnormals and overflow, and folds by them.

Kernels (kernels/dsl/arithmetic.py), the simulator and this file follow the same rules, and their results agree to the
bit.

**All reductions.** An element's result starts with the first contribution itself (not with zero plus it, so that a
-0.0 survives) and takes the others in a stated order. One rank alone: its own bits come out, nothing is done to them.
Nothing is flushed: subnormals count in what goes in, in between and in what comes out. Which NaN a NaN is carries no
information: PTX gives one canonical NaN, torch another, and any NaN equals any NaN wherever bits are compared. Ops
that only move data move raw bits, NaN payloads and all.

**sum** of floats, by dtype and accumulator; every operation rounds to nearest even:

- float64 and float32 (both names): added in the type.
- float16 and bfloat16, native: added in the type, rounded after every addition. float32: widened exactly, added in
  float32, rounded once at the end.
- float8, float32: widened exactly, added in float32, narrowed once at the end. float16: the same in float16. native:
  like float16, but narrowed to float8 and widened again after every addition (so each rounds twice).

Overflow: float64, float32, float16 and bfloat16 give infinity. Narrowing to float8 saturates (PTX's satfinite): what is
beyond the largest finite number, and infinity itself, becomes that number with its sign (448 for e4m3fn, 57344 for
e5m2); NaN stays NaN. So a sum of float8 is never infinite, even where a contribution was. Infinity minus infinity is
NaN, as IEEE 754 says; with the accumulator native an infinity of e5m2 is infinite only until the first addition's end.

**avg** as nccl-tests means it. Floats: every contribution, after widening, is multiplied by c = 1/n before it is added,
rounded to the accumulator's type (native float8: as float16, then to float8, like its sums); c is float32(1/n) rounded
once to the accumulator's type, float64(1/n) for float64. Integers: the wrapping sum divided by n, towards zero, as a
signed number where the type is signed. multimem: average_of_sum(), the switch's sum multiplied once; the few elements
at a buffer's edges that such a kernel folds itself are multiplied before, like all that is folded.

**min, max.** Floats: NaN when any contribution is NaN; -0 is less than +0. float8 is compared in float16 and narrowed
once, so that an infinity of e5m2 becomes 57344. By multimem, of which PTX says nothing for NaN nor for zeros' signs: a
result is right when it is the min or max of the contributions that are numbers, or NaN where one is NaN; and either
zero (kernels/numeric/bounds.py). Integers: by the type's sign.

**Integers.** sum wraps around; and, or, xor are bitwise. All exact, so that order means nothing.

**positive_zero.** A kernel that keeps -0.0 for a sign that nothing has come takes a contribution of -0.0 as +0.0
("inputs"); one that keeps it in its results, too, gives +0.0 where -0.0 would come out ("results", which includes
"inputs"). One rank alone still brings its own bits.

A 16-bit operation is done here in float32 and rounded to 16 bits. For a sum the double rounding is innocuous: with p
bits of significand in the dtype and P in the wider format, P >= 2p + 2 suffices (Figueroa 1995); 24 >= 2 * 11 + 2 for
float16, 24 >= 2 * 8 + 2 for bfloat16. Below the dtype's normal range sums are exact in both formats (both operands are
multiples of the smallest subnormal), and a float32 sum overflows only where bfloat16, which has the same exponents,
does too. A product with c is exact in float32: 2 * 11 bits fit into 24, and a bfloat16's last place times that of c
(at least 2**-16 for up to 512 ranks) is no less than 2**-149.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cases.dtypes import refuses_types
from kernels.numeric.formats import FLOAT8, FORMATS, bits_of, is_float, is_nan, is_signed, narrow, widen

Step = Callable[[torch.Tensor], torch.Tensor]


def accumulator_dtype(dtype: torch.dtype, accumulator: str, reduction: str = "sum") -> torch.dtype:
    """The type that a reduction is kept in. ValueError where the three don't belong together."""
    if unfit := refuses_types(name_of(dtype), accumulator, reduction):
        raise ValueError(str(unfit))
    return {"float32": torch.float32, "float16": torch.float16}.get(accumulator, dtype)


def name_of(dtype: torch.dtype) -> str:
    """The type's name in cases/dtypes.py."""
    return str(dtype).removeprefix("torch.")


def fold(
    parts: Sequence[torch.Tensor],
    accumulator: str,
    reduction: str = "sum",
    first: torch.Tensor | None = None,
    positive_zero: str = "",
) -> torch.Tensor:
    """The reduction of parts (1-D, one dtype) in order, bit for bit as the peer-to-peer kernels do it.

    first, where given, has for each element the number of the part to start with (0 to n-1); the others follow
    cyclically. Without it every element starts with part 0. positive_zero is KernelSpec's. A single part comes back
    with its own bits. ValueError where dtype, accumulator and reduction don't belong together.
    """
    dtype = parts[0].dtype
    wide = accumulator_dtype(dtype, accumulator, reduction)
    if len(parts) == 1:
        return parts[0].clone()
    if not is_float(dtype):
        return _fold_integers(parts, reduction)
    if positive_zero:
        parts = [_with_positive_zero(part) for part in parts]
    result = _extreme(parts, reduction) if reduction in ("min", "max") else _fold_from(parts, wide, reduction, first)
    return _with_positive_zero(result) if positive_zero == "results" else result


def _fold_from(
    parts: Sequence[torch.Tensor], wide: torch.dtype, reduction: str, first: torch.Tensor | None
) -> torch.Tensor:
    if first is None:
        return _fold_in_order(parts, wide, reduction)
    starts = [start for start in range(len(parts)) if bool((first == start).any())]
    if len(starts) == 1:
        return _fold_in_order([*parts[starts[0] :], *parts[: starts[0]]], wide, reduction)
    bits = [bits_of(part) for part in parts]
    result = torch.empty_like(bits[0])
    for start in starts:
        here = (first == start).nonzero().squeeze(1)
        rotated = [part[here].view(parts[0].dtype) for part in (*bits[start:], *bits[:start])]
        result[here] = bits_of(_fold_in_order(rotated, wide, reduction))
    return result.view(parts[0].dtype)


def _fold_in_order(parts: Sequence[torch.Tensor], wide: torch.dtype, reduction: str) -> torch.Tensor:
    dtype = parts[0].dtype
    rounded = _rounding(wide)
    factor = averaging_factor(wide, len(parts)) if reduction == "avg" else None

    def taken(part: torch.Tensor) -> torch.Tensor:
        return widen(part) if factor is None else rounded(widen(part) * factor)

    total = taken(parts[0])
    for part in parts[1:]:
        total = rounded(total + taken(part))
    return narrow(total, dtype)


def _rounding(wide: torch.dtype) -> Step:
    """What every operation of an accumulator of this type does to its float32 (or float64) result."""
    if wide in (torch.float64, torch.float32):
        return lambda value: value
    if wide in FLOAT8:
        return lambda value: widen(narrow(widen(value.to(torch.float16)), wide))
    return lambda value: value.to(wide).to(torch.float32)


def averaging_factor(wide: torch.dtype, count: int) -> float:
    """1/count as avg multiplies with it in an accumulator of this type."""
    factor = torch.tensor([1.0 / count], dtype=torch.float64, device="cpu")
    if wide is torch.float64:
        return float(factor)
    return float(widen(narrow(factor.to(torch.float32), wide)))


def average_of_sum(total: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """What multimem's avg makes of the switch's sum of dtype, widened to float32 (float64 as it is): multiplied once by
    float32(1/count) (float64's), and rounded once to the dtype."""
    return narrow(total * averaging_factor(total.dtype, count), dtype)


def _with_positive_zero(value: torch.Tensor) -> torch.Tensor:
    """A float tensor with +0.0 for every -0.0."""
    bits = bits_of(value)
    return torch.where(bits == torch.iinfo(bits.dtype).min, 0, bits).view(value.dtype)


def _extreme(parts: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """min or max of floats, chosen among the patterns in the order of the numbers, -0 before +0."""
    dtype = parts[0].dtype
    pick = torch.minimum if reduction == "min" else torch.maximum
    best, unknown = _in_order(bits_of(parts[0])), is_nan(parts[0])
    for part in parts[1:]:
        best = pick(best, _in_order(bits_of(part)))
        unknown = unknown | is_nan(part)
    nan = torch.iinfo(FORMATS[dtype].bits).max
    chosen = torch.where(unknown, nan, _in_order(best)).view(dtype)
    return narrow(widen(chosen), dtype) if dtype in FLOAT8 else chosen


def _in_order(bits: torch.Tensor) -> torch.Tensor:
    """A float's bits as an integer that grows with it, from -infinity over -0 and +0; and back, by the same change."""
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def _fold_integers(parts: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """Any reduction of integers, on their signed views: addition and bits are the same for both."""
    dtype = parts[0].dtype
    # Unsigned numbers are in order as signed ones when the highest bit is the other.
    flip = 0 if is_signed(dtype) or reduction not in ("min", "max") else torch.iinfo(bits_of(parts[0]).dtype).min
    step: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "sum": torch.add,
        "avg": torch.add,
        "min": torch.minimum,
        "max": torch.maximum,
        "and": torch.bitwise_and,
        "or": torch.bitwise_or,
        "xor": torch.bitwise_xor,
    }
    total = bits_of(parts[0]) ^ flip
    for part in parts[1:]:
        total = step[reduction](total, bits_of(part) ^ flip)
    if reduction == "avg":
        total = _divided(total, len(parts), is_signed(dtype))
    return (total ^ flip).view(dtype)


def _divided(total: torch.Tensor, count: int, signed: bool) -> torch.Tensor:
    """Integers divided towards zero; not signed: as the unsigned numbers of the same bits."""
    if signed:
        return torch.div(total, count, rounding_mode="trunc")
    # Long division with two digits of half the width: no step leaves the positive numbers of int64.
    half = 4 * total.dtype.itemsize
    wide = total.to(torch.int64)
    high, low = (wide >> half) & ((1 << half) - 1), wide & ((1 << half) - 1)
    quotient = torch.div(high, count, rounding_mode="trunc")
    rest = ((high - quotient * count) << half) + low
    return ((quotient << half) + torch.div(rest, count, rounding_mode="trunc")).to(total.dtype)
