"""Series with two modes: the dip against its definition, the test's error rate, what it finds, what it names."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from symlab.evidence.audit.modes import Modes, dip, modes_of, quantile

SEED = 20261122


def dip_by_definition(values):
    """The smallest distance to a distribution with one mode, by a linear program for each place of the mode.

    Unknown are the heights at all values, twice at the mode, where it may step; it is convex below and concave above.
    """
    count, least = len(values), 1.0
    for mode in range(count):
        places = [*values[: mode + 1], *values[mode:]]
        rows = []
        limits = []
        distance = count + 1
        for at in range(count + 1):
            index = at if at <= mode else at - 1
            steps = [index / count] * (at != mode + 1) + [(index + 1) / count] * (at != mode)
            for height in steps:
                rows += [{at: 1.0, distance: -1.0}, {at: -1.0, distance: -1.0}]
                limits += [height, -height]
        rows += [{at: 1.0, at + 1: -1.0} for at in range(count)]
        limits += [0.0] * count
        for at, sign in [*((at, 1) for at in range(mode - 1)), *((at, -1) for at in range(mode + 1, count - 1))]:
            first, second = places[at + 1] - places[at], places[at + 2] - places[at + 1]
            rows.append({at: -sign * second, at + 1: sign * (first + second), at + 2: -sign * first})
            limits.append(0.0)
        table = np.zeros((len(rows), count + 2))
        for number, row in enumerate(rows):
            for column, value in row.items():
                table[number, column] = value
        wanted = np.zeros(count + 2)
        wanted[distance] = 1
        least = min(least, optimize.linprog(wanted, table, limits, bounds=(0, 1)).fun)
    return least


@pytest.mark.parametrize("count", [3, 4, 6, 9, 13])
def test_the_dip_is_that_of_its_definition(count):
    source = np.random.default_rng(SEED + count)
    halves = np.concatenate([source.normal(0, 0.1, count // 2), source.normal(1, 0.1, count - count // 2)])
    for values in (source.normal(size=count), halves, source.random(count) ** 3):
        ordered = sorted(values.tolist())
        assert dip(ordered) == pytest.approx(dip_by_definition(ordered), abs=1e-9)


def test_dips_that_are_known():
    assert dip([float(at) for at in range(20)]) == pytest.approx(1 / 40), "equal distances"
    assert dip([1.0] * 20) == pytest.approx(1 / 40), "one heap"
    assert dip([0.0] * 10 + [1.0] * 10) == pytest.approx(1 / 4), "two heaps"
    assert dip([0.0] * 5 + [1.0] * 5 + [2.0] * 5) == pytest.approx(1 / 6), "three heaps"
    assert dip([1.0]) == pytest.approx(1 / 2), "one value"


@pytest.mark.parametrize("count", [10, 50])
def test_the_quantiles_are_those_of_uniform_series(count):
    """2,000 series: of the dips beyond the 99.9 % quantile 2 are expected, and beyond 0.9 of it many more."""
    source = np.random.default_rng(SEED)
    dips = np.array([dip(sorted(source.random(count).tolist())) for _ in range(2000)]) * math.sqrt(count)
    assert (dips > quantile(count)).sum() <= stats.binom.ppf(0.999, 2000, 0.001)
    assert (dips > 0.9 * quantile(count)).sum() > stats.binom.ppf(0.999, 2000, 0.001)


def test_quantiles_lie_between_those_of_the_table():
    assert quantile(20) < quantile(25) < quantile(30)
    assert quantile(10**6) == quantile(1000)


def test_series_with_one_mode_are_not_called_bimodal():
    """Normal, with a long tail, uniform: what times of one mode look like, wide enough for modes to be apart."""
    source = np.random.default_rng(SEED)
    series = [10 * np.exp(source.normal(0, 0.05, 50)) for _ in range(300)]
    series += [10 + source.exponential(1, 50) for _ in range(300)] + [10 + source.random(50) for _ in range(300)]
    assert sum(modes_of(times.tolist()) is not None for times in series) <= stats.binom.ppf(0.999, 900, 0.001)


def test_two_modes_are_named_with_their_shares():
    source = np.random.default_rng(SEED)
    found = 0
    for _ in range(100):
        low, high = 10 * np.exp(source.normal(0, 0.005, 30)), 10.6 * np.exp(source.normal(0, 0.005, 20))
        modes = modes_of(source.permutation(np.concatenate([low, high])).tolist())
        found += modes is not None
        if modes is not None:
            assert modes.low_us == pytest.approx(10, rel=0.01)
            assert modes.high_us == pytest.approx(10.6, rel=0.01)
            assert (modes.low_count, modes.high_count) == (30, 20)
    assert found >= 95
    assert Modes(10.0, 10.64, 30, 20).text("samples") == "10 us (30 of 50 samples) and 10.64 us (20)"


def test_two_ticks_of_a_clock_are_not_two_modes():
    assert modes_of([10.0, 10.05] * 25) is None
    assert modes_of([10.0, 10.2] * 25) == Modes(pytest.approx(10.0), pytest.approx(10.2), 25, 25)


def test_a_few_stragglers_are_no_mode():
    """Two ticks of a clock, which the dip sees, and three late samples, which would be the other group."""
    assert modes_of([10.0, 10.03] * 24 + [11.0, 11.1, 11.2]) is None


def test_short_series_have_no_modes():
    assert modes_of([1.0, 2.0] * 3) is None
    assert modes_of([]) is None
