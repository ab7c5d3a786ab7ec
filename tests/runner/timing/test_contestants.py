"""What is known of a slot's output before a call, and what a rank that is given none is held to."""

from dataclasses import replace

import pytest
import torch

from kernels.baselines import Baseline
from memory.fabric import Executable
from runner.case.contestant import Contestant
from runner.timing import of_case
from runner.timing.of_case import Measurement, accumulates, before_call
from tests.runner import promises
from tests.runner.measuring import case_of

BYTES = torch.arange(1, 25, dtype=torch.uint8)


def case(op, **changes):
    return case_of("tried", op=op, dtype="uint8", size_bytes=24, world_size=4, **changes)


class Outputs:
    """A contestant whose outputs are these."""

    def __init__(self, *outputs):
        self._outputs = outputs
        self.slots = len(outputs)

    def output(self, slot):
        return self._outputs[slot]


def measurement(of, *outputs, rank=1, is_kernel=True, has_output=True):
    data = BYTES if of.op != "all_gather" else BYTES[:6]
    before = before_call(of, rank, data)
    opened = Outputs(*outputs)
    contestant = Contestant(of, Baseline("tried", ()))
    if is_kernel:
        kernel = replace(promises.spec(op=of.op), algorithm="tried")
        contestant = Contestant(of, kernel, Executable(of.name, "", "", "", ""))
    who = {"name": of.name, "label": of.id, "contestant": contestant, "opened": opened}
    how = {"slots": len(outputs), "slot_bytes": 24, "calls": 4, "data": data, "before_call": before}
    return Measurement(**who, **how, has_output=has_output)


def test_out_of_place_only_the_poison_of_a_rank_that_is_given_none_matters():
    assert before_call(case("reduce", root=2), 2, BYTES).numel() == 0
    assert before_call(case("reduce", root=2), 1, BYTES).tolist() == [0xFF] * 24


def test_in_place_an_output_begins_as_the_input_where_they_overlap():
    assert before_call(case("all_reduce", placement="in_place"), 1, BYTES).tolist() == list(range(1, 25))
    assert before_call(case("reduce_scatter", placement="in_place"), 1, BYTES).tolist() == list(range(7, 13))
    gathered = before_call(case("all_gather", placement="in_place"), 2, BYTES[:6]).tolist()
    assert gathered == [0xFF] * 12 + list(range(1, 7)) + [0xFF] * 6


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
@pytest.mark.parametrize("reduction", ["sum", "avg", "xor", "max", "none"])
def test_only_in_place_and_only_what_adds_goes_on_from_its_results(placement, reduction):
    adds = placement == "in_place" and reduction in ("sum", "avg", "xor")
    assert accumulates(case("all_reduce", placement=placement, reduction=reduction)) == adds


def test_as_before_is_said_of_bits():
    of = case_of("tried", dtype="bfloat16", size_bytes=4, placement="in_place")
    data = torch.tensor([float("nan"), -0.0], dtype=torch.bfloat16)
    one = measurement(case("all_reduce"))
    one.before_call = before_call(of, 0, data)
    assert one.is_as_before(data.clone())
    assert not one.is_as_before(torch.tensor([float("nan"), 0.0], dtype=torch.bfloat16))


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_the_output_of_a_rank_that_is_given_none_must_stay(monkeypatch, placement):
    seen = []
    monkeypatch.setattr(of_case, "check_rank", lambda *arguments: seen.append(arguments))
    of = case("reduce", root=2, placement=placement)
    untouched = before_call(of, 1, BYTES)
    touched = untouched.clone()
    touched[23] = 0
    measurement(of, untouched, touched, untouched, has_output=False).checked(1)
    measurement(of, untouched, touched, has_output=True).checked(1)
    measurement(of, untouched, touched, has_output=False, is_kernel=False).checked(1)
    assert [found[4] for found in seen] == [["the output of a rank that is given none changed in slot 1"], [], []]
    assert [len(found[3]) for found in seen] == [3, 2, 2]
