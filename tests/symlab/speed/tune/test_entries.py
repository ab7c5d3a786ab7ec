"""From records of finalists to entries: which is the choice, its interval, and the ranges of sizes."""

import itertools
import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cases.case import Case
from cases.record.record import Status
from reports.record.intervals import half_width, median_interval
from symlab.speed.tune.entries import (
    Kept,
    crossed,
    figure_of,
    merged,
    options_of,
    ranges_in,
    score_of,
    series_of,
    with_ranges,
)
from symlab.speed.tune.finals import Final, Point, crossings, entries_of
from symlab.speed.tuned.table import Searched
from tests.reports.synthetic import record
from tests.symlab.speed.tune.test_state import FOUND
from tests.symlab.speed.tuned.test_tuned_table import entry

CASE = Case("all_reduce", "best", "bfloat16", "float32", "sum", 4096, 4)
SEARCHED = Searched(40, 1, 2)


def kept(name, us, **changes):
    samples = [[us + 0.01 * number for number in range(-10, 11)]] * 4
    return Kept(record(name, 4096, samples_us=samples, **changes), f"sha256:{name.encode().hex():0>64}")


def made(finalists):
    """The entry of a single size."""
    (found,) = series_of([CASE], [finalists], [SEARCHED])
    return found


def names_of(measured):
    """The choices of a series of sizes."""
    cases = [replace(CASE, size_bytes=4096 << number) for number in range(len(measured))]
    found = series_of(cases, measured, [SEARCHED] * len(measured))
    return [None if one is None else one.choice.name for one in found]


def test_the_quickest_finalist_is_the_choice():
    finalists = [kept("two_shot@t512b64l8", 5.0), kept("lamport@t128b4l8", 3.0), kept("ll@t128b4l8", 4.0)]
    found = made(finalists)
    assert (found.choice.name, found.choice.value, found.choice.samples) == ("lamport@t128b4l8", 3.0, 10)
    assert found.choice.low < 3.0 < found.choice.high
    assert found.runner_up.name == "ll@t128b4l8"
    assert found.records == tuple(one.digest for one in (finalists[1], finalists[2], finalists[0]))
    assert found.searched == SEARCHED


def test_what_has_no_tuning_in_its_name_is_no_choice():
    found = made([kept("nccl", 1.0), kept("two_shot@t512b64l8", 5.0)])
    assert found.choice.name == "two_shot@t512b64l8"
    assert found.runner_up is None
    assert options_of(CASE, [kept("nccl", 1.0)]) == []
    failed = record("two_shot@t512b64l8", is_timed=False, status=Status.FAILED, reason="it fell", check=None)
    assert (figure_of(failed), score_of(failed)) == (None, None)
    assert options_of(CASE, [Kept(failed, "")]) == []


@pytest.mark.parametrize(
    ("us", "name"), [(9.0, "two_shot@t512b4l8p"), (9.95, "two_shot"), (10.0, "two_shot"), (144.0, "two_shot")]
)
def test_a_choice_has_to_beat_the_catalogues_own_tuning(us, name):
    finalists = [kept("two_shot@t512b4l8p", us), kept("two_shot", 10.0), kept("one_shot", 12.0), kept("nccl", 8.0)]
    found = made(finalists)
    assert found.choice.name == name
    assert (found.library.name, found.library.value) == ("nccl", 8.0)


def test_a_choice_has_to_win_in_both_halves_of_the_turns():
    own, lucky = turns("two_shot", 10.0, 10.0), turns("two_shot@t512b4l8p", 9.0, 10.5)
    assert made([own, lucky]).choice.name == "two_shot"
    assert made([own, turns("two_shot@t512b4l8p", 10.5, 9.0)]).choice.name == "two_shot"
    assert made([own, turns("two_shot@t512b4l8p", 9.5, 9.0)]).choice.name == "two_shot@t512b4l8p"
    # Where each of the catalogue's own loses once, the turns that choose decide.
    assert made([turns("two_shot", 10.0, 11.0), turns("one_shot", 11.0, 10.0)]).choice.name == "two_shot"


