"""Timings: figures against ones worked out by hand, and what can't be a timing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from cases.record.timing import LinkLimit, Timing, percentile

TIMING = Timing(
    mode="graph",
    window="kernel",
    l2="rotate",
    slots=64,
    slot_bytes=2048,
    warmup_calls=3,
    calls_per_sample=20,
    bus_factor=1.75,
    samples_us=((4.0, 1.0, 8.0, 2.0), (1.0, 6.0, 7.0, 3.0)),
    checked_before=1,
    checked_after=1,
    limit=LinkLimit(400.0, 350.0, 1 << 28),
)


def test_figures_are_of_the_slowest_rank_of_each_sample() -> None:
    assert TIMING.per_iteration_us == (4.0, 6.0, 8.0, 3.0)
    assert TIMING.min_us == 3.0
    assert TIMING.median_us == 5.0  # no median of a rank: these are 3 and 4.5
    assert TIMING.p95_us == TIMING.p99_us == TIMING.max_us == 8.0


def test_bandwidths_are_those_of_nccl_tests() -> None:
    # 1 MB in 5 us: 200 GB/s of 10^9; times 2(8-1)/8
    assert TIMING.algbw_gbps(1_000_000) == pytest.approx(200.0)
    assert TIMING.busbw_gbps(1_000_000) == pytest.approx(350.0)
    assert TIMING.of_limit(1_000_000) == pytest.approx(350 / 400)
    assert dataclasses.replace(TIMING, limit=None).of_limit(1_000_000) is None
    assert LinkLimit(1.0, 2.0, 1).gbps == 2.0


def test_what_has_no_bandwidth_has_no_share_of_the_limit() -> None:
    assert dataclasses.replace(TIMING, bus_factor=0.0).of_limit(1_000_000) is None  # a barrier
    assert TIMING.of_limit(0) is None
    assert TIMING.busbw_gbps(0) == 0


def test_an_empty_message_has_nothing_to_compare() -> None:
    empty = dataclasses.replace(TIMING, slot_bytes=0, checked_before=0, checked_after=0)
    assert empty.median_us == TIMING.median_us
    assert empty.fits_l2


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(50, 95, 48), (50, 99, 50), (100, 95, 95), (100, 99, 99), (200, 99, 198), (20, 95, 19), (1, 99, 1), (7, 100, 7)],
)
def test_percentiles_are_by_nearest_rank(count: int, percent: int, expected: int) -> None:
    values = tuple(float(value) for value in range(count, 0, -1))
    assert percentile(values, percent) == expected
    assert sum(value <= expected for value in values) >= count * percent / 100
    assert sum(value <= expected - 1 for value in values) < count * percent / 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "stream"}, "timing.mode: 'stream' is none of graph, eager"),
        ({"window": "all"}, "timing.window: 'all' is none of kernel, entry_barrier, both_barriers"),
        *(({"l2": "warm"}, "timing.l2: 'warm' is none of rotate, hot"), ({"slots": 0}, "timing.slots: 0")),
        *(({"slot_bytes": -1}, "timing.slot_bytes: -1"), ({"l2_bytes": -1}, "timing.l2_bytes: -1")),
        *(({"warmup_calls": -1}, "timing.warmup_calls: -1"), ({"calls_per_sample": 0}, "timing.calls_per_sample: 0")),
        *(({"bus_factor": math.nan}, "timing.bus_factor: nan"), ({"bus_factor": -1.0}, "timing.bus_factor: -1")),
        ({"samples_us": ()}, "samples_us: needs one row a rank"),
        ({"samples_us": ((),)}, "samples_us: needs one row a rank"),
        ({"samples_us": ((1.0,), (1.0, 2.0))}, "samples_us: needs one row a rank"),
        ({"samples_us": ((0.0,),)}, "samples_us: every sample is a positive"),
        ({"samples_us": ((math.nan,),)}, "samples_us: every sample is a positive"),
        ({"checked_before": 0}, "0 elements were compared before it and 1 after it"),
        ({"checked_after": 0}, "1 elements were compared before it and 0 after it"),
        ({"devices": ({},)}, "timing.devices: 1 rows for 2 ranks"),
        ({"devices": ({}, {"before": {"power_w": math.inf}})}, r"timing.devices\[1\].before.power_w"),
    ],
)
def test_broken_timings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        dataclasses.replace(TIMING, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("l2_bytes", "fits"), [(0, False), (64 * 2048 - 1, False), (64 * 2048, True)])
def test_slots_that_fit_in_the_cache_are_known(l2_bytes: int, fits: bool) -> None:
    assert dataclasses.replace(TIMING, l2_bytes=l2_bytes).fits_l2 is fits


@pytest.mark.parametrize("values", [(0.0, 1.0, 1), (1.0, math.inf, 1), (math.nan, 1.0, 1), (1.0, 1.0, 0)])
def test_broken_limits(values: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match=r"timing\.limit"):
        LinkLimit(*values)
