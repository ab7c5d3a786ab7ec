"""Folds of every dtype, accumulator and reduction, against the rules in fractions, numpy and ml_dtypes."""

import itertools
import math

import numpy as np
import pytest
import torch

from cases.dtypes import ALL, DTYPES, FLOAT8, FLOATS, INTEGERS, accumulators_of, reductions_of
from kernels.numeric.formats import FORMATS, bits_of, is_nan, narrow, same_bits, to_float64
from kernels.numeric.numerics import average_of_sum, averaging_factor, fold
from tests.golden import refused
from tests.kernels.numeric import rounding_model as model
from tests.kernels.numeric.test_formats import NUMPY, all_values, from_numpy, random_bits

SUMS = [
    (dtype, accumulator, reduction)
    for dtype in FLOATS
    for accumulator in accumulators_of(dtype, "sum")
    for reduction in ("sum", "avg")
]


def of_values(values, dtype):
    """Numbers that the dtype has, infinities and NaN among them."""
    wide = torch.tensor(values, dtype=torch.float64)
    if dtype != "float8_e5m2":
        return narrow(wide, DTYPES[dtype])
    bits = bits_of(narrow(wide, DTYPES[dtype]))
    infinity = torch.where(wide > 0, 0x7C, -4).to(torch.int8)
    return torch.where(wide.isinf(), infinity, bits).view(DTYPES[dtype])


