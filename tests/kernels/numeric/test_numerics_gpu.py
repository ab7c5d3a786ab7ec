"""Folds, exact results, bounds and comparisons give the same bits on a GPU as on the CPU, for every dtype."""

import pytest
import torch

from cases.dtypes import DTYPES, FLOATS, INTEGERS, accumulators_of, reductions_of
from kernels.numeric.bounds import LIBRARY, bound
from kernels.numeric.exact import exact_average, exact_sum
from kernels.numeric.formats import bits_of, is_nan, narrow, round_to, same_bits, to_float64, ulp_distance
from kernels.numeric.numerics import fold
from tests.kernels.numeric.test_formats import random_bits
from tests.kernels.numeric.test_numerics import contributions

pytestmark = pytest.mark.gpu

GPU = "cuda:0"


def alike(here, there):
    """Equal bits, any NaN being the same."""
    assert there.is_cuda
    if here.dtype is torch.bool:
        return torch.equal(here, there.cpu())
    return bool(same_bits(here, there.cpu()).all())


def parts_of(dtype, world_size):
    if dtype in FLOATS:
        return [one[:6_000] for one in contributions(dtype, world_size, 6_000, world_size)]
    return [random_bits(DTYPES[dtype], 6_000, 100 + rank) for rank in range(world_size)]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_folds(dtype, world_size):
    parts = parts_of(dtype, world_size)
    away = [part.to(GPU) for part in parts]
    first = torch.arange(6_000) % world_size
    for reduction in reductions_of(dtype):
        for accumulator in accumulators_of(dtype, reduction):
            for start in (None, first):
                there = None if start is None else start.to(GPU)
                here = fold(parts, accumulator, reduction, start, "results")
                assert alike(here, fold(away, accumulator, reduction, there, "results"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_exact_results_and_bounds(dtype, world_size):
    parts = parts_of(dtype, world_size)
    away = [part.to(GPU) for part in parts]
    total, there = exact_sum(parts), exact_sum(away)
    assert alike(total.value, there.value)
    assert alike(total.magnitude, there.magnitude)
    average = exact_average(parts, total)
    assert alike(average, exact_average(away, there))
    assert alike(round_to(average, DTYPES[dtype]), round_to(average.to(GPU), DTYPES[dtype]))
    result = fold(parts, "native", "avg")
    for reduction in ("sum", "avg", "min", "max"):
        for accumulator in (*accumulators_of(dtype, reduction), LIBRARY):
            one, other = bound(parts, accumulator, reduction), bound(away, accumulator, reduction)
            assert alike(one.low, other.low)
            assert alike(one.high, other.high)
            assert alike(one.permits(result), other.permits(result.to(GPU)))
            assert one.largest_error == other.largest_error
            assert one.largest_share(result) == other.largest_share(result.to(GPU))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "uint8"])
def test_comparisons(dtype):
    left, right = (random_bits(DTYPES[dtype], 6_000, seed) for seed in (1, 2))
    one, other = left.to(GPU), right.to(GPU)
    assert alike(ulp_distance(left, right), ulp_distance(one, other))
    assert alike(same_bits(left, right), same_bits(one, other))
    assert alike(to_float64(left), to_float64(one))
    assert torch.equal(bits_of(left), bits_of(one).cpu())
    if dtype in FLOATS:
        assert alike(is_nan(left), is_nan(one))
        wide = random_bits(torch.float32, 100_000, 3)
        assert alike(narrow(wide, DTYPES[dtype]), narrow(wide.to(GPU), DTYPES[dtype]))
