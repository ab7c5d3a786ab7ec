"""Calls before each sample that are not timed: of the same contestant, after the barrier, on slots that come last."""

import dataclasses

import pytest

from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.timing.measure import MeasurePlan, expected_s
from tests.golden import refused
from tests.runner.measuring import CALL_US, TIMING, Bench, contestant
from tests.runner.timing.test_measure import timed_part

LEAD_IN = dataclasses.replace(TIMING, lead_in_calls=2)


@pytest.fixture
def plan(compile_cache):
    return MeasurePlan((contestant(compile_cache, "one_shot"), contestant(compile_cache, "two_shot")), LEAD_IN)


@pytest.mark.slow
def test_calls_before_a_sample_are_of_the_same_contestant_and_not_in_its_time(plan):
    bench = Bench(plan, 2)
    for found in bench.run():
        for one in found.contestants:
            assert one.samples_us == pytest.approx([(4 + 1) * CALL_US / 4] * 3), "four launches and the replay"
            assert [check.wrong for check in one.checks[1:]] == [0, 0]
    for log in bench.logs:
        rounds = []
        for name in ("one_shot", "two_shot"):
            launch = f"launch all_reduce/{name}"
            rounds += ["delay", "queue_barrier", "replay", *[launch] * 2, "mark", "replay", *[launch] * 4, "mark"]
            rounds += ["synchronize"]
        assert timed_part(log)[: len(rounds) * 5] == rounds * 5, "in the warm-up, too"


def test_calls_before_a_sample_go_without_graphs_too(plan):
    eager = dataclasses.replace(plan, timing=dataclasses.replace(LEAD_IN, mode="eager"))
    bench = Bench(eager, 2)
    for found in bench.run():
        assert found.contestants[0].samples_us == pytest.approx([CALL_US] * 3)
    for log in bench.logs:
        at = log.index("queue_barrier", log.index("queue_barrier") + 1)
        assert log[at + 1 : at + 4] == [*["launch all_reduce/one_shot"] * 2, "mark"]


def test_they_end_with_the_slot_that_the_samples_calls_come_to_last(plan, monkeypatch):
    from runner.timing.of_case import Measurement

    used = {}
    usual = Measurement.launch

    def noted(self, slot):
        used.setdefault(id(self), []).append(slot)
        usual(self, slot)

    monkeypatch.setattr(Measurement, "launch", noted)
    Bench(MeasurePlan(plan.contestants[:1], dataclasses.replace(LEAD_IN, warmup=0, samples=1)), 2).run()
    every = [0, 1, 2, 3]
    assert list(used.values()) == [[*every, *[2, 3], *every, *every]] * 2, "checked, before the sample, it, checked"


def test_what_is_expected_grows_with_the_calls_before(plan):
    without = dataclasses.replace(plan, timing=TIMING)
    assert expected_s(plan) > expected_s(without)


def test_the_number_of_calls_before_a_sample_is_checked():
    with hydra_over():
        (job,) = compose_jobs(["timing.lead_in_calls=5"], False)
        assert job.request.timing.lead_in_calls == 5
        with refused(RequestError):
            compose_jobs(["timing.lead_in_calls=-1"], False)
        (usual,) = compose_jobs([], False)
        assert usual.request.timing.lead_in_calls == 0