def test_the_interval_has_the_median_and_covers_it_in_95_of_100_cases():
    for count in (1, 2, 5, 6, 20, 21, 50, 51, 200):
        low, high = median_interval(count)
        assert 0 <= low <= high == count - 1 - low
    low, high = median_interval(50)
    assert (low, high) == (17, 32), "the 18th and the 33rd: tables of the sign test have the same"
    draw = random.Random(7)
    samples = [sorted(draw.expovariate(1.0) for _ in range(50)) for _ in range(2000)]
    hits = sum(values[low] <= 0.6931 <= values[high] for values in samples)
    assert hits / 2000 == pytest.approx(0.967, abs=0.015), statistics.NormalDist().cdf(1.96)
    # Half of it is a share of the median.
    assert half_width([100.0 + number for number in range(-25, 25)]) == pytest.approx((high - low) / 2 / 99.5)
    assert half_width([3.0] * 6) == 0.0
    assert half_width([3.0] * 5) == float("inf"), "five samples have no 95 %"


ALONE = """
lamport     ll@t128b4l8 ll@t128b4l8 two_shot    |   | 500-1999 2000-2449 2450-3000 3001-8000
lamport     ll@t128b4l8 ll@t128b4l8 two_shot    | 0 | 500-1000 1001-2449 2450-3000 3001-8000
lamport     ll@t128b4l8 ll@t128b4l8 two_shot    | 3 | 500-1999 2000-2449 2450-3999 4000-8000
ll@t128b4l8 ll          ll@t128b4l8 ll@t128b4l8 |   | 500-1500 1501-2500 2501-3464 3465-8000
lamport     two_shot    lamport     lamport     |   | 500-1999 2000-2000 2001-3464 3465-8000
lamport     two_shot    one_shot    one_shot    |   | 500-1500 1501-2500 2501-3464 3465-8000
"""
"""Choices of sizes 1000 to 4000; the size at which another tuning is as good; the ranges."""


@pytest.mark.parametrize("row", ALONE.split("\n")[1:-1])
def test_what_wins_at_one_size_alone_is_for_that_size_alone(row):
    """Between another tuning and one of the catalogue's own the own one is taken, unless the other one is as good at
    its size, and between two sizes that agree what they agree on; where both would be, they meet where they cross."""
    names, as_good, ranges = (part.split() for part in row.split("|"))
    entries = [entry(name, 1000 * number, 1, 1) for number, name in enumerate(names, 1)]
    equal = [["ll@t128b4l8"] if str(place) in as_good else [] for place in range(4)]
    found = with_ranges(crossed(entries, [dict.fromkeys(names, 2.0)] * 4, equal))
    assert [f"{one.from_bytes}-{one.up_to_bytes}" for one in found] == ranges


def test_where_two_choices_differ_they_and_the_catalogues_own_run_once():
    job = SimpleNamespace(brought=())
    sizes, names = (1 << 20, 4 << 20), ("lamport", "two_shot")
    found = {"own": ["lamport", "two_shot", "ll"]}
    ran = [Final(Point(job, replace(CASE, size_bytes=size)), (), found, True) for size in sizes]
    entries = [entry(name, size, 1, 1) for name, size in zip(names, sizes, strict=True)]
    more = crossings(ran, entries, {})
    inside = [one.point.case.size_bytes for one in more]
    ratios = [after / before for before, after in itertools.pairwise([sizes[0], *inside, sizes[1]])]
    assert ratios == pytest.approx([4 ** (1 / 3)] * 3, rel=0.001)
    assert all(size % 512 == 256 for size in inside), "a rank's share begins off a line of 128 bytes"
    assert [one.names for one in more] == [("two_shot",)] * 2, "the others take no such size on 4 ranks"
    assert not crossings([*ran, *more], [*entries, None, None], {}), "nothing passed there: it is not asked again"
    tuned = [entry("two_shot@t512b64l8", size, 1, 1) for size in sizes]
    assert [one.names for one in crossings(ran, [tuned[0], entries[1]], {})] == [("two_shot@t512b64l8", "two_shot")] * 2
    assert not crossings(ran, [entries[1], entries[1]], {})
    (between,) = crossings(ran, tuned, {})
    assert between.point.case.size_bytes == 2 * sizes[0] - 256
    near = [Final(Point(job, replace(CASE, size_bytes=size)), (), found, True) for size in (100 << 10, 125 << 10)]
    for high, number in ((near[1], 1), (Final(Point(job, replace(CASE, size_bytes=110 << 10)), (), found, True), 0)):
        assert len(crossings([near[0], high], entries, {})) == number