def contributions(dtype, world_size, count, seed):
    """A third random patterns, a third of one size, a third where every rank has one of a few tiny numbers; and zeros,
    ends, infinities and NaN: of two ranks every pair of them."""
    kind = DTYPES[dtype]
    parts = []
    generator = torch.Generator().manual_seed(seed)
    largest, tiny = FORMATS[kind].largest, FORMATS[kind].smallest_subnormal
    ends = [one for end in (0.0, tiny, 1.0, largest, math.inf) for one in (end, -end)]
    pairs = list(itertools.product([*ends, math.nan], repeat=2))
    for rank in range(world_size):
        anything = random_bits(kind, count // 3, seed * 100 + rank)
        normal = narrow(torch.randn(count // 3, generator=generator, dtype=torch.float64), kind)
        steps = torch.randint(-9, 10, (count // 3,), generator=generator)
        few = narrow(steps.to(torch.float64) * FORMATS[kind].smallest_subnormal, kind)
        order = torch.randperm(len(pairs), generator=generator).tolist() if rank > 1 else range(len(pairs))
        special = of_values([pairs[at][rank % 2] for at in order], dtype)
        parts.append(torch.cat([bits_of(part) for part in (anything, normal, few, special)]).view(kind))
    return parts


def rows_of(parts):
    return torch.stack([to_float64(part) for part in parts], dim=1).tolist()


@pytest.mark.parametrize(("dtype", "accumulator", "reduction"), SUMS)
@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_sums_and_averages_follow_the_rules(dtype, accumulator, reduction, world_size):
    parts = contributions(dtype, world_size, 360, world_size)
    expected = [model.summed(row, dtype, accumulator, reduction) for row in rows_of(parts)]
    found = fold(parts, accumulator, reduction)
    assert found.dtype is DTYPES[dtype]
    assert bool(same_bits(found, of_values(expected, dtype)).all())
    assert sum(map(math.isnan, expected)) < 200
    minus = [of_values([-0.0] * 4, dtype)] * world_size
    assert bool(same_bits(fold(minus, accumulator, reduction), minus[0]).all())


@pytest.mark.parametrize(("dtype", "accumulator", "reduction"), SUMS)
def test_other_accumulators_give_other_bits(dtype, accumulator, reduction):
    """Or the test before would say little of them."""
    parts = contributions(dtype, 8, 3000, 1)
    for other in accumulators_of(dtype, reduction):
        same = bool(same_bits(fold(parts, accumulator, reduction), fold(parts, other, reduction)).all())
        assert same == (other == accumulator or dtype == "float32")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["min", "max"])
def test_extremes_follow_the_rules(dtype, reduction):
    parts = contributions(dtype, 3, 900, 7)
    expected = [model.extreme(row, dtype, reduction) for row in rows_of(parts)]
    found = fold(parts, "native", reduction)
    assert bool(same_bits(found, of_values(expected, dtype)).all())


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("world_size", [2, 3, 7, 8, 72])
def test_integers_follow_the_rules(dtype, world_size):
    kind = DTYPES[dtype]
    parts = [random_bits(kind, 400, 10 * world_size + rank) for rank in range(world_size)]
    low, high = (0, 0xFF) if dtype.startswith("u") else (0x80, 0x7F)
    for rank, part in enumerate(parts):  # the ends of the type, too
        raw = part.view(torch.uint8).view(-1, kind.itemsize)
        raw[:20] = 0xFF if high == 0xFF or rank % 2 else 0
        raw[20:40, -1] = low if rank % 2 else high
    rows = list(zip(*(part.view(torch.uint8).numpy().view(dtype).tolist() for part in parts), strict=True))
    width, signed = 8 * kind.itemsize, dtype.startswith("i")
    for reduction in reductions_of(dtype):
        expected = [model.integer(row, width, signed, reduction) for row in rows]
        found = fold(parts, "native", reduction)
        assert found.dtype is kind
        assert found.view(torch.uint8).numpy().view(dtype).tolist() == expected, reduction


def test_signed_division_is_towards_zero():
    parts = [torch.tensor([-7, 7, -1, -(2**31)], dtype=torch.int32), torch.tensor([0, 0, 0, -1], dtype=torch.int32)]
    assert fold(parts, "native", "avg").tolist() == [-3, 3, 0, (2**31 - 1) // 2]
    wide = [torch.tensor([-1, 5]).view(torch.uint64), torch.tensor([-2, 2]).view(torch.uint64)]
    assert fold(wide, "native", "avg").view(torch.int64).tolist() == [(2**64 - 3) // 2, 3]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_additions_agree_with_an_independent_library(dtype):
    """A great many additions, among near neighbours in size, too, where cancellation and ties live."""
    kind = DTYPES[dtype]
    left, right = random_bits(kind, 300_000, 2), random_bits(kind, 300_000, 3)
    close = left.to(torch.float64) * torch.linspace(-4, 4, 300_000, dtype=torch.float64)
    left, right = torch.cat([left, left]), torch.cat([right, narrow(close, kind)])
    one, other = (value.view(FORMATS[kind].bits).numpy().view(NUMPY[kind]) for value in (left, right))
    with np.errstate(all="ignore"):
        expected = from_numpy(one + other, kind)
    assert bool(same_bits(fold([left, right], "native"), expected).all())


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_pair_of_float8_numbers(dtype):
    """Sums in float16 and in float32 are the same for two: narrowed once, by ml_dtypes."""
    kind = DTYPES[dtype]
    every = bits_of(all_values(kind))
    left, right = every.repeat(256).view(kind), every.repeat_interleave(256).view(kind)
    largest = FORMATS[kind].largest
    one, other = (value.view(torch.int8).numpy().view(NUMPY[kind]) for value in (left, right))
    with np.errstate(all="ignore"):
        for accumulator, wide in (("float32", np.float32), ("float16", np.float16), ("native", np.float16)):
            total = (one.astype(wide) + other.astype(wide)).astype(np.float32)
            limited = np.where(np.isnan(total), total, np.clip(total, -largest, largest))
            expected = from_numpy(limited.astype(NUMPY[kind]), kind)
            assert bool(same_bits(fold([left, right], accumulator), expected).all())


@pytest.mark.parametrize(("dtype", "accumulator", "reduction"), SUMS)
def test_fold_from_the_next_rank(dtype, accumulator, reduction):
    generator, kind = torch.Generator().manual_seed(5), DTYPES[dtype]
    parts = [narrow(torch.randn(333, generator=generator, dtype=torch.float64), kind) for _ in range(5)]
    first = torch.arange(333) % 5
    result = bits_of(fold(parts, accumulator, reduction, first))
    for start in range(5):
        rotated = bits_of(fold([*parts[start:], *parts[:start]], accumulator, reduction))
        assert torch.equal(result[start::5], rotated[start::5])
    if accumulator == "native":
        assert not torch.equal(result, bits_of(fold(parts, accumulator, reduction)))


@pytest.mark.parametrize("dtype", [name for name in ALL if name != "uint8"])
def test_one_rank_alone_keeps_its_bits(dtype):
    strange = random_bits(DTYPES[dtype], 1000, 4)
    for reduction in reductions_of(dtype):
        for accumulator in accumulators_of(dtype, reduction):
            alone = fold([strange], accumulator, reduction, None, "results" if dtype in FLOATS else "")
            assert torch.equal(bits_of(alone), bits_of(strange))
            assert alone.data_ptr() != strange.data_ptr()


@pytest.mark.parametrize("dtype", FLOATS)
def test_positive_zero(dtype):
    zeros = of_values([-0.0, -0.0, 0.0, -0.0], dtype)
    others = of_values([-0.0, 0.0, -0.0, -1.0], dtype)
    plus = of_values([0.0, 0.0, 0.0, -1.0], dtype)
    for promise in ("inputs", "results"):
        for reduction in ("sum", "max", "min"):
            kept = bits_of(zeros).clone()
            assert bool(same_bits(fold([zeros, others], "native", reduction, None, promise)[:3], plus[:3]).all())
            assert torch.equal(bits_of(zeros), kept)
        assert bool(same_bits(fold([zeros, others], "native", "sum", None, promise), plus).all())
    # A product that vanishes is negative still, unless results are held to it as well.
    tiny = FORMATS[DTYPES[dtype]].smallest_subnormal
    parts = [of_values([-tiny], dtype), of_values([-0.0], dtype), *[of_values([0.0], dtype)] * 6]
    gone = [of_values([-tiny], dtype), of_values([-tiny], dtype)] + [of_values([-tiny], dtype)] * 6
    assert float(to_float64(fold(parts, "native", "avg", None, "inputs"))) == 0.0
    vanished = fold(gone, "native", "avg", None, "inputs")
    assert bool(same_bits(vanished, of_values([-0.0], dtype)).all())
    assert bool(same_bits(fold(gone, "native", "avg", None, "results"), of_values([0.0], dtype)).all())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [2, 3, 7, 8, 72])
def test_the_switchs_average_is_one_product(dtype, count):
    total = random_bits(DTYPES[dtype], 2000, count)
    wide = "float64" if dtype == "float64" else "float32"
    constant = model.factor(count, dtype, wide)
    assert constant == averaging_factor(DTYPES[wide], count)
    values = to_float64(total)
    products = [model.stored(model.multiplied(value, constant, wide), dtype) for value in values.tolist()]
    found = average_of_sum(total.to(DTYPES[wide]), count, DTYPES[dtype])
    assert bool(same_bits(found, of_values(products, dtype)).all())
    assert int(is_nan(found).sum()) == int(values.isnan().sum())


@pytest.mark.parametrize(
    ("dtype", "accumulator", "reduction"),
    [
        ("float32", "float64", "sum"),
        ("int32", "float32", "sum"),
        ("bfloat16", "float32", "max"),
        ("float16", "native", "xor"),
        ("uint8", "native", "sum"),
    ],
)
def test_what_does_not_belong_together(dtype, accumulator, reduction):
    with refused():
        fold([torch.ones(1, dtype=torch.uint8).repeat(8).view(DTYPES[dtype])] * 2, accumulator, reduction)
