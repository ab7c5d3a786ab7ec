"""Formats, roundings and distances against torch, numpy, ml_dtypes and the definitions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from kernels.numeric import formats
from tests.kernels.numeric.rounding_model import SHAPES, rounded

DTYPES = list(formats.FORMATS)
SHORT = [dtype for dtype in DTYPES if dtype.itemsize <= 2]
INTEGERS = [torch.int32, torch.int64, torch.uint32, torch.uint64, torch.uint8]
NUMPY = {
    torch.float64: np.float64,
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
}


def from_numpy(value, dtype):
    return torch.from_numpy(np.ascontiguousarray(value).view(f"i{dtype.itemsize}")).view(dtype)


def random_bits(dtype, count, seed):
    """Numbers of every exponent, subnormals, zeros, infinities and NaN among them."""
    generator = np.random.default_rng(seed)
    return torch.from_numpy(np.frombuffer(generator.bytes(count * dtype.itemsize), np.uint8).copy()).view(dtype)


def all_values(dtype):
    half = 1 << (8 * dtype.itemsize - 1)
    return torch.arange(-half, half, dtype=torch.int32).to(formats.FORMATS[dtype].bits).view(dtype)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", DTYPES)
def test_formats_agree_with_torch(dtype):
    form, info = formats.FORMATS[dtype], torch.finfo(dtype)
    assert form.largest == info.max == float(SHAPES[name_of(dtype)].largest)
    assert form.smallest_normal == info.tiny
    assert form.unit_roundoff == info.eps / 2

    def number(bits):
        return float(formats.to_float64(torch.tensor([bits], dtype=torch.int64).to(form.bits).view(dtype)))

    assert form.smallest_subnormal == number(1)
    assert form.largest == number(form.largest_bits)
    after = number(form.infinity_bits)
    assert after == math.inf if form.has_infinity else math.isnan(after)
    step = form.largest - number(form.largest_bits - 1)
    assert form.overflow == form.largest + step


@pytest.mark.parametrize("dtype", DTYPES)
def test_is_nan_and_to_float64(dtype):
    values = all_values(dtype) if dtype.itemsize < 4 else random_bits(dtype, 100_000, 1)
    with np.errstate(all="ignore"):
        expected = values.view(formats.FORMATS[dtype].bits).numpy().view(NUMPY[dtype]).astype(np.float64)
    assert formats.is_nan(values).tolist() == np.isnan(expected).tolist()
    assert np.array_equal(formats.to_float64(values).numpy(), expected, equal_nan=True)
    assert np.array_equal(formats.widen(values).to(torch.float64).numpy(), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_as_float64(dtype):
    values = random_bits(dtype, 1000, 2)
    numbers = values.view(torch.uint8).numpy().view(name_of(dtype)).tolist()
    assert formats.to_float64(values).tolist() == [float(number) for number in numbers]


@pytest.mark.parametrize("dtype", SHORT)
def test_narrow_agrees_with_an_independent_library(dtype):
    wide = random_bits(torch.float32, 400_000, 1)
    line = formats.to_float64(all_values(dtype))
    finite = line[line.isfinite()].sort().values
    ties = ((finite[1:] + finite[:-1]) / 2).to(torch.float32)
    near = torch.cat([ties, torch.nextafter(ties, torch.full_like(ties, math.inf)), torch.nextafter(ties, -ties)])
    wide = torch.cat(
        [wide, finite.to(torch.float32), near, torch.tensor([65519.99, 65520.0, -65520.0, 3.4e38, math.inf])]
    )
    wide = torch.cat([wide, -wide])
    largest = formats.FORMATS[dtype].largest
    with np.errstate(all="ignore"):
        numbers = wide.numpy()
        if dtype in formats.FLOAT8:
            numbers = np.where(np.isnan(numbers), numbers, np.clip(numbers, -largest, largest))
        expected = from_numpy(numbers.astype(NUMPY[dtype]), dtype)
    assert bool(formats.same_bits(formats.narrow(wide, dtype), expected).all())
    assert bool(formats.same_bits(formats.narrow(wide.to(torch.float64), dtype), expected).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_of_float64_rounds_once(dtype):
    """Against fractions, among them numbers that float32 would round to a tie first."""
    form = formats.FORMATS[dtype]
    values = random_bits(dtype, 600, 3)
    values = formats.to_float64(values)[~formats.is_nan(values)]
    values = values[values.isfinite()]
    factors = torch.tensor([1, 1 + form.unit_roundoff, 1 + form.unit_roundoff * (1 + 2.0**-28), 1 - form.unit_roundoff])
    tried = (values[:, None] * factors.to(torch.float64)).flatten()
    tried = tried[tried.isfinite()]
    expected = [rounded(Fraction(value), name_of(dtype), value) for value in tried.tolist()]
    found = formats.to_float64(formats.narrow(tried, dtype))
    assert bool(formats.same_bits(found, torch.tensor(expected, dtype=torch.float64)).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_to_the_limits(dtype):
    form = formats.FORMATS[dtype]
    if dtype is torch.float64:
        return
    # the first is above a tie by less than float32 can see
    values = [1 + form.unit_roundoff * (1 + 2.0**-28), -form.smallest_subnormal * 0.5000001]
    values += [form.largest * (1 + form.unit_roundoff / 4)]
    values += [form.overflow * 1.5, 1e300, -math.inf, math.nan, -0.0, form.smallest_subnormal / 2]
    top = form.largest if dtype in formats.FLOAT8 else math.inf
    expected = [1 + 2 * form.unit_roundoff, -form.smallest_subnormal, form.largest, top, top, -top]
    expected += [math.nan, -0.0, 0.0]
    found = formats.to_float64(formats.round_to(torch.tensor(values, dtype=torch.float64), dtype))
    assert bool(formats.same_bits(found, torch.tensor(expected, dtype=torch.float64)).all())


@pytest.mark.parametrize("dtype", SHORT)
def test_ulp_distance_is_the_number_of_steps(dtype):
    values = all_values(dtype)
    numbers = formats.to_float64(values)[~formats.is_nan(values)]
    ordered = torch.unique(numbers)  # one zero, as on the line
    line = ordered.to(torch.float32).to(dtype)
    assert torch.equal(formats.to_float64(line), ordered)
    steps = formats.ulp_distance(line[1:], line[:-1])
    assert bool((steps == 1).all())
    lowest = line[:1].expand(len(line))
    assert torch.equal(formats.ulp_distance(line, lowest.contiguous()), torch.arange(len(line)))
    assert formats.nan_distance(dtype) == len(line)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulp_distance_of_zeros_and_nan(dtype):
    top = math.inf if formats.FORMATS[dtype].has_infinity else 448.0
    left = torch.tensor([0.0, -0.0, math.nan, math.nan, 1.0, -top]).to(dtype)
    right = torch.tensor([-0.0, -0.0, math.nan, 1.0, math.nan, top]).to(dtype)
    beyond = formats.nan_distance(dtype)
    farthest = formats.INT64_MAX if dtype is torch.float64 else beyond - 1
    assert formats.ulp_distance(left, right).tolist() == [0, 0, 0, beyond, beyond, farthest]
    tiny = torch.ones(1, dtype=formats.FORMATS[dtype].bits)
    minus = tiny | torch.iinfo(tiny.dtype).min
    assert formats.ulp_distance(tiny.view(dtype), minus.view(dtype)).tolist() == [2]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_distance_of_integers_is_the_difference(dtype):
    left, right = random_bits(dtype, 2000, 5), random_bits(dtype, 2000, 6)
    one, other = (value.view(torch.uint8).numpy().view(name_of(dtype)).tolist() for value in (left, right))
    expected = [min(abs(a - b), formats.INT64_MAX) for a, b in zip(one, other, strict=True)]
    assert formats.ulp_distance(left, right).tolist() == expected
    if dtype.itemsize == 8:
        assert 300 < expected.count(formats.INT64_MAX) < 700
    assert formats.ulp_distance(left, left).tolist() == [0] * 2000


def test_same_bits():
    left = torch.tensor([0.0, 0.0, math.nan, 1.0])
    right = torch.tensor([0.0, -0.0, -math.nan, math.nan])
    assert formats.same_bits(left, right).tolist() == [True, False, True, False]
    patterns = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    for dtype, pairs in ((torch.float8_e4m3fn, 2), (torch.float8_e5m2, 30)):
        values = patterns.view(dtype)
        found = sum(int(formats.same_bits(values.roll(shift), values).sum()) for shift in range(1, 256))
        assert found == pairs, "each NaN is the same as every other"
    assert formats.same_bits(patterns.view(torch.uint32), patterns.view(torch.uint32)).all()
    assert formats.bits_of(torch.zeros(2, dtype=torch.uint64)).dtype is torch.int64
