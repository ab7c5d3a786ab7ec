"""8-bit floats: the simulator's tables and the vectors' oracle, both against ml_dtypes and torch, all codes and pairs."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

import tests.simulator.isa.oracle as oracle
from simulator.isa.switch import combine
from simulator.number.float8 import FLOATS8
from tests.simulator.isa.oracle import F16, F32, FORMATS8

OTHERS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
TORCHES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
CODES = np.arange(256, dtype=np.uint8)
HALVES = np.arange(65536, dtype=np.uint16)
NAMES = sorted(FLOATS8)


def values_of(name):
    return CODES.view(OTHERS[name]).astype(np.float64)


def saturating(floats, name):
    """ml_dtypes rounds to nearest even; what it does beyond the largest is not asked."""
    largest = float(ml_dtypes.finfo(OTHERS[name]).max)
    with np.errstate(all="ignore"):
        codes = np.clip(floats, -largest, largest).astype(OTHERS[name]).view(np.uint8)
    return np.where(np.isnan(floats), np.uint8(0x7F), codes)


@pytest.mark.parametrize("name", NAMES)
def test_every_code_widened(name):
    kind, expected = FLOATS8[name], values_of(name)
    by_torch = torch.from_numpy(CODES).view(TORCHES[name]).double().numpy()
    assert np.array_equal(expected, by_torch, equal_nan=True)
    assert np.array_equal(kind.to_f64(CODES), expected, equal_nan=True)
    assert np.array_equal(kind.to_f16(CODES).view(np.float16).astype(np.float64), expected, equal_nan=True)
    zeros = expected == 0
    assert np.array_equal(np.signbit(kind.to_f64(CODES)[zeros]), CODES[zeros] == 0x80)
    assert set(kind.to_f16(CODES)[np.isnan(expected)].tolist()) == {0x7FFF}
    for code in range(256):
        assert oracle.widened(code, FORMATS8[name], F16) == int(kind.to_f16(CODES)[code])
        assert oracle.is_nan8(code, FORMATS8[name]) == np.isnan(expected[code])


@pytest.mark.parametrize("name", NAMES)
def test_every_half_narrowed(name):
    with np.errstate(invalid="ignore"):
        expected = saturating(HALVES.view(np.float16).astype(np.float32), name)
    assert np.array_equal(FLOATS8[name].from_f16(HALVES), expected)
    assert [oracle.narrowed(one, F16, FORMATS8[name]) for one in range(0, 65536, 17)] == expected[::17].tolist()


def around_ties(name):
    """float32 patterns at codes, at the middles between them, and a few steps beside both; and any others."""
    finite = np.unique(np.abs(values_of(name)[np.isfinite(values_of(name))]))
    middles = (finite[:-1] + finite[1:]) / 2
    last = finite[-1] + (finite[-1] - finite[-2]) * np.arange(1, 9) / 2
    words = np.concatenate([finite, middles, last]).astype(np.float32).view(np.uint32)
    steps = np.array([-65536, -32769, -2, -1, 0, 1, 2, 32767, 65535], np.int64)
    near = np.maximum(words[:, None].astype(np.int64) + steps, 0).reshape(-1).astype(np.uint32)
    loose = np.random.default_rng(8).integers(0, 1 << 32, 200_000, dtype=np.uint32)
    return np.concatenate([near, near | np.uint32(1 << 31), loose])


@pytest.mark.parametrize("name", NAMES)
def test_floats_narrowed(name):
    words = around_ties(name)
    expected = saturating(words.view(np.float32), name)
    assert np.array_equal(FLOATS8[name].from_f32(words.view(np.float32)), expected)
    assert [oracle.narrowed(int(one), F32, FORMATS8[name]) for one in words[:3000]] == expected[:3000].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_doubles_are_rounded_once(name):
    """A float64 just beside a middle, by less than float32 can tell."""
    kind = FORMATS8[name]
    floats = around_ties(name)[:3000].view(np.float32).astype(np.float64)
    for side in (-np.inf, np.inf):
        doubles = np.nextafter(floats, side)
        expected = [oracle.saturated(Fraction(one), kind, math.copysign(1, one) < 0) for one in doubles.tolist()]
        assert FLOATS8[name].from_f64(doubles).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("accumulator", ["", "f16"])
@pytest.mark.parametrize("model", ["exact", "stated"])
def test_every_pair_of_codes_added_by_the_switch(name, accumulator, model):
    """Of two, every way rounds once: the sum of two codes fits in float64, and float16's rounding does no harm."""
    left, right = (one.reshape(-1, 1) for one in np.meshgrid(CODES, CODES))
    with np.errstate(all="ignore"):
        found = combine([left, right], name, "add", accumulator, model)
        sums = values_of(name)[left] + values_of(name)[right] + 0.0
    assert np.array_equal(found, saturating(sums, name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ranks", [3, 72, 73, 74])
def test_exact_sums_of_many(name, ranks):
    """All large but one or two that are the smallest, and anything: more ranks than float32 may hold every sum of."""
    kind, rng = FORMATS8[name], np.random.default_rng(ranks)
    table = rng.integers(0, kind.finite, (ranks, 300), dtype=np.uint8)
    table[:, :100] = kind.finite - 1 - rng.integers(0, 2, (ranks, 100), dtype=np.uint8)
    table[: ranks // 2, 100:200] |= 0x80
    table[0, :200] = rng.integers(0, 3, 200, dtype=np.uint8) | 0x80
    opposite = table[ranks // 2 : 2 * (ranks // 2), 200:]
    table[: len(opposite), 200:] = opposite ^ 0x80
    found = combine([row.reshape(-1, 1) for row in table], name, "add", "", "exact").reshape(-1)
    sums = [sum((oracle.value8(int(one), kind) for one in column), Fraction(0)) for column in table.T]
    assert found.tolist() == [oracle.saturated(one, kind, negative=one < 0) for one in sums]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("word", ["min", "max"])
def test_every_pair_of_codes_compared_by_the_switch(name, word):
    left, right = (one.reshape(-1, 1) for one in np.meshgrid(CODES, CODES))
    found = combine([left, right], name, word, "", "exact")
    values = values_of(name)
    with np.errstate(all="ignore"):
        expected = {"min": np.fmin, "max": np.fmax}[word](values[left], values[right])
    assert np.array_equal(values[found], expected, equal_nan=True)
    assert set(found[np.isnan(expected)].tolist()) == {0x7F}
    zeros = expected == 0
    negative = (left & right if word == "max" else left | right)[zeros] & 0x80
    both = ((left & 0x7F) + (right & 0x7F) == 0)[zeros]
    assert np.array_equal(found[zeros][both] & 0x80, negative[both])
