"""From records of finalists to entries: which is the choice, its interval, and the ranges of sizes."""

import itertools
import random
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cases.case import Case
from cases.record.record import Status
from reports.record.intervals import median_interval
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
from tests.golden import same_text
from tests.reports.synthetic import record
from tests.symlab.speed.tune.test_state import FOUND
from tests.symlab.speed.tuned.test_tuned_table import entry

CASE = Case("all_reduce", "best", "bfloat16", "float32", "sum", 4096, 4)
SEARCHED = Searched(40, 1, 2)


def kept(name, us, judged_us=None):
    """A finalist's record: us in the turns that choose, judged_us (the same) in those that judge; a little noise."""
    pair = us, us if judged_us is None else judged_us
    samples = [[pair[number % 2] + 0.01 * (number - 10) for number in range(21)]] * 4
    return Kept(record(name, 4096, samples_us=samples), f"sha256:{name.encode().hex():0>64}")


def finals_in(text):
    """Sizes with their finalists: "ll 2, lamport 3/4 | .." has two at 4 KiB, the second of which takes 3 us in the
    turns that choose and 4 us in those that judge; a size that was not asked for begins with "-"."""
    sizes = [size.strip() for size in text.split("|")]
    words = [[one.split() for one in size.removeprefix("-").split(",") if one.strip()] for size in sizes]
    finals = [[kept(name, *map(float, us.split("/"))) for name, us in size] for size in words]
    cases = [replace(CASE, size_bytes=4096 + 4096 * number) for number in range(len(sizes))]
    return cases, finals, [size.startswith("-") for size in sizes]


def told(one):
    if one is None:
        return "no choice"
    mine, others = one.choice, [f"{two.name} {two.value:g}" if two else "none" for two in (one.runner_up, one.library)]
    found = f"{one.from_bytes}-{one.up_to_bytes} {mine.name} {mine.value:g} ({mine.low:.2f} to {mine.high:.2f}, of "
    return f"{found}{mine.samples}), then {others[0]}, library {others[1]}, {len(one.records)} records"


SERIES = """
two_shot@t512b64l8 5, lamport@t128b4l8 3, ll@t128b4l8 4
nccl 1, two_shot@t512b64l8 5
nccl 1
two_shot@t512b4l8p 9, two_shot 10, one_shot 12, nccl 8
two_shot@t512b4l8p 9.95, two_shot 10, one_shot 12, nccl 8
two_shot@t512b4l8p 144, two_shot 10, one_shot 12, nccl 8
two_shot 10, two_shot@t512b4l8p 9/10.5
two_shot 10, two_shot@t512b4l8p 10.5/9
two_shot 10, two_shot@t512b4l8p 9.5/9
two_shot 10/11, one_shot 11/10
lamport@t128b4l8 2/4, ll@t128b4l8 3
ll@t128b4l8 2, lamport@t128b4l8 3 | ll@t128b4l8 9, lamport@t128b4l8 6
ll@t128b4l8 2, ll 3 | ll@t128b4l8 5.99, ll 6
ll@t128b4l8 2, ll 3 | ll@t128b4l8 6.01, ll 6
ll@t128b4l8 3, lamport@t128b4l8 3.03 | | lamport@t128b4l8 9
ll 2, lamport 3 | ll@t128b4l8 2.5, ll 3, lamport 4 | lamport 4, ll 5
ll 2, lamport 3 | - ll@t128b4l8 2.5, ll 3, lamport 4 | lamport 4, ll 5
ll 2, lamport 3 | - ll@t128b4l8 2.5, ll 3, lamport 4 | lamport 4, ll 5, ll@t128b4l8 3.9
ll 2, lamport 3 | - ll@t128b4l8 2.5, ll 3, lamport 4, ll@t64b4l8 2.4 | lamport 4, ll 5, ll@t128b4l8 3.9
"""


