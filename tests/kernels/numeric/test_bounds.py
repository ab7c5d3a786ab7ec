"""Bounds: every honest result is within, and what they are there to catch is not."""

import math

import pytest
import torch

from cases.dtypes import DTYPES, FLOAT8, FLOATS, accumulators_of
from kernels.numeric.bounds import LIBRARY, bound
from kernels.numeric.formats import FORMATS, bits_of, narrow, round_to, to_float64, ulp_distance
from kernels.numeric.numerics import average_of_sum, averaging_factor, fold
from tests.kernels.numeric.test_numerics import of_values

ROUNDED = [(dtype, accumulator) for dtype in FLOATS for accumulator in accumulators_of(dtype, "sum")]
WIDER = [(dtype, accumulator) for dtype, accumulator in ROUNDED if accumulator not in ("native", dtype)]


def normal(dtype, world_size, count, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    kind = DTYPES[dtype]
    return [
        narrow(torch.randn(count, generator=generator, dtype=torch.float64) * scale, kind) for _ in range(world_size)
    ]


def rounding(dtype, accumulator):
    """What an addition of an accumulator does to a float64 sum (exact but for float64's own)."""
    kind = DTYPES[dtype]
    if accumulator == "native" and dtype in FLOAT8:
        return lambda value: to_float64(round_to(round_to(value, torch.float16).double(), kind))
    wide = kind if accumulator == "native" else DTYPES[accumulator]
    return lambda value: to_float64(round_to(value, wide))


def any_tree(terms, generator, rounded):
    """A sum of float64 terms in a random tree, rounded after each addition."""
    while len(terms) > 1:
        left, right = torch.randperm(len(terms), generator=generator)[:2].tolist()
        joined = rounded(terms[left] + terms[right])
        terms = [term for number, term in enumerate(terms) if number not in (left, right)] + [joined]
    return terms[0]


def stepped(value, steps):
    """The number that is so many steps up the line of a float type's numbers, which has one zero."""
    bits = bits_of(value)
    lowest = torch.iinfo(bits.dtype).min
    place = torch.where(bits < 0, -(bits & ~lowest), bits) + steps.to(bits.dtype)
    return torch.where(place < 0, -place | lowest, place).view(value.dtype)


@pytest.mark.parametrize(("dtype", "accumulator"), ROUNDED)
@pytest.mark.parametrize("world_size", [2, 3, 8, 72])
def test_every_honest_sum_is_within(dtype, accumulator, world_size):
    generator = torch.Generator().manual_seed(world_size)
    kind = DTYPES[dtype]
    rounded = rounding(dtype, accumulator)
    for scale in (1.0, FORMATS[kind].smallest_normal / 8):
        parts = normal(dtype, world_size, 1500, scale=scale)
        limit = bound(parts, accumulator)
        once = round_to(limit.exact, kind)
        assert bool(limit.permits(once).all())
        if dtype != "float64":
            # faithful, but never the nearest: the other neighbour, wherever the sum is no number of the dtype
            error = limit.exact - to_float64(once)
            assert bool(limit.permits(stepped(once, error.sign())).all())
        for _ in range(8 if world_size < 72 else 2):
            result = narrow(any_tree([to_float64(part) for part in parts], generator, rounded), kind)
            assert bool(limit.permits(result).all())
            assert limit.largest_share(result) <= 1.0


@pytest.mark.parametrize(("dtype", "accumulator"), ROUNDED)
@pytest.mark.parametrize("world_size", [2, 3, 8, 72])
def test_every_honest_average_is_within(dtype, accumulator, world_size):
    """Multiplied before the sum, in any order, or after it, by the switch's kernel. A library may divide, too."""
    generator = torch.Generator().manual_seed(world_size)
    kind = DTYPES[dtype]
    rounded = rounding(dtype, accumulator)
    single = DTYPES["float64" if dtype == "float64" else "float32"]
    wide = kind if accumulator == "native" else DTYPES[accumulator]
    for scale in (1.0, FORMATS[kind].smallest_normal / 8):
        parts = normal(dtype, world_size, 1500, seed=3, scale=scale)
        limit, library = bound(parts, accumulator, "avg"), bound(parts, LIBRARY, "avg")
        for _ in range(6 if world_size < 72 else 1):
            products = [rounded(to_float64(part) * averaging_factor(wide, world_size)) for part in parts]
            before = narrow(any_tree(products, generator, rounded), kind)
            total = narrow(any_tree([to_float64(part) for part in parts], generator, rounded), kind)
            after = average_of_sum(to_float64(total).to(single), world_size, kind)
            divided = narrow(to_float64(total) / world_size, kind)
            for result in (before, after):
                assert bool(limit.permits(result).all())
                assert limit.largest_share(result) <= 1.0
                assert bool(library.permits(result).all())
            assert bool(library.permits(divided).all())


@pytest.mark.parametrize(("dtype", "accumulator"), ROUNDED)
@pytest.mark.parametrize("reduction", ["sum", "avg"])
def test_a_dropped_rank_falls_out(dtype, accumulator, reduction):
    count = 8 if dtype not in FLOAT8 else 3
    parts = normal(dtype, count, 2000)
    limit = bound(parts, accumulator, reduction)
    for dropped in range(count):
        rest = [part if rank != dropped else torch.zeros(2000).to(part.dtype) for rank, part in enumerate(parts)]
        result = fold(rest, "native" if dtype == "float64" else "float32", reduction)
        caught = (~limit.permits(result)).double().mean()
        wanted = 0.75 if dtype in FLOAT8 else 0.9
        if accumulator == "native" and dtype in SHOWS:
            wanted = SHOWS[dtype][reduction == "avg"]
        assert caught > wanted
        assert limit.largest_share(result) > 1.0


SHOWS = {"bfloat16": (0.8, 0.75), "float8_e4m3fn": (0.75, 0.5), "float8_e5m2": (0.5, 0.1)}
"""Where a native bound lets more than a few such results pass: shares that are caught, of sums and of averages."""


@pytest.mark.parametrize(("dtype", "accumulator"), WIDER)
def test_a_native_sum_falls_out_of_a_wider_accumulators_bound(dtype, accumulator):
    parts = normal(dtype, 8, 4000)
    limit, native = bound(parts, accumulator), fold(parts, "native")
    assert (~limit.permits(native)).double().mean() > 0.05
    assert limit.largest_share(native) > 1.0
    assert bool(bound(parts, "native").permits(native).all())


def test_a_float32_sum_falls_out_of_float64s_bound():
    parts = normal("float64", 8, 4000)
    result = fold([part.float() for part in parts], "native").double()
    for reduction in ("sum", "avg"):
        limit = bound(parts, "native", reduction)
        assert (~limit.permits(result / (8 if reduction == "avg" else 1))).double().mean() > 0.99


@pytest.mark.parametrize(("dtype", "accumulator"), WIDER)
def test_the_ends_are_permitted_and_one_step_beyond_is_not(dtype, accumulator):
    kind = DTYPES[dtype]
    limit = bound(normal(dtype, 4, 2000), accumulator)
    low, high = round_to(limit.low, kind), round_to(limit.high, kind)
    assert torch.equal(to_float64(low), limit.low)
    assert bool(limit.permits(low).all())
    assert bool(limit.permits(high).all())
    one = torch.ones(2000)
    assert not bool(limit.permits(stepped(high, one)).any())
    assert not bool(limit.permits(stepped(low, -one)).any())
    assert int(ulp_distance(low, high).to(torch.float64).median()) <= 1
    assert limit.largest_share(high) == 1.0


def test_special_values():
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


def permitted(dtype, values, accumulator, reduction="sum"):
    """All numbers of a float8 type that one element's result may have; NaN last."""
    every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(DTYPES[dtype])
    limit = bound([of_values([value], dtype) for value in values], accumulator, reduction)
    found = {float(to_float64(every[i : i + 1])) for i in range(256) if bool(limit.permits(every[i : i + 1]))}
    numbers = sorted(value + 0.0 for value in found if not math.isnan(value))
    return [*dict.fromkeys(numbers), *([math.nan] if len(found) > len(numbers) else [])]


def test_float8_overflow_is_the_largest_number_infinity_or_nan():
    nan = pytest.approx(math.nan, nan_ok=True)
    assert permitted("float8_e4m3fn", [448.0, 448.0], "float16") == [448.0, nan]
    assert permitted("float8_e4m3fn", [-448.0, -448.0], "float16") == [-448.0, nan]
    assert permitted("float8_e4m3fn", [448.0, 1.0], "float16") == [448.0, nan]
    assert permitted("float8_e4m3fn", [416.0, 16.0], "float16") == [416.0, 448.0]
    assert permitted("float8_e5m2", [57344.0, 4096.0], "float16") == [57344.0, math.inf]
    assert permitted("float8_e5m2", [40960.0, 12288.0], "float16") == [49152.0, 57344.0]
    assert permitted("float8_e5m2", [math.inf, 1.0], "float16") == [57344.0, math.inf]
    assert permitted("float8_e5m2", [math.inf, -math.inf], "float16") == [nan]
    assert permitted("float8_e5m2", [math.nan, 1.0], "native") == [nan]
    assert permitted("float8_e4m3fn", [math.nan, 1.0], "native") == [nan]
    # Nothing is demanded of a native sum that may overflow on its way, nor of infinity in it.
    assert len(permitted("float8_e4m3fn", [448.0, 448.0], "native")) == 254
    assert len(permitted("float8_e5m2", [math.inf, 1.0], "native")) == 250
    # 448 / 2, from a sum that saturated; 448 if the products came first; between them by neither, but not told apart.
    assert permitted("float8_e4m3fn", [448.0, 448.0], "float16", "avg")[0] == 224.0
    assert permitted("float8_e4m3fn", [448.0, 448.0], "float16", "avg")[-2:] == [448.0, nan]
    assert permitted("float8_e4m3fn", [32.0, 15.0], "float16", "avg") == [22.0, 24.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_minima_and_maxima_of_the_switch(dtype):
    endless = FORMATS[DTYPES[dtype]].has_infinity
    top = math.inf if endless else 448.0
    columns = [
        # contributions, right, wrong (for min)
        ([1.0, 2.0, 3.0], [1.0], [2.0, 0.875, math.nan]),
        ([0.0, -0.0, 3.0], [0.0, -0.0], [3.0, math.nan]),
        ([-0.0, -0.0, -0.0], [0.0, -0.0], [1.0]),
        ([math.nan, 2.0, 3.0], [2.0, math.nan], [3.0]),
        ([math.nan, math.nan, math.nan], [math.nan], [0.0, top]),
        ([-top, 2.0, 3.0], [-top], [2.0, top]),
        ([top, top, top], [top], [-top, math.nan]),
    ]
    for sign, reduction in ((1.0, "min"), (-1.0, "max")):
        for values, right, wrong in columns:
            limit = bound([of_values([sign * value], dtype) for value in values], "native", reduction)
            for result, good in [(one, True) for one in right] + [(one, False) for one in wrong]:
                given = of_values([sign * result], dtype)
                assert bool(limit.permits(given)) == good, (reduction, values, result)
                assert (limit.largest_share(given) <= 1.0) == good
    if dtype == "float8_e5m2":
        limit = bound([of_values([math.inf], dtype)] * 2, "native", "min")
        assert bool(limit.permits(of_values([57344.0], dtype))), "narrowed from float16"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_single_part_comes_out_itself(dtype):
    (part,) = normal(dtype, 1, 100)
    for reduction in ("sum", "avg", "min"):
        limit = bound([part], "native", reduction)
        assert bool(limit.permits(part).all())
        assert not bool(limit.permits(stepped(part, torch.ones(100))).any())
        assert limit.largest_error == 0.0


def test_nothing_to_bound():
    for dtype in FLOATS:
        parts = [torch.empty(0).to(DTYPES[dtype])] * 3
        for reduction in ("sum", "avg", "max"):
            limit = bound(parts, "native", reduction)
            assert limit.formula
            assert (limit.largest_error, limit.largest_share(parts[0])) == (0.0, 0.0)