def test_what_is_far_behind_at_two_sizes_does_not_run_between_them():
    sizes, own = (16 << 10, 32 << 10), ["lamport", "ll", "two_shot"]
    ran = [
        Final(Point(SimpleNamespace(brought=()), replace(CASE, size_bytes=size)), (), {"own": own}, True)
        for size in sizes
    ]
    entries = [entry(name, size, 1, 1) for name, size in zip(("lamport@t128b4l8", "ll@t128b4l8"), sizes, strict=True)]
    times = {"lamport": (2.0, 4.0), "ll": (3.1, 2.0), "two_shot": (3.1, 3.1)}
    records = {place: [kept(name, us[place]) for name, us in times.items()] for place in range(2)}
    names = {one.names for one in crossings(ran, entries, records)}
    assert names == {("lamport@t128b4l8", "ll@t128b4l8", "lamport", "ll")}


def turns(name, first, second, count=10):
    """A finalist that takes first in the turns that choose, and second in those that judge."""
    return Kept(record(name, 4096, samples_us=[[first, second] * count] * 4), f"sha256:{name.encode().hex():0>64}")


def test_the_turns_that_choose_do_not_judge():
    """What looks quick in the turns that choose is chosen, and its figure is what it took in the others."""
    lucky, steady = turns("lamport@t128b4l8", 2.0, 4.0), turns("ll@t128b4l8", 3.0, 3.0)
    found = made([lucky, steady])
    assert (found.choice.name, found.choice.value) == ("lamport@t128b4l8", 4.0)
    assert (found.runner_up.name, found.runner_up.value) == ("ll@t128b4l8", 3.0)
    assert (score_of(lucky.record), found.choice.samples) == (2.0, 10)


def test_the_figure_of_the_best_of_many_equal_ones_is_not_too_small():
    """Twenty contestants that all take 10 us, with noise: by all samples the quickest would look quicker."""
    draw = random.Random(5)
    figures, whole = [], []
    for _ in range(100):
        finalists = []
        for number in range(20):
            samples = [10 * draw.lognormvariate(0, 0.05) for _ in range(20)]
            made_of = record(f"two_shot@t512b{number + 1}l8", 4096, samples_us=[samples] * 4)
            finalists.append(Kept(made_of, f"sha256:{number:064d}"))
        (found,) = series_of([CASE], [finalists], [SEARCHED])
        figures.append(found.choice.value)
        whole.append(min(one.record.timing.median_us for one in finalists if one.record.timing is not None))
    assert statistics.mean(figures) == pytest.approx(10, rel=0.004)
    assert statistics.mean(whole) < 10 * 0.98


def test_a_series_knows_where_its_choices_cross():
    """ll leads by 1 us at 4 KiB, lamport by 3 us at 8 KiB: they cross a quarter of the way."""
    finals = [[kept("ll@t128b4l8", 2.0), kept("lamport@t128b4l8", 3.0)]]
    finals += [[kept("ll@t128b4l8", 9.0), kept("lamport@t128b4l8", 6.0)]]
    cases = [CASE, replace(CASE, size_bytes=8192)]
    first, second = series_of(cases, finals, [SEARCHED] * 2)
    assert (first.up_to_bytes, second.from_bytes) == (5120, 5121)
    assert series_of(cases[::-1], finals[::-1], [SEARCHED] * 2) == [second, first], "a sweep has sizes in any order"


def test_a_tuning_goes_on_to_a_size_at_which_it_is_no_slower():
    cases = [CASE, replace(CASE, size_bytes=8192)]
    for us, end in ((5.99, 8191), (6.01, 4096)):
        finals = [[kept("ll@t128b4l8", 2.0), kept("ll", 3.0)], [kept("ll@t128b4l8", us), kept("ll", 6.0)]]
        found = series_of(cases, finals, [SEARCHED] * 2)
        assert [one and (one.choice.name, one.up_to_bytes) for one in found] == [("ll@t128b4l8", end), ("ll", 8192)]


def test_a_tuning_that_wins_between_two_sizes_alone_is_no_choice():
    """The second of three sizes was not asked for; the catalogue's own there is not the third's: it is in its place,
    and its range ends where the two cross."""
    cases = [replace(CASE, size_bytes=size) for size in (4096, 6144, 8192)]
    finals = [[kept("ll", 2.0), kept("lamport", 3.0)]]
    finals += [[kept("ll@t128b4l8", 2.5), kept("ll", 3.0), kept("lamport", 4.0)]]
    finals += [[kept("lamport", 4.0), kept("ll", 5.0)]]
    found = series_of(cases, finals, [SEARCHED] * 3, [False, True, False])
    assert [one.choice.name for one in found] == ["ll", "ll", "lamport"]
    assert (found[1].up_to_bytes, found[2].from_bytes) == (7168, 7169)
    ran = [Final(Point(None, case), (), FOUND, is_searched=case.size_bytes != 6144) for case in cases]
    assert [one.choice for one in entries_of(ran, dict(enumerate(finals)), 1.0)] == [one.choice for one in found]
    assert [one.choice.name for one in series_of(cases, finals, [SEARCHED] * 3)] == ["ll", "ll@t128b4l8", "lamport"]
    finals[2].append(kept("ll@t128b4l8", 3.9))
    found = series_of(cases, finals, [SEARCHED] * 3, [False, True, False])
    assert found[1].choice.name == "ll@t128b4l8", "it is as good at the next size"
    finals[1].append(kept("ll@t64b4l8", 2.4))
    found = series_of(cases, finals, [SEARCHED] * 3, [False, True, False])
    assert found[1].choice.name == "ll@t128b4l8", "and a quicker one is not"


