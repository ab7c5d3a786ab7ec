"""Exact sums and averages against fractions."""

import math
from fractions import Fraction

import pytest
import torch

from kernels.numeric.bounds import bound
from kernels.numeric.exact import exact_average, exact_sum
from kernels.numeric.formats import FORMATS, is_nan, to_float64
from tests.kernels.numeric.rounding_model import rounded
from tests.kernels.numeric.test_formats import random_bits

DTYPES = list(FORMATS)


def finite_bits(dtype, count, seed):
    """Random patterns, zero for those that are no finite number."""
    values = random_bits(dtype, count, seed)
    bits = values.view(FORMATS[dtype].bits)
    return torch.where(is_nan(values) | to_float64(values).isinf(), 0, bits).view(dtype)


def rows_of(parts):
    return torch.stack([to_float64(part) for part in parts], dim=1).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_sum_against_fractions(dtype, seed):
    parts = [finite_bits(dtype, 500, 10 * seed + number) for number in range(6)]
    total = exact_sum(parts)
    exact_sums = [sum(map(Fraction, row)) for row in rows_of(parts)]
    values = [rounded(Fraction(one), "float64") for one in exact_sums]
    assert total.value.tolist() == values
    sizes = [rounded(Fraction(sum(abs(Fraction(one)) for one in row)), "float64") for row in rows_of(parts)]
    assert total.magnitude.tolist() == pytest.approx(sizes, rel=1e-14)
    if total.residue is not None:
        pairs = zip(exact_sums, values, strict=True)
        left = [float(one - Fraction(value)) if math.isfinite(value) else 0 for one, value in pairs]
        assert total.residue.tolist() == pytest.approx(left, rel=1e-15)
    assert (total.residue is None) == (dtype.itemsize < 2 or dtype is torch.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 7, 8, 72])
def test_exact_average_against_fractions(dtype, count):
    parts = [finite_bits(dtype, 200, 100 + number) for number in range(count)]
    parts[0][:40] = parts[1][:40]  # of one size, too
    found = exact_average(parts, exact_sum(parts)).tolist()
    expected = [rounded(Fraction(sum(map(Fraction, row))) / count, "float64") for row in rows_of(parts)]
    assert found == expected


def test_the_average_of_numbers_whose_sum_overflows():
    largest = FORMATS[torch.float64].largest
    parts = [torch.tensor([largest, largest, -largest], dtype=torch.float64) for _ in range(3)]
    parts[2][1] = -largest
    total = exact_sum(parts)
    assert total.value.tolist() == [math.inf, largest, -math.inf]
    assert exact_average(parts, total).tolist() == [largest, largest / 3, -largest]


@pytest.mark.parametrize("order", range(4))
def test_an_infinity_outweighs_numbers_whose_sum_overflows_the_other_way(order):
    """In float64 an addition of finite parts may give the other infinity, and NaN then."""
    largest = torch.finfo(torch.float64).max
    columns = ([-largest, -largest, math.inf, 1.0], [largest, largest, -math.inf, 0.0], [math.inf, 1.0, -math.inf, 0.0])
    parts = [torch.tensor(row, dtype=torch.float64) for row in zip(*columns, strict=True)]
    parts = parts[order:] + parts[:order]
    total = exact_sum(parts)
    for value in (total.value, exact_average(parts, total)):
        assert value[:2].tolist() == [math.inf, -math.inf]
        assert math.isnan(float(value[2]))
    limit = bound(parts, "native", "avg")
    assert bool(limit.permits(torch.tensor([math.inf, -math.inf, math.nan], dtype=torch.float64)).all())
    assert not bool(limit.permits(torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)).any())


def test_exact_sum_where_float64_is_not_exact():
    parts = [torch.tensor([value, 1.0]) for value in (1e30, 1.0, -1e30, 2.0**-50)]
    assert exact_sum(parts).value.tolist() == [1.0 + 2.0**-50, 4.0]
    wide = [torch.tensor([value], dtype=torch.float64) for value in (1e300, 1.0, -1e300, 1e-300, -1.0, 1e-310)]
    assert exact_sum(wide).value.tolist() == [1e-300 + 1e-310]
    special = [torch.tensor([math.inf, math.inf, math.nan]), torch.tensor([1e-30, -math.inf, 1.0])]
    values = exact_sum([*special, torch.tensor([1e30, 1.0, 1.0])]).value
    assert values[0] == math.inf
    assert bool(values[1:].isnan().all())


def test_sums_of_nothing():
    for dtype in DTYPES:
        parts = [torch.empty(0).to(dtype)] * 3
        total = exact_sum(parts)
        assert total.value.shape == exact_average(parts, total).shape == (0,)
