"""Ranges of sizes, crossovers and ties, and how far what is assumed may be off."""

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from cases.case import Case
from cases.record.prediction import PredictedTerms
from kernels.catalogue import find
from runner.gpu.reading import gpu_type
from symlab.__main__ import main
from symlab.speed.predict import assumptions
from symlab.speed.predict.assumptions import LINK_FACTOR, SWITCH, WAIT_FACTOR, corners
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.predict.model import terms_of
from symlab.speed.predict.predicting import Prediction, predicted
from symlab.speed.predict.ranges import about, lines, ranges, sheet, ties, written
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.shown import Series
from symlab.speed.predict.stored_score import stored
from tests.golden import same_text

KNOWN = rates_of(gpu_type("h200"))
PLAIN = ("op=all_reduce", "dtype=bfloat16", "world_size=2", "sizes=[1K,64K]", "algorithms=[one_shot,lamport]")


def _of(algorithm, size_bytes, *corners_us, error=(0.9, 1.1), placement="out_of_place"):
    case = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", size_bytes, 2, placement=placement)
    low_us, high_us = min(corners_us) * error[0], max(corners_us) * error[1]
    terms = PredictedTerms(launch_us=0.0, begin_us=0.0, least_us=corners_us[0], link_us=0.0, more_us=0.0, cold_us=0.0)
    said = (corners_us[0], low_us, high_us, "latency", (), True, tuple(corners_us), error, terms)
    return Prediction(*said, case=case, gpu="h200", busbw_gbps=1.0)


def _series(times, error=(0.9, 1.1)):
    """times: by algorithm and size in KiB, microseconds."""
    made = [
        _of(name, size << 10, *(one if isinstance(one, tuple) else (one,)), error=error)
        for name, by_size in times.items()
        for size, one in by_size.items()
    ]
    return Series(KNOWN, tuple(made))


