"""Measuring with other ops than all_reduce: what calls in place leave, ranks without output, empty messages."""

import pytest
import torch

from runner.timing import of_case
from runner.timing.combine import combine
from runner.timing.measure import MeasurePlan
from tests.runner.measuring import TIMING, Bench, contestant
from tests.runner.timing.test_measure import stopwatch_with


def plan_of(compile_cache, algorithm, op, **changes):
    if op in ("all_gather", "broadcast", "all_to_all", "all_to_all_v", "send_recv", "barrier"):
        changes = {"accumulator": "none", "reduction": "none"} | changes
    return MeasurePlan((contestant(compile_cache, algorithm, op=op, **changes),), TIMING)


@pytest.mark.parametrize(
    ("op", "algorithm", "changes", "factor"),
    [
        ("reduce_scatter", "pull", {"offset": 3}, 0.5),
        ("reduce_scatter", "push", {"placement": "in_place"}, 0.5),
        ("all_gather", "push", {"placement": "in_place"}, 0.5),
        ("broadcast", "pull", {"root": 1, "placement": "in_place"}, 1.0),
        ("reduce", "pull", {"root": 1}, 1.0),
        ("reduce", "pull", {"root": 1, "placement": "in_place"}, 1.0),
        ("reduce", "pull", {"root": 1, "placement": "in_place", "reduction": "max", "accumulator": "native"}, 1.0),
        ("all_to_all", "push", {}, 0.5),
        ("all_to_all_v", "push", {"counts": "zeros"}, 0.5),
        ("send_recv", "pull", {}, 1.0),
    ],
)
def test_every_op_has_a_time_and_its_own_bus_factor(compile_cache, op, algorithm, changes, factor):
    plan = plan_of(compile_cache, algorithm, op, **changes)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert timed.timing is not None, timed
    assert timed.timing.bus_factor == factor
    assert timed.timing.checked_before > 0
    accumulates = (
        plan.contestants[0].case.placement == "in_place" and changes.get("reduction") is None and "reduce" in op
    )
    assert timed.timing.checked_after == timed.timing.checked_before * (1 if accumulates else 2)


def test_a_barrier_and_an_empty_message_have_a_time(compile_cache):
    plan = plan_of(compile_cache, "peers", "barrier", dtype="uint32", size_bytes=4)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert timed.timing.busbw_gbps(4) == 0
    assert timed.timing.slot_bytes == 4 + 8
    plan = plan_of(compile_cache, "pull", "all_gather", size_bytes=0)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert (timed.timing.slot_bytes, timed.timing.checked_before, timed.timing.checked_after) == (0, 0, 0)


@pytest.mark.parametrize("tired", [0, 3])
def test_in_place_what_the_timed_calls_of_data_that_moves_left_is_compared(compile_cache, tired):
    plan = plan_of(compile_cache, "push", "all_gather", placement="in_place")
    (timed,), _ = combine(plan, Bench(plan, 2, spoil=stopwatch_with(tired_graphs=tired)).run(), None)
    assert timed.timing is None
    assert timed.wrong.wrong > 0


def test_graphs_that_do_nothing_are_found_out_where_only_the_root_can_tell(compile_cache):
    plan = plan_of(compile_cache, "pull", "reduce", root=1, placement="in_place")
    (timed,), _ = combine(plan, Bench(plan, 2, spoil=stopwatch_with(empty_graphs=True)).run(), None)
    assert timed.problem == "rank 1: the timed calls changed nothing"


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_a_write_to_the_output_of_a_rank_that_is_given_none_has_no_time(compile_cache, monkeypatch, placement):
    plan = plan_of(compile_cache, "pull", "reduce", root=1, placement=placement)
    original = of_case.Measurement.outputs

    def outputs(measurement):
        found = original(measurement)
        if not measurement.has_output and measurement.samples_us:
            found = [one.clone() for one in found]
            found[2].view(torch.uint8)[7] ^= 1
        return found

    monkeypatch.setattr(of_case.Measurement, "outputs", outputs)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert timed.timing is None
    assert "the output of a rank that is given none changed in slot 2" in timed.wrong.faults[0]