def test_what_is_chosen_of_finalists():
    """A choice beats the catalogue's own in both halves of the turns, and its figure is of the half that judges; one
    that wins between two sizes alone is none, and goes no further than where it is as good."""
    said = []
    for text in SERIES.split("\n")[1:-1]:
        cases, finals, between = finals_in(text)
        found = series_of(cases, finals, [SEARCHED] * len(cases), between)
        said += [text, *(f"    {told(one)}" for one in found)]
        assert all(one is None or one.searched == SEARCHED for one in found)
        turned = series_of(cases[::-1], finals[::-1], [SEARCHED] * len(cases), between[::-1])
        assert turned == found[::-1], "a sweep has sizes in any order"
        ran = [Final(Point(None, case), (), FOUND, not one) for case, one in zip(cases, between, strict=True)]
        again = entries_of(ran, dict(enumerate(finals)), 1.0)
        assert [one and one.choice for one in again] == [one and one.choice for one in found]
    same_text("\n".join(said))


def test_what_failed_is_no_option():
    failed = record("two_shot@t512b64l8", is_timed=False, status=Status.FAILED, reason="it fell", check=None)
    assert (figure_of(failed), score_of(failed), options_of(CASE, [Kept(failed, "")])) == (None, None, [])
    assert score_of(kept("ll", 2.0, 4.0).record) == pytest.approx(2.0)


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
    found = replace(FOUND, own=("lamport", "two_shot", "ll"))
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
        Final(Point(SimpleNamespace(brought=()), replace(CASE, size_bytes=size)), (), replace(FOUND, own=own), True)
        for size in sizes
    ]
    entries = [entry(name, size, 1, 1) for name, size in zip(("lamport@t128b4l8", "ll@t128b4l8"), sizes, strict=True)]
    times = {"lamport": (2.0, 4.0), "ll": (3.1, 2.0), "two_shot": (3.1, 3.1)}
    records = {place: [kept(name, us[place]) for name, us in times.items()] for place in range(2)}
    names = {one.names for one in crossings(ran, entries, records)}
    assert names == {("lamport@t128b4l8", "ll@t128b4l8", "lamport", "ll")}


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


def test_ranges_are_runs_of_one_choice():
    names = ("lamport@t128b4l8", "lamport@t128b4l8", "two_shot@t512b64l8", "lamport@t128b4l8")
    entries = [entry(name, 1 << 10 + number, 1, 1) for number, name in enumerate(names)]
    assert ranges_in(entries) == 3
    assert ranges_in([*entries, entry(names[-1], 1 << 20, 1, 1, ranks=4)]) == 4


@pytest.mark.parametrize(
    ("names", "sizes", "ends"),
    [
        # lamport takes 2 MiB at most on 2 ranks
        (("lamport@t128b4l8", "lamport@t128b4l8", "lamport@t256b32l8", "two_shot@t512b64l8p"),
         (1 << 10, 1 << 12, 1 << 20, 1 << 24), (2048, 64 << 10, 2 << 20, 32 << 20)),
        (("two_shot@t512b64l8",) * 4, (5, 1000, 1001, 1002), (70, 1000, 1001, 2004)),
    ],
)  # fmt: skip
def test_ranges_meet_between_the_sizes_and_end_where_the_kernel_does(names, sizes, ends):
    found = with_ranges(entry(name, size, size, size) for name, size in zip(names, sizes, strict=True))
    assert tuple(one.up_to_bytes for one in found) == ends
    assert [one.from_bytes for one in found] == [sizes[0] // 2, *(end + 1 for end in ends[:-1])]


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


def test_later_entries_take_the_place_of_earlier_ones():
    earlier = [entry("two_shot@t512b64l8", 4096, 2048, 8192), entry("two_shot@t512b64l8", 1 << 20, 8193, 1 << 22)]
    later = [entry("lamport@t128b4l8", 4096, 4096, 4096), entry("ll@t128b4l8", 4096, 4096, 4096, ranks=4)]
    found = merged(earlier, later)
    assert [(one.ranks, one.size_bytes, one.choice.name) for one in found] == [
        (2, 4096, "lamport@t128b4l8"),
        (2, 1 << 20, "two_shot@t512b64l8"),
        (4, 4096, "ll@t128b4l8"),
    ]
