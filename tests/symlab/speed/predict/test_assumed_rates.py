"""How far what is assumed of a type of GPU may be off."""

import math
from dataclasses import replace

import pytest

from cases.case import Case
from kernels.catalogue import find
from runner.gpu.reading import gpu_type
from symlab.speed.predict import assumptions
from symlab.speed.predict.assumptions import LINK_FACTOR, SWITCH, WAIT_FACTOR, corners
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.predict.model import terms_of
from symlab.speed.predict.predicting import predicted
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.stored_score import stored

KNOWN = rates_of(gpu_type("h200"))


def test_with_all_floors_measured_multimem_alone_is_assumed():
    assert KNOWN.assumed == ()
    own, low, high = corners(KNOWN)
    assert own == KNOWN.rates
    for kind, cost in KNOWN.rates.costs_us.items():
        factor = WAIT_FACTOR if kind in SWITCH else 1.0
        assert (low.costs_us[kind], high.costs_us[kind]) == (cost / factor, cost * factor)
    assert (low.launch_us, low.push_gbps) == (own.launch_us, own.push_gbps)


def test_of_an_uncalibrated_type_everything_is_assumed():
    known = rates_of(gpu_type("gb200_nvl72"))
    rates = {"push_gbps", "bulk_push_gbps", "pull_gbps", "pull_both_gbps", "reduce_gbps"}
    assert set(known.assumed) == {*assumptions.WAITS, *rates}
    found = corners(known)
    assert [one.launch_us for one in found[1:]] == [known.rates.launch_us / 2, known.rates.launch_us * 2]
    assert [one.push_gbps / known.rates.push_gbps for one in found[1:]] == pytest.approx([LINK_FACTOR, 1 / LINK_FACTOR])
    for one in found:
        assert one.pull_gbps / one.pull_both_gbps == pytest.approx(known.rates.pull_gbps / known.rates.pull_both_gbps)


def test_the_interval_reaches_from_the_lowest_corner_to_the_highest(cache):
    """Of an uncalibrated type: launches, waits and links low and high together bound all corners."""
    case = Case("all_reduce", "multimem_two_shot", "bfloat16", "float32", "sum", 16 << 10, 2)
    score, known = stored(), rates_of(gpu_type("b200"))
    one = predicted(case, find(case.name), known, score, "sm_90a", cache, 1)
    low, high = score.intervals[one.regime]
    launch, begin = known.rates.launch_us, score.constants.begin_us
    assert one.high_us / high == pytest.approx(2 * (one.time_us - begin) + begin, rel=0.05)
    assert one.low_us / low == pytest.approx((one.time_us - begin) / 2 + begin, rel=0.1)
    assert launch < one.low_us


@pytest.mark.parametrize(
    ("phase", "rate"),
    [
        (PhaseWork((Direction(1e9, 0.0, 0.0),)), "push_gbps"),
        (PhaseWork((Direction(0.0, 0.0, 0.0, 1e9),)), "bulk_push_gbps"),
        (PhaseWork((), 1e9), "memory_gbps"),
    ],
)
def test_a_rate_that_is_assumed_widens_large_messages_by_its_factor(phase, rate):
    known = rates_of(gpu_type("b200"))
    terms = [terms_of(CaseWork({}, {}, (phase,)), one, 0.0) for one in corners(known)]
    times = [one.link_us + one.memory_us for one in terms]
    assert max(times) / times[0] == pytest.approx(LINK_FACTOR)
    assert times[0] / min(times) == pytest.approx(LINK_FACTOR)
    assert math.isclose(times[0], 1e9 / getattr(known.rates, rate) / 1e3)


@pytest.mark.slow
def test_multimem_is_wider_than_peers_on_a_calibrated_type(cache):
    widths = {}
    for algorithm in ("multimem_two_shot", "two_shot"):
        case = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", 4 << 10, 4)
        one = predicted(case, find(case.name), KNOWN, stored(), "sm_90a", cache, 1)
        widths[algorithm] = one.high_us / one.low_us
        assert replace(one, time_us=1.0).case == case
    low, high = stored().intervals["latency"]
    assert widths["two_shot"] == pytest.approx(high / low)
    assert widths["multimem_two_shot"] > 1.2 * high / low


def test_many_ranks_of_a_rack_are_an_experiment_of_four_jobs(capsys):
    """What it would simulate takes minutes: here only which jobs there are."""
    from symlab.speed.predict.asked_jobs import asked_jobs

    jobs = asked_jobs(("+exp=nvl72",), False, None)
    assert [one.request.world_size for one in jobs] == [8, 16, 36, 72]
    for one in jobs:
        assert (one.type.name, len(one.request.algorithms)) == ("gb200_nvl72", 8)
        assert {"multimem_one_shot", "multimem_two_shot", "two_shot"} <= set(one.request.algorithms)
    (alone,) = asked_jobs(("+exp=nvl72", "world_size=16"), False, None)
    assert alone.request.world_size == 16
