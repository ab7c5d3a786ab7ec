"""Folds, roundings, distances and bounds against numpy, ml_dtypes, fractions and the definitions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from kernels import numerics
from kernels.numerics import FORMATS, bound, exact_sum, fold, round_to, same_bits, ulp_distance

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SIXTEEN = [torch.float16, torch.bfloat16]
NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
}


def to_numpy(value: torch.Tensor) -> Any:
    return value.view(FORMATS[value.dtype].bits).numpy().view(NUMPY[value.dtype])


def from_numpy(value: Any, dtype: torch.dtype) -> torch.Tensor:
    bits = np.int32 if dtype is torch.float32 else np.int16
    return torch.from_numpy(np.ascontiguousarray(value).view(bits)).view(dtype)


def random_bits(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Numbers of every exponent, subnormals, zeros, infinities and NaN among them."""
    generator = torch.Generator().manual_seed(seed)
    width = 8 * dtype.itemsize
    raw = torch.randint(0, 1 << width, (count,), generator=generator, dtype=torch.int64) - (1 << (width - 1))
    return raw.to(FORMATS[dtype].bits).view(dtype)


def normal(dtype: torch.dtype, world_size: int, count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, generator=generator).to(dtype) for _ in range(world_size)]


def all_values(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_formats_agree_with_torch(dtype: torch.dtype) -> None:
    form, info = FORMATS[dtype], torch.finfo(dtype)
    assert form.largest == info.max
    assert form.smallest_normal == info.tiny
    assert form.unit_roundoff == info.eps / 2
    one = torch.ones(1, dtype=form.bits).view(dtype)
    assert form.smallest_subnormal == float(one.to(torch.float64))
    infinity = torch.tensor([form.infinity_bits], dtype=torch.int64).to(form.bits).view(dtype)
    assert float(infinity) == math.inf


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_torch_converts_float32_to_sixteen_bits_as_the_folds_need(dtype: torch.dtype) -> None:
    wide = random_bits(torch.float32, 400_000, 1)
    middles = all_values(dtype).to(torch.float32)
    finite = middles[middles.isfinite()].sort().values
    ties = (finite[1:].double() + finite[:-1].double()).div(2).to(torch.float32)
    wide = torch.cat([wide, middles, ties, torch.tensor([65519.99, 65520.0, -65520.0, 3.4e38, 3.3961775e38])])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = from_numpy(wide.numpy().astype(NUMPY[dtype]), dtype)
    assert bool(same_bits(wide.to(dtype), expected).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_additions_agree_with_an_independent_library(dtype: torch.dtype) -> None:
    """Native addition, against numpy and ml_dtypes and, where those widen too, against the exact sum rounded once."""
    left, right = random_bits(dtype, 300_000, 2), random_bits(dtype, 300_000, 3)
    # near neighbours in size too, where cancellation and ties live
    close = left.to(torch.float64) * torch.linspace(-4, 4, 300_000, dtype=torch.float64)
    left, right = torch.cat([left, left]), torch.cat([right, round_to(close, dtype)])
    with np.errstate(all="ignore"):
        expected = from_numpy(to_numpy(left) + to_numpy(right), dtype)
    assert bool(same_bits(fold([left, right], "native"), expected).all())
    exact = left.to(torch.float64) + right.to(torch.float64)
    sure = ulp_exponents_fit(left, right)
    assert int(sure.sum()) > 100_000
    assert bool(same_bits(fold([left, right], "native"), round_to(exact, dtype))[sure].all())


def ulp_exponents_fit(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Where the float64 sum of two numbers is exact: their exponents lie within 53 bits less the significand."""
    _, one = torch.frexp(left.to(torch.float64))
    _, other = torch.frexp(right.to(torch.float64))
    return (one - other).abs() < 52 - FORMATS[left.dtype].significand_bits


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("value", [1.0, 0.33325195, 6.0e-8, 60000.0])
def test_sixteen_bit_addition_of_every_number(dtype: torch.dtype, value: float) -> None:
    left = all_values(dtype)
    right = torch.full_like(left, value)
    with np.errstate(all="ignore"):
        expected = from_numpy(to_numpy(left) + to_numpy(right), dtype)
    assert bool(same_bits(fold([left, right], "native"), expected).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulator", ["native", "float32"])
def test_fold_adds_in_order(dtype: torch.dtype, accumulator: str) -> None:
    parts = normal(dtype, 8, 5000)
    wide = np.float32 if accumulator == "float32" else NUMPY[dtype]
    total = to_numpy(parts[0]).astype(wide)
    for part in parts[1:]:
        total = (total + to_numpy(part).astype(wide)).astype(wide)
    expected = from_numpy(total.astype(NUMPY[dtype]), dtype)
    assert torch.equal(fold(parts, accumulator), expected)
    # the order matters, or the test would say nothing
    assert not torch.equal(fold(parts[::-1], "native"), fold(parts, "native"))


def test_fold_from_the_next_rank() -> None:
    parts = normal(torch.bfloat16, 5, 333)
    first = torch.arange(333) % 5
    result = fold(parts, "native", first)
    for start in range(5):
        rotated = fold([*parts[start:], *parts[:start]], "native")
        assert torch.equal(result[start::5], rotated[start::5])
    assert not torch.equal(result, fold(parts, "native"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulator", ["native", "float32"])
def test_fold_keeps_zero_signs_and_single_bits(dtype: torch.dtype, accumulator: str) -> None:
    form = FORMATS[dtype]
    minus = torch.full((4,), -0.0, dtype=dtype)
    assert bool(same_bits(fold([minus] * 3, accumulator), minus).all())
    cancelled = fold([torch.ones(1, dtype=dtype), -torch.ones(1, dtype=dtype)], accumulator)
    assert bool(same_bits(cancelled, torch.zeros(1, dtype=dtype)).all())
    strange = random_bits(dtype, 1000, 4)
    alone = fold([strange], accumulator)
    assert torch.equal(alone.view(form.bits), strange.view(form.bits))
    assert alone.data_ptr() != strange.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
def test_fold_special_values(dtype: torch.dtype) -> None:
    large, tiny = FORMATS[dtype].largest, FORMATS[dtype].smallest_subnormal
    parts = [
        torch.tensor([math.inf, math.inf, math.nan, large, tiny, large], dtype=dtype),
        torch.tensor([1.0, -math.inf, 1.0, large, tiny, large], dtype=dtype),
        torch.tensor([1.0, 1.0, math.inf, 0.0, -tiny, -large], dtype=dtype),
    ]
    native = fold(parts, "native")
    expected = torch.tensor([math.inf, math.nan, math.nan, math.inf, tiny, math.inf], dtype=dtype)
    assert bool(same_bits(native, expected).all())
    # float16 does not overflow within a float32 accumulator
    wide = fold(parts, "float32")
    assert float(wide[5]) == (large if dtype is torch.float16 else math.inf)


def test_unknown_accumulator() -> None:
    with pytest.raises(ValueError, match="accumulator 'float64': must be float32 or native"):
        fold([torch.ones(1)], "float64")


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_ulp_distance_is_the_number_of_steps(dtype: torch.dtype) -> None:
    values = all_values(dtype)
    numbers = values[~values.isnan()]
    ordered = torch.unique(numbers.to(torch.float64))  # one zero, as on the line
    line = ordered.to(torch.float32).to(dtype)
    steps = ulp_distance(line[1:], line[:-1])
    assert bool((steps == 1).all())
    lowest = torch.full_like(line, -math.inf)
    assert torch.equal(ulp_distance(line, lowest), torch.arange(len(line)))
    assert numerics.nan_distance(dtype) == len(line)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulp_distance_of_zeros_and_nan(dtype: torch.dtype) -> None:
    left = torch.tensor([0.0, -0.0, math.nan, math.nan, 1.0, -math.inf], dtype=dtype)
    right = torch.tensor([-0.0, -0.0, math.nan, 1.0, math.nan, math.inf], dtype=dtype)
    beyond = numerics.nan_distance(dtype)
    assert ulp_distance(left, right).tolist() == [0, 0, 0, beyond, beyond, beyond - 1]
    tiny = torch.tensor([FORMATS[dtype].smallest_subnormal], dtype=dtype)
    assert ulp_distance(tiny, -tiny).tolist() == [2]


def test_same_bits() -> None:
    left = torch.tensor([0.0, 0.0, math.nan, 1.0])
    right = torch.tensor([0.0, -0.0, -math.nan, math.nan])
    assert same_bits(left, right).tolist() == [True, False, True, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_to_rounds_once(dtype: torch.dtype) -> None:
    form = FORMATS[dtype]
    # the first is above a tie by less than float32 can see
    values = [1 + form.unit_roundoff * (1 + 2.0**-28), -form.smallest_subnormal * 0.5000001]
    values += [form.largest * (1 + form.unit_roundoff / 4)]
    values += [form.overflow, 1e300, -math.inf, math.nan, -0.0, form.smallest_subnormal / 2]
    expected = [1 + 2 * form.unit_roundoff, -form.smallest_subnormal, form.largest, math.inf, math.inf, -math.inf]
    expected += [math.nan, -0.0, 0.0]
    rounded = round_to(torch.tensor(values, dtype=torch.float64), dtype)
    assert bool(same_bits(rounded, torch.tensor(expected, dtype=torch.float64).to(dtype)).all())


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_round_to_agrees_with_torch_where_it_rounds_once(dtype: torch.dtype) -> None:
    wide = random_bits(torch.float32, 200_000, 5)
    assert bool(same_bits(round_to(wide.to(torch.float64), dtype), wide.to(dtype)).all())
    doubles = random_bits(torch.float32, 200_000, 6).to(torch.float64) * (1 + 2.0**-40)
    assert bool(same_bits(round_to(doubles, torch.float32), doubles.to(torch.float32)).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_sum_against_fractions(dtype: torch.dtype, seed: int) -> None:
    parts = [random_bits(dtype, 500, 10 * seed + number) for number in range(6)]
    parts = [torch.where(part.isfinite(), part, 0.0) for part in parts]
    total = exact_sum(parts)
    rows = torch.stack([part.to(torch.float64) for part in parts], dim=1).tolist()
    assert total.value.tolist() == [float(sum(Fraction(number) for number in row)) for row in rows]
    sizes = [float(sum(abs(Fraction(number)) for number in row)) for row in rows]
    assert total.magnitude.tolist() == pytest.approx(sizes, rel=1e-14)


def test_exact_sum_where_float64_is_not_exact() -> None:
    parts = [torch.tensor([value, 1.0]) for value in (1e30, 1.0, -1e30, 2.0**-50)]
    assert exact_sum(parts).value.tolist() == [1.0 + 2.0**-50, 4.0]
    special = [torch.tensor([math.inf, math.inf, math.nan]), torch.tensor([1e-30, -math.inf, 1.0])]
    values = exact_sum([*special, torch.tensor([1e30, 1.0, 1.0])]).value
    assert values[0] == math.inf
    assert bool(values[1:].isnan().all())


def any_tree(parts: list[torch.Tensor], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """A sum of the parts in a random tree, rounded to dtype after each addition, then to the parts' dtype."""
    own = parts[0].dtype
    terms = [part.to(dtype) for part in parts]
    while len(terms) > 1:
        left, right = torch.randperm(len(terms), generator=generator)[:2].tolist()
        joined = (terms[left].to(torch.float32) + terms[right].to(torch.float32)).to(dtype)
        terms = [term for number, term in enumerate(terms) if number not in (left, right)] + [joined]
    return terms[0].to(own)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulator", ["native", "float32"])
@pytest.mark.parametrize("world_size", [2, 3, 8, 72])
def test_bound_holds_for_every_honest_sum(dtype: torch.dtype, accumulator: str, world_size: int) -> None:
    generator = torch.Generator().manual_seed(world_size)
    wide = torch.float32 if accumulator == "float32" else dtype
    tiny = FORMATS[dtype].smallest_normal
    for scale in (1.0, tiny / 8):
        parts = [(part.double() * scale).to(torch.float32).to(dtype) for part in normal(dtype, world_size, 4000)]
        limit = bound(parts, accumulator)
        once = round_to(limit.exact, dtype)
        assert bool(limit.permits(once).all())
        # faithful, but never the nearest: the other neighbour, wherever the sum is no number of the dtype
        other = _other_neighbour(limit.exact, once)
        assert bool(limit.permits(other).all())
        for _ in range(30 if world_size < 72 else 4):
            result = any_tree(parts, generator, wide)
            assert bool(limit.permits(result).all())
            assert limit.largest_share(result) <= 1.0


def _other_neighbour(exact: torch.Tensor, nearest: torch.Tensor) -> torch.Tensor:
    value = nearest.to(torch.float64)
    toward = torch.where(exact > value, math.inf, -math.inf).to(nearest.dtype)
    return torch.where(exact == value, nearest, torch.nextafter(nearest, toward))


@pytest.mark.parametrize("accumulator", ["native", "float32"])
def test_bound_catches_a_dropped_rank(accumulator: str) -> None:
    for dtype in DTYPES:
        parts = normal(dtype, 8, 4000)
        for dropped in range(8):
            result = fold([part for rank, part in enumerate(parts) if rank != dropped], "float32")
            caught = (~bound(parts, accumulator).permits(result)).double().mean()
            assert caught > (0.5 if accumulator == "native" else 0.9)


def test_bound_catches_a_bfloat16_fold_where_float32_is_promised() -> None:
    for dtype, share in ((torch.bfloat16, 0.05), (torch.float16, 0.05)):
        parts = normal(dtype, 8, 4000)
        wrong = ~bound(parts, "float32").permits(fold(parts, "native"))
        assert wrong.double().mean() > share
        assert bool(bound(parts, "native").permits(fold(parts, "native")).all())
        assert bound(parts, "float32").largest_share(fold(parts, "native")) > 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_bound_is_sharp(dtype: torch.dtype) -> None:
    """One step outside of the stated interval is refused, the ends are permitted."""
    limit = bound(normal(dtype, 4, 2000), "float32")
    if dtype is torch.float32:
        return
    low, high = limit.low.to(torch.float32).to(dtype), limit.high.to(torch.float32).to(dtype)
    assert bool(limit.permits(low).all())
    assert bool(limit.permits(high).all())
    assert not bool(limit.permits(torch.nextafter(high, torch.full_like(high, math.inf))).any())
    assert not bool(limit.permits(torch.nextafter(low, torch.full_like(low, -math.inf))).any())
    assert int(ulp_distance(low, high).median()) <= 1
    assert limit.largest_share(high) == 1.0


def test_bound_of_special_values() -> None:
    dtype = torch.float16
    parts = [
        torch.tensor([math.inf, math.nan, -0.0, 60000.0, 65504.0, 32768.0, math.inf], dtype=dtype),
        torch.tensor([1.0, 1.0, -0.0, 60000.0, 4.0, 32760.0, -math.inf], dtype=dtype),
    ]
    limit = bound(parts, "float32")
    good = torch.tensor([math.inf, math.nan, 0.0, math.inf, 65504.0, math.inf, math.nan], dtype=dtype)
    assert limit.permits(good).tolist() == [True] * 7
    assert limit.largest_share(good) <= 1.0
    bad = torch.tensor([65504.0, 1.0, 6e-8, 65504.0, 65440.0, -math.inf, 0.0], dtype=dtype)
    assert limit.permits(bad).tolist() == [False] * 7
    assert limit.largest_share(bad) == math.inf
    # in float16's own precision a sum of 120000 may overflow on its way: nothing is demanded
    assert bool(bound(parts, "native").permits(torch.full_like(bad, math.nan))[3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_bound_of_a_single_part_is_that_part(dtype: torch.dtype) -> None:
    (part,) = normal(dtype, 1, 100)
    limit = bound([part], "float32")
    assert bool(limit.permits(part).all())
    assert not bool(limit.permits(torch.nextafter(part, torch.full_like(part, math.inf))).any())
    assert limit.largest_error == 0.0