def test_sizes_without_options_have_no_choice():
    both = [kept("ll@t128b4l8", 3.0), kept("lamport@t128b4l8", 3.03)]
    finals = [both, [], [kept("lamport@t128b4l8", 9.0)]]
    assert names_of(finals) == ["ll@t128b4l8", None, "lamport@t128b4l8"]


def test_ranges_are_runs_of_one_choice():
    names = ("lamport@t128b4l8", "lamport@t128b4l8", "two_shot@t512b64l8", "lamport@t128b4l8")
    entries = [entry(name, 1 << 10 + number, 1, 1) for number, name in enumerate(names)]
    assert ranges_in(entries) == 3
    assert ranges_in([*entries, entry(names[-1], 1 << 20, 1, 1, ranks=4)]) == 4


def test_ranges_meet_between_the_sizes_and_end_where_the_kernel_does():
    sizes = (1 << 10, 1 << 12, 1 << 20, 1 << 24)
    names = ("lamport@t128b4l8", "lamport@t128b4l8", "lamport@t256b32l8", "two_shot@t512b64l8p")
    found = with_ranges(entry(name, size, size, size) for name, size in zip(names, sizes, strict=True))
    assert [(one.from_bytes, one.up_to_bytes) for one in found] == [
        (512, 2048),
        (2049, 64 << 10),
        ((64 << 10) + 1, 2 << 20),  # lamport takes no more on 2 ranks
        ((2 << 20) + 1, 32 << 20),
    ]


def test_a_range_ends_where_two_choices_cross():
    small, large = "lamport@t128b4l8", "two_shot@t512b64l8"
    entries = [entry(small, 1000, 1000, 1000), entry(large, 5000, 5000, 5000)]
    measured = [{small: 2.0, large: 3.0}, {large: 4.0, small: 7.0}]
    found = with_ranges(crossed(entries, measured, [[], []]))
    assert (found[0].up_to_bytes, found[1].from_bytes) == (2000, 2001)  # a quarter of the way: 1 us of 1 + 3
    assert with_ranges(found) == found, "merging keeps it"
    between = with_ranges([*found, entry("ll@t128b4l8", 3000, 3000, 3000)])
    assert [one.up_to_bytes for one in between] == [1732, 3872, 10000]
    # Without the other one's time at one of the sizes, it is the geometric mean.
    assert with_ranges(crossed(entries, [measured[0], {large: 4.0}], [[], []]))[0].up_to_bytes == 2236
    # Choices that take equally long at both sizes.
    level = [{small: 2.0, large: 2.0}, {large: 4.0, small: 4.0}]
    assert with_ranges(crossed(entries, level, [[], []]))[0].up_to_bytes == 3000


def test_neighbouring_sizes_do_not_overlap():
    found = with_ranges(entry("two_shot@t512b64l8", size, size, size) for size in (1000, 1001, 1002, 5))
    ranges = sorted((one.from_bytes, one.up_to_bytes) for one in found)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(ranges))
    assert all(one.from_bytes <= one.size_bytes <= one.up_to_bytes for one in found)


def test_later_entries_take_the_place_of_earlier_ones():
    earlier = [entry("two_shot@t512b64l8", 4096, 2048, 8192), entry("two_shot@t512b64l8", 1 << 20, 8193, 1 << 22)]
    later = [entry("lamport@t128b4l8", 4096, 4096, 4096), entry("ll@t128b4l8", 4096, 4096, 4096, ranks=4)]
    found = merged(earlier, later)
    assert [(one.ranks, one.size_bytes, one.choice.name) for one in found] == [
        (2, 4096, "lamport@t128b4l8"),
        (2, 1 << 20, "two_shot@t512b64l8"),
        (4, 4096, "ll@t128b4l8"),
    ]