def test_a_crossover_is_where_lines_over_logarithms_meet():
    """a takes 1, 2, 4, 8 us at 1, 2, 4, 8 KiB and b always 3 us: equal at 3 KiB; each may be 10 % off."""
    series = _series({"a": {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, "b": dict.fromkeys((1, 2, 4, 8), 3.0)})
    first, second = ranges(series)
    assert (first.algorithm, first.sizes, second.algorithm, second.sizes) == ("a", (1024, 2048), "b", (4096, 8192))
    crossing = first.crossing
    assert crossing.algorithm == "b"
    assert crossing.at_bytes == pytest.approx(3 * 1024)
    assert crossing.from_bytes == pytest.approx(3 * 1024 * 0.9 / 1.1)
    assert crossing.to_bytes == pytest.approx(3 * 1024 * 1.1 / 0.9)
    assert second.crossing is None
    assert (first.ties, second.ties) == ({}, {}), "2 KiB and 4 KiB are 2 to 3 and 4 to 3"


def test_an_interval_beyond_the_sizes_is_open():
    series = _series({"a": {1: 2.9, 4: 3.1}, "b": {1: 3.0, 4: 3.0}})
    (first, second) = ranges(series)
    assert (first.crossing.from_bytes, first.crossing.to_bytes) == (None, None)
    assert first.crossing.at_bytes == pytest.approx(2 * 1024, rel=0.02)
    assert [(line["algorithm"], line["predicted"]) for line in lines(series)] == [("a", True), ("b", True)]
    assert (first.ties, second.ties) == ({"b": (1024,)}, {"a": (4096,)})
    (line,) = [line for table in sheet(series) for group in table.groups for line in group[:1]]
    assert (line.cells["crossover from"], line.cells["to"]) == ("-", "-")


def test_a_size_with_an_unfinished_simulation_has_no_range():
    """At 2 KiB a had no time: whether b is the fastest there is unknown, and that refuses nothing."""
    made = _series({"a": {1: 1.0, 4: 4.0}, "b": dict.fromkeys((1, 2, 4), 2.0)})
    late = replace(made.predictions[0].case, size_bytes=2048)
    first, second = ranges(replace(made, missing={"unfinished": {late: "not simulated within 300 s"}}))
    assert (first.algorithm, first.sizes, second.algorithm, second.sizes) == ("a", (1024,), "b", (4096,))
    assert first.crossing.at_bytes == pytest.approx(2048)
    nothing = replace(made, missing={"failed": {replace(late, size_bytes=size << 10): "late" for size in (1, 2, 4)}})
    assert ranges(nothing) == ()
    assert sheet(nothing) == []
    assert json.loads(written([nothing], "json")) == []
    assert list(csv.DictReader(io.StringIO(written([nothing], "csv")))) == []


def test_an_algorithm_that_is_refused_ends_its_range():
    series = _series({"a": {1: 1.0, 4: 1.0}, "b": {1: 3.0, 4: 3.0, 16: 3.0}})
    first, second = ranges(series)
    assert (first.algorithm, first.sizes, second.sizes) == ("a", (1024, 4096), (16384,))
    assert first.crossing.at_bytes is None
    assert (first.crossing.from_bytes, first.crossing.to_bytes) == (4096, 16384)
    (table,) = sheet(series)
    assert table.groups[0][0].cells["crossover"] == "refused"


def test_one_range_has_no_crossover_and_three_have_two():
    assert [one.crossing for one in ranges(_series({"a": {1: 1.0, 4: 1.0}}))] == [None]
    found = ranges(_series({"a": {1: 1.0, 4: 9.0, 16: 1.0}, "b": {1: 3.0, 4: 3.0, 16: 3.0}}))
    assert [one.algorithm for one in found] == ["a", "b", "a"]
    assert [one.crossing is None for one in found] == [False, False, True]


def test_what_two_have_in_common_makes_no_tie():
    """Both are 4 times as long in the second corner; within each the first is half as long as the other."""
    one, other = _of("a", 1024, 1.0, 4.0), _of("b", 1024, 2.0, 8.0)
    assert one.high_us > other.low_us, "the intervals themselves overlap"
    assert not ties(one, other)
    assert ties(one, _of("c", 1024, 2.0, 3.0)), "in the second corner the other is the faster one"
    assert ties(one, _of("d", 1024, 1.2, 4.8)), "20 % is within both errors"


def test_placements_have_ranges_of_their_own():
    both = [_of("a", 1024, 1.0), _of("b", 1024, 9.0), _of("a", 1024, 9.0, placement="in_place")]
    series = Series(KNOWN, (*both, _of("b", 1024, 1.0, placement="in_place")))
    assert [(one.placement, one.algorithm) for one in ranges(series)] == [("out_of_place", "a"), ("in_place", "b")]
    assert ["in_place" in one.heading for one in sheet(series)] == [False, True]


def test_sizes_are_told_with_two_digits():
    assert [about(size) for size in (900.0, 1024.0, 93206.0, 3.3 * 1024, 5 << 20, 1.5 * (1 << 30))] == [
        "900", "1K", "91K", "3.3K", "5M", "1.5G",
    ]  # fmt: skip


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
    assert len(found) == 1 + 2**10
    assert {one.launch_us for one in found[1:]} == {known.rates.launch_us / 2, known.rates.launch_us * 2}
    assert {one.push_gbps for one in found[1:]} == {
        known.rates.push_gbps / LINK_FACTOR, known.rates.push_gbps * LINK_FACTOR,
    }  # fmt: skip
    for one in found:
        assert one.pull_gbps / one.pull_both_gbps == pytest.approx(known.rates.pull_gbps / known.rates.pull_both_gbps)
    fences = {(one.costs_us["hop"], one.costs_us["fence"]) for one in found[1:]}
    assert len(fences) == 4, "each floor by itself"


def test_the_interval_reaches_from_the_lowest_corner_to_the_highest(cache):
    """Of an uncalibrated type: launches, waits and links low and high together bound all corners."""
    case = Case("all_reduce", "multimem_two_shot", "bfloat16", "float32", "sum", 16 << 10, 2)
    score, known = stored(), rates_of(gpu_type("b200"))
    one = predicted(case, find(case.name), known, score, "sm_90a", cache, 1)
    assert len(one.corners_us) == len(corners(known))
    assert one.corners_us[0] == one.time_us
    low, high = score.intervals[one.regime]
    assert (one.low_us, one.high_us) == (min(one.corners_us) * low, max(one.corners_us) * high)
    launch, begin = known.rates.launch_us, score.constants.begin_us
    assert max(one.corners_us) == pytest.approx(2 * (one.time_us - begin) + begin, rel=0.05)
    assert min(one.corners_us) == pytest.approx((one.time_us - begin) / 2 + begin, rel=0.1)
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


def test_ranges_are_shown_in_four_forms(cache, capsys):
    said = {}
    for form in ("text", "markdown", "csv", "json"):
        words = (*PLAIN, f"cache_dir={cache}", "fabric.gpu=h200", "--ranges", "--format", form)
        assert main(["predict", *words]) == 0
        said[form] = capsys.readouterr().out
    found = json.loads(said["json"])
    assert [one["algorithm"] for one in found] == ["lamport"]
    assert (found[0]["from_bytes"], found[0]["to_bytes"], found[0]["predicted"]) == (1024, 65536, True)
    (row,) = csv.DictReader(io.StringIO(said["csv"]))
    assert list(row) == list(found[0])
    assert (row["algorithm"], row["predicted"], row["crossover_bytes"]) == ("lamport", "True", "")
    heading = "PREDICTED, not measured: all_reduce bfloat16, accumulator float32, sum, 2 ranks of h200: ranges"
    assert heading in said["text"]
    assert "| 1K to 64K | lamport | none |" in said["markdown"]
    for words in (("--ranges", "--score"), (*PLAIN, "--ranges", "--explain", "--format", "json")):
        assert main(["predict", *words]) == 2
        same_text(capsys.readouterr().err)


def test_many_ranks_of_a_rack_are_an_experiment_of_four_jobs(capsys):
    """What it would simulate takes minutes: here only which jobs there are."""
    from symlab.speed.predict.asking import asked_jobs

    jobs = asked_jobs(("+exp=nvl72",), False, None)
    assert [one.request.world_size for one in jobs] == [8, 16, 36, 72]
    for one in jobs:
        assert (one.type.name, len(one.request.algorithms)) == ("gb200_nvl72", 8)
        assert {"multimem_one_shot", "multimem_two_shot", "two_shot"} <= set(one.request.algorithms)
    (alone,) = asked_jobs(("+exp=nvl72", "world_size=16"), False, None)
    assert alone.request.world_size == 16
