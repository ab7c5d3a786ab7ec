"""Choices among contestants by size: ranges, thresholds and their regret, against times that are known everywhere."""

import itertools

import pytest

from reports.export.choice import Regret, choice_at, crossing, regret_of, threshold_of, threshold_regret, winners
from tests.reports.synthetic import KIB, MIB

SIZES = [KIB << power for power in range(0, 15, 2)]


def line(delay_us, gbps):
    return {size: delay_us + size / gbps / 1e3 for size in SIZES}


FAST_START, FAST_END = line(3.0, 50.0), line(10.0, 300.0)
"""Of equal time at 7 us x 60 GB/s = 420,000 bytes."""


def test_contestants_change_places_where_their_lines_cross():
    times = {"start": FAST_START, "end": FAST_END}
    assert list(winners(times, SIZES).values()) == ["start"] * 5 + ["end"] * 3
    assert crossing(FAST_START, FAST_END, 256 * KIB, MIB) == pytest.approx(420_000, abs=1)
    assert [choice_at(times, SIZES, size) for size in (1, 419_000, 421_000, 1 << 40)] == ["start"] * 2 + ["end"] * 2
    assert regret_of(times, SIZES).worst == pytest.approx(0.0)


def test_one_that_is_nearly_as_fast_is_kept():
    nearly = {size: time * (1.009 if size > MIB else 1.0) for size, time in FAST_START.items()}
    other = {size: time * (1.0 if size > MIB else 2.0) for size, time in FAST_START.items()}
    assert set(winners({"kept": nearly, "other": other}, SIZES).values()) == {"kept"}
    clearly = {size: time * (1.011 if size > MIB else 1.0) for size, time in FAST_START.items()}
    assert set(winners({"kept": clearly, "other": other}, SIZES).values()) == {"kept", "other"}


def test_where_neither_leads_at_one_end_only_the_middle_is_taken():
    assert crossing(FAST_START, FAST_START, KIB, 4 * KIB) == 2 * KIB
    assert crossing(FAST_START, {0: 3.0, **FAST_START}, KIB, 4 * KIB) == 2 * KIB
    with pytest.raises(ValueError, match="no range"):
        crossing(FAST_START, FAST_END, KIB, KIB)


def test_a_regret_is_of_choices_made_without_the_size():
    """A contestant that is fast at one size only is not found by the others."""
    spike = {size: (1.0 if size == 64 * KIB else 9999.0) for size in SIZES}
    found = regret_of({"line": FAST_START, "spike": spike}, SIZES)
    assert found.worst == pytest.approx(FAST_START[64 * KIB] / 1.0 - 1)
    assert (found.worst_bytes, found.is_within_target) == (64 * KIB, False)
    assert found.mean == pytest.approx(found.worst / len(SIZES))
    with pytest.raises(ValueError, match="give records of 4 sizes or more"):
        regret_of({"line": FAST_START}, SIZES[:3])


def test_a_threshold_is_where_the_lines_cross():
    found = threshold_of(FAST_START, FAST_END, SIZES)
    assert found.up_to_bytes == pytest.approx(420_000, abs=1)
    assert found.in_use == Regret(0.0, 0.0, SIZES[0])
    assert threshold_regret(FAST_START, FAST_END, SIZES).worst == pytest.approx(0.0)


def test_a_threshold_is_no_larger_than_what_was_measured_and_none_is_none():
    slow = {size: 2 * time for size, time in FAST_START.items()}
    assert threshold_of(FAST_START, slow, SIZES).up_to_bytes == SIZES[-1]
    assert threshold_of(slow, FAST_START, SIZES).up_to_bytes == 0
    assert threshold_regret(FAST_START, slow, SIZES).worst == 0


def test_one_threshold_can_not_serve_a_middle_and_says_what_it_loses():
    """The own way is 10 % slower below 16 KiB, twice as fast up to 1 MiB, slower above."""
    own = {size: time * (1.1 if size < 16 * KIB else 0.5 if size <= MIB else 2.0) for size, time in FAST_START.items()}
    found = threshold_of(own, FAST_START, SIZES)
    assert MIB <= found.up_to_bytes < 4 * MIB
    assert found.in_use.worst == pytest.approx(0.1)


def test_choices_reach_over_all_sizes_without_a_gap():
    times = {"start": FAST_START, "end": FAST_END, "never": line(99.0, 9.0)}
    taken = [choice_at(times, SIZES, size) for size in range(400_000, 440_000, 500)]
    assert [key for key, _ in itertools.groupby(taken)] == ["start", "end"]
