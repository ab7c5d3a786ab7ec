"""timing.precision: samples are taken until medians are known to a share of them, all ranks alike."""

import dataclasses

import pytest

from reports.record.intervals import MOST_PARTS
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.timing.measure import MeasurePlan, expected_s
from tests.golden import refused
from tests.runner.measuring import TIMING, Bench, contestant

PRECISE = dataclasses.replace(TIMING, samples=6, precision=0.01)


@pytest.fixture
def plan(compile_cache):
    return MeasurePlan((contestant(compile_cache, "one_shot"), contestant(compile_cache, "two_shot")), PRECISE)


def test_equal_samples_are_precise_at_once(plan):
    found = Bench(plan, 2).run()
    assert {len(one.samples_us) for rank in found for one in rank.contestants} == {6}


def unsteady(first, rank):
    """What makes a rank's first samples differ from each other, by how many there were."""

    def spoil(fabric, stopwatch):
        if fabric.fabric.rank != rank:
            return
        usual, asked = stopwatch.elapsed_us, [0]

        def elapsed_us(start, end):
            asked[0] += 1
            spread = 1 + asked[0] % 5 / 5 if asked[0] <= first else 1.0
            return usual(start, end) * spread

        stopwatch.elapsed_us = elapsed_us

    return spoil


@pytest.mark.slow
def test_samples_go_on_until_all_medians_are_precise(plan):
    """Rank 1 alone is unsteady for the first part, of both contestants: both ranks take as many samples more."""
    found = Bench(plan, 2, spoil=unsteady(12, 1)).run()
    counts = {len(one.samples_us) for rank in found for one in rank.contestants}
    assert len(counts) == 1
    (count,) = counts
    assert count % 6 == 0
    assert 6 < count < 6 * MOST_PARTS


@pytest.mark.slow
def test_samples_end_at_ten_times_as_many(plan):
    found = Bench(plan, 2, spoil=unsteady(1 << 30, 0)).run()
    assert {len(one.samples_us) for rank in found for one in rank.contestants} == {6 * MOST_PARTS}


def test_the_time_limit_is_for_all_samples_that_there_may_be(plan):
    fixed = dataclasses.replace(plan, timing=dataclasses.replace(PRECISE, precision=None, samples=60))
    assert expected_s(plan) == expected_s(fixed)


@pytest.mark.slow
def test_a_wish_for_precision_is_checked():
    with hydra_over():
        (job,) = compose_jobs(["timing.precision=0.01"], False)
        assert (job.request.timing.precision, job.request.timing.most_samples) == (0.01, 500)
        (usual,) = compose_jobs([], False)
        assert (usual.request.timing.precision, usual.request.timing.most_samples) == (None, 50)
        for value in ("0", "0.9", "-1"):
            with refused(RequestError):
                compose_jobs([f"timing.precision={value}"], False)
        with refused(RequestError):
            compose_jobs(["timing.precision=0.01", "timing.samples=5"], False)
