"""The regret of a table's choices, and sizes off the powers of two."""

import math
import statistics

import pytest

from cases.ops import COLLECTIVES
from runner.request.compose import compose_jobs, hydra_over
from symlab.speed.tune.regret import SIZES, regrets, report, unseen_sizes
from tests.golden import refused
from tests.reports.synthetic import record, with_request


def chosen(name, size_bytes, us, searched=4096, world=0):
    what = {"by": "best", "algorithm": name, "searched": {"size_bytes": searched}}
    return with_request(timed(name, size_bytes, us, world), kernel={"chosen": what})


def timed(name, size_bytes, us, world=0):
    return record(name, size_bytes, samples_us=[[us] * 6] * 4, world=world)


def test_the_regret_is_over_the_quickest_of_the_same_size_and_world():
    records = [
        chosen("lamport@t128b4l8", 3000, 4.04),
        timed("ll", 3000, 4.0),
        timed("nccl", 3000, 12.0),
        chosen("two_shot@t512b64l8", 70_000, 9.0),
        timed("two_shot", 70_000, 9.5),
        timed("two_shot", 70_000, 1.0, world=1),  # of another command: not measured in turns with it
        timed("two_shot", 3000, 1.0, world=1),
    ]
    found = regrets(records)
    assert [(one.record.case.size_bytes, one.quickest) for one in found] == [
        (3000, "ll"),
        (70_000, "two_shot@t512b64l8"),
    ]
    assert [round(one.share, 4) for one in found] == [0.01, 0.0]
    said, is_small = report(found)
    assert not is_small, "ll and two_shot are the catalogue's own"
    assert "all_reduce on 4: 2 sizes that the search did not measure, 1 world: median regret 0.5%, largest 1.0%" in said
    assert "3000 surely slower than ll" in said


def test_the_half_that_names_the_quickest_does_not_judge():
    """ll is the quickest only in the turns that choose: the regret is what the others say."""
    best = chosen("lamport@t128b4l8", 3000, 4.0)
    lucky = record("ll", 3000, samples_us=[[3.0, 4.1] * 5] * 4)
    (one,) = regrets([best, lucky])
    assert one.quickest == lucky.case.algorithm
    assert (one.us, one.quickest_us) == (4.0, 4.1)
    assert one.share == pytest.approx(4.0 / 4.1 - 1)


@pytest.mark.parametrize(("us", "is_small"), [(4.0, True), (4.11, True), (4.13, False), (4.2, False)])
def test_one_large_regret_among_many_small_ones_is_told(us, is_small):
    """And half of them may not be above 1 %."""

    def many(us):
        return [one for size in range(3000, 3010) for one in (chosen(NAME, size, us), timed("nccl", size, 4.0))]

    assert report(regrets(many(4.0)))[1]
    said, found = report(regrets([*many(4.0), chosen(NAME, 9000, us), timed("nccl", 9000, 4.0)]))
    assert found == is_small
    assert ("9000 surely above 3%" in said) != is_small
    said, found = report(regrets(many(4.05)))
    assert not found
    assert "the median is above 1%" in said


NAME = "ll@t128b4l8"


def in_worlds(mine, other, beside="ll"):
    """A choice and another contestant at one size, with their times in each world."""
    found = []
    for world, (us, its) in enumerate(zip(mine, other, strict=True)):
        found += [chosen("lamport@t128b4l8", 3000, us, world=world), timed(beside, 3000, its, world)]
    return found


def test_worlds_are_pooled_and_what_differs_among_them_is_the_interval():
    """Ratios of 1 %, 2 % and 3 %: their mean, and 4.303 standard errors of it to each side."""
    (one,) = regrets(in_worlds([101.0, 102.0, 103.0], [100.0] * 3))
    assert one.worlds == 3
    logs = [math.log(1.01), math.log(1.02), math.log(1.03)]
    half = 4.3027 * statistics.stdev(logs) / math.sqrt(3)
    assert one.share == pytest.approx(math.expm1(statistics.mean(logs)))
    assert (one.ratio.low, one.ratio.high) == (
        pytest.approx(math.expm1(statistics.mean(logs) - half), rel=1e-3),
        pytest.approx(math.expm1(statistics.mean(logs) + half), rel=1e-3),
    )
    assert one.ratio.low < 0, "so that nobody knows whether it is slower at all"
    assert one.faults == []


def test_what_is_slower_in_every_world_is_slower():
    for mine, other, faults in (
        ([101.0, 101.1, 100.9], "ll", ["surely slower than ll"]),
        ([101.0, 101.1, 100.9], "nccl", []),  # 1 % behind a library is no fault of a size
        ([104.0, 104.1, 103.9], "nccl", ["surely above 3%"]),
        ([104.0, 100.0, 110.0], "nccl", []),  # worlds differ too much to say so
    ):
        (one,) = regrets(in_worlds(mine, [100.0] * 3, other))
        assert one.faults == faults


def test_a_verdict_on_records_needs_three_worlds():
    two, three = in_worlds([99.0] * 2, [100.0] * 2), in_worlds([99.0] * 3, [100.0] * 3)
    said, is_small = report(regrets(two), 3)
    assert not is_small
    assert "3 worlds are needed" in said
    assert report(regrets(three), 3)[1]


def test_sizes_of_the_search_itself_prove_nothing():
    found = regrets([chosen("ll@t128b4l8", 4096, 4.0), timed("ll", 4096, 4.0)])
    said, is_small = report(found)
    assert not is_small
    assert "all sizes are the search's own" in said


def test_a_choice_that_ran_alone_has_no_regret():
    assert regrets([chosen("ll@t128b4l8", 3000, 4.0)]) == []
    assert regrets([timed("ll", 3000, 4.0), timed("nccl", 3000, 5.0)]) == []
    with refused(ValueError):
        report([])


def test_twenty_sizes_off_the_powers_of_two():
    sizes = unseen_sizes(1 << 10, 1 << 28, 128)
    assert len(sizes) == SIZES == 20
    assert list(sizes) == sorted(set(sizes))
    assert all(size % 128 == 0 and size & (size - 1) for size in sizes)
    assert 1 << 10 <= min(sizes) < 2 << 10
    assert 1 << 27 < max(sizes) <= 1 << 28
    other = unseen_sizes(1 << 10, 1 << 28, 128, 7)
    assert len(other) == SIZES
    assert not set(other) & set(sizes)
    assert unseen_sizes(1024, 1024, 128) == ()


def test_the_experiment_of_regret_has_all_ops_of_equal_parts_and_the_unseen_sizes():
    with hydra_over():
        jobs = compose_jobs(["+exp=tune_gpus", "world_size=2"], False)
    assert [job.request.op for job in jobs] == [one.op for one in COLLECTIVES if one.op != "barrier" and not one.sends]
    for job in jobs:
        assert job.request.sizes_bytes == unseen_sizes(1 << 10, 1 << 28, 128)
        assert job.request.algorithms == ("best", "auto")
        assert (job.request.fabric.name, job.request.world_size) == ("nvshmem", 2)
