"""From records of finalists to entries: which is the choice, its interval, and the ranges of sizes."""

from __future__ import annotations

import itertools
import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

from kernels.spec import Case
from kernels.tuned.table import Searched
from reports.record.record import Status
from runner.tune.entries import Kept, crossed, entry_of, figure_of, median_interval, merged, with_ranges
from tests.kernels.tuned.test_tuned_table import entry
from tests.reports.synthetic import record

CASE = Case("all_reduce", "best", "bfloat16", "float32", "sum", 4096, 4)
SEARCHED = Searched(40, 1, 2)


def kept(name: str, us: float, **changes: Any) -> Kept:
    samples = [[us + 0.01 * number for number in range(-10, 11)]] * 4
    return Kept(record(name, 4096, samples_us=samples, **changes), f"sha256:{name.encode().hex():0>64}")


def test_the_quickest_finalist_is_the_choice() -> None:
    finalists = [kept("two_shot@t512b64l8", 5.0), kept("lamport@t128b4l8", 3.0), kept("ll@t128b4l8", 4.0)]
    found = entry_of(CASE, finalists, SEARCHED)
    assert found is not None
    assert (found.choice.name, found.choice.value, found.choice.samples) == ("lamport@t128b4l8", 3.0, 21)
    assert found.choice.low < 3.0 < found.choice.high
    assert found.runner_up is not None
    assert found.runner_up.name == "ll@t128b4l8"
    assert found.records == tuple(one.digest for one in (finalists[1], finalists[2], finalists[0]))
    assert found.searched == SEARCHED


def test_what_has_no_tuning_in_its_name_is_no_choice() -> None:
    found = entry_of(CASE, [kept("nccl", 1.0), kept("two_shot@t512b64l8", 5.0)], SEARCHED)
    assert found is not None
    assert found.choice.name == "two_shot@t512b64l8"
    assert found.runner_up is None
    assert entry_of(CASE, [kept("nccl", 1.0)], SEARCHED) is None


def test_what_did_not_pass_has_no_figure() -> None:
    failed = record("two_shot@t512b64l8", is_timed=False, status=Status.FAILED, reason="it fell", check=None)
    assert figure_of(failed) is None
    assert entry_of(CASE, [Kept(failed, "")], SEARCHED) is None
    assert entry_of(CASE, [], SEARCHED) is None


def test_a_simulated_record_gives_a_count_and_no_time() -> None:
    made = record("two_shot@t512b64l8", is_timed=False, counters={"instructions": 1234})
    assert figure_of(made) is None, "a real fabric has times"
    assert made.fabric is not None
    simulated = replace(made, fabric=replace(made.fabric, simulated=True, name="simulator"))
    figure = figure_of(simulated)
    assert figure is not None
    assert (figure.value, figure.low, figure.high, figure.samples) == (1234.0, 1234.0, 1234.0, 1)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 20, 21, 50, 51, 200])
def test_the_interval_has_the_median(count: int) -> None:
    low, high = median_interval(count)
    assert 0 <= low <= high == count - 1 - low
    if count == 50:
        assert (low, high) == (17, 32), "the 18th and the 33rd: tables of the sign test have the same"


def test_the_interval_covers_the_true_median_in_95_of_100_cases() -> None:
    draw = random.Random(7)
    hits = 0
    for _ in range(2000):
        values = sorted(draw.expovariate(1.0) for _ in range(50))
        low, high = median_interval(50)
        hits += values[low] <= 0.6931 <= values[high]
    assert hits / 2000 == pytest.approx(0.967, abs=0.015), statistics.NormalDist().cdf(1.96)


def test_ranges_meet_between_the_sizes_and_end_where_the_kernel_does() -> None:
    sizes = (1 << 10, 1 << 12, 1 << 18, 1 << 20)
    names = ("lamport@t128b4l8", "lamport@t128b4l8", "lamport@t256b32l8", "two_shot@t512b64l8p")
    found = with_ranges(entry(name, size, size, size) for name, size in zip(names, sizes, strict=True))
    assert [(one.from_bytes, one.up_to_bytes) for one in found] == [
        (512, 2048),
        (2049, 32768),
        (32769, 256 << 10),  # lamport takes no more
        ((256 << 10) + 1, 2 << 20),
    ]


def test_a_range_ends_where_two_choices_cross() -> None:
    small, large = "lamport@t128b4l8", "two_shot@t512b64l8"
    entries = [entry(small, 1000, 1000, 1000), entry(large, 5000, 5000, 5000)]
    measured = [[kept(small, 2.0), kept(large, 3.0)], [kept(large, 4.0), kept(small, 7.0)]]
    found = with_ranges(crossed(entries, measured))
    assert (found[0].up_to_bytes, found[1].from_bytes) == (2000, 2001)  # a quarter of the way: 1 us of 1 + 3
    assert with_ranges(found) == found, "merging keeps it"
    between = with_ranges([*found, entry("ll@t128b4l8", 3000, 3000, 3000)])
    assert [one.up_to_bytes for one in between] == [1732, 3872, 10000]
    # Without the other one's time at one of the sizes, it is the geometric mean.
    assert with_ranges(crossed(entries, [measured[0], [kept(large, 4.0)]]))[0].up_to_bytes == 2236
    # Choices that take equally long at both sizes.
    level = [[kept(small, 2.0), kept(large, 2.0)], [kept(large, 4.0), kept(small, 4.0)]]
    assert with_ranges(crossed(entries, level))[0].up_to_bytes == 3000


def test_neighbouring_sizes_do_not_overlap() -> None:
    found = with_ranges(entry("two_shot@t512b64l8", size, size, size) for size in (1000, 1001, 1002, 5))
    ranges = sorted((one.from_bytes, one.up_to_bytes) for one in found)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ranges))
    assert all(one.from_bytes <= one.size_bytes <= one.up_to_bytes for one in found)


def test_later_entries_take_the_place_of_earlier_ones() -> None:
    earlier = [entry("two_shot@t512b64l8", 4096, 2048, 8192), entry("two_shot@t512b64l8", 1 << 20, 8193, 1 << 22)]
    later = [entry("lamport@t128b4l8", 4096, 4096, 4096), entry("ll@t128b4l8", 4096, 4096, 4096, ranks=4)]
    found = merged(earlier, later)
    assert [(one.ranks, one.size_bytes, one.choice.name) for one in found] == [
        (2, 4096, "lamport@t128b4l8"),
        (2, 1 << 20, "two_shot@t512b64l8"),
        (4, 4096, "ll@t128b4l8"),
    ]
