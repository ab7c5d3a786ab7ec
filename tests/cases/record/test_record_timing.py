"""Timings: figures against ones worked out by hand, and what can't be a timing."""

import dataclasses
import math

import pytest

from cases.record.timing import LinkLimit, percentile
from tests.golden import refused
from tests.reports.synthetic import record

TIMING = dataclasses.replace(record().timing, bus_factor=1.75, samples_us=((4.0, 1.0, 8.0, 2.0), (1.0, 6.0, 7.0, 3.0)))


def test_figures_are_of_the_slowest_rank_of_each_sample():
    assert TIMING.per_iteration_us == (4.0, 6.0, 8.0, 3.0)
    assert TIMING.min_us == 3.0
    assert TIMING.median_us == 5.0  # no median of a rank: these are 3 and 4.5
    assert TIMING.p95_us == TIMING.p99_us == TIMING.max_us == 8.0


def test_bandwidths_are_those_of_nccl_tests():
    # 1 MB in 5 us: 200 GB/s of 10^9; times 2(8-1)/8
    assert TIMING.algbw_gbps(1_000_000) == pytest.approx(200.0)
    assert TIMING.busbw_gbps(1_000_000) == pytest.approx(350.0)
    assert TIMING.of_limit(1_000_000) == pytest.approx(350 / 400)
    assert dataclasses.replace(TIMING, limit=None).of_limit(1_000_000) is None
    assert LinkLimit(1.0, 2.0, 1).gbps == 2.0
    # what has no bandwidth has no share of the limit
    assert dataclasses.replace(TIMING, bus_factor=0.0).of_limit(1_000_000) is None  # a barrier
    assert TIMING.of_limit(0) is None
    assert TIMING.busbw_gbps(0) == 0
    empty = dataclasses.replace(TIMING, slot_bytes=0, checked_before=0, checked_after=0)
    assert empty.median_us == TIMING.median_us
    assert empty.fits_l2


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(50, 95, 48), (50, 99, 50), (100, 95, 95), (100, 99, 99), (200, 99, 198), (20, 95, 19), (1, 99, 1), (7, 100, 7)],
)
def test_percentiles_are_by_nearest_rank(count, percent, expected):
    values = tuple(float(value) for value in range(count, 0, -1))
    assert percentile(values, percent) == expected
    assert sum(value <= expected for value in values) >= count * percent / 100
    assert sum(value <= expected - 1 for value in values) < count * percent / 100


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "stream"},
        {"window": "all"},
        {"l2": "warm"},
        {"slots": 0},
        {"calls_per_sample": 0},
        *({one: -1} for one in ("slot_bytes", "l2_bytes", "warmup_calls")),
        *({"bus_factor": one} for one in (math.nan, -1.0)),
        *({"samples_us": one} for one in ((), ((),), ((1.0,), (1.0, 2.0)), ((0.0,),), ((math.nan,),))),
        {"checked_before": 0},
        {"checked_after": 0},
        *({"devices": one} for one in (({},), ({}, {"before": {"power_w": math.inf}}))),
    ],
)
def test_broken_timings(changes):
    with refused():
        dataclasses.replace(TIMING, **changes)


def test_slots_that_fit_in_the_cache_are_known():
    expected = {0: False, 64 * 2048 - 1: False, 64 * 2048: True}
    assert {size: dataclasses.replace(TIMING, l2_bytes=size).fits_l2 for size in expected} == expected


@pytest.mark.parametrize("values", [(0.0, 1.0, 1), (1.0, math.inf, 1), (math.nan, 1.0, 1), (1.0, 1.0, 0)])
def test_broken_limits(values):
    with refused():
        LinkLimit(*values)
