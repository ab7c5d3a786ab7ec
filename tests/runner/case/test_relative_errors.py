"""Errors against the results' root mean square, and orders that differ between ranks: what a check says of them."""

import dataclasses
import math

import pytest
import torch

from cases.case import Case
from cases.dtypes import DTYPES
from kernels.catalogue import find
from kernels.numeric.numerics import fold
from runner.case.check import check_rank, merge

ROTATED, ONE_SHOT = find("all_reduce/one_shot_rotated"), find("all_reduce/one_shot")


def case_of(dtype="bfloat16", accumulator="native", world_size=4, **changes):
    base = Case("all_reduce", "one_shot_rotated", dtype, accumulator, "sum", 512, world_size)
    return dataclasses.replace(base, **changes)


def inputs_of(case, seed=1):
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(case.world_size, case.numel, generator=generator, dtype=torch.float64)
    return list(wide.to(DTYPES[case.dtype]))


def rotated(case, inputs, rank):
    first = torch.full((case.numel,), (rank + 1) % case.world_size)
    return fold(inputs, case.accumulator, "sum", first)


def checked(case, inputs, outputs, spec=ROTATED):
    ranks = [check_rank(case, spec, rank, [output], (), inputs=inputs) for rank, output in enumerate(outputs)]
    return merge(case, spec, ranks)


def test_each_rank_is_held_to_its_own_order_and_may_differ_from_others():
    case = case_of()
    inputs = inputs_of(case)
    outputs = [rotated(case, inputs, rank) for rank in range(4)]
    found = checked(case, inputs, outputs)
    assert (found.method, found.wrong, found.faults) == ("bitwise_fold", 0, ())
    assert (found.ranks_equal, found.ranks_equal_promised, found.results) == (False, False, 4)
    swapped = checked(case, inputs, [outputs[1], outputs[0], *outputs[2:]])
    assert swapped.wrong > 0


def test_where_no_order_matters_they_have_to_agree():
    case = case_of(dtype="int32", size_bytes=64)
    inputs = [torch.arange(16, dtype=torch.int32) + rank for rank in range(4)]
    total = torch.stack(inputs).sum(0).to(torch.int32)
    found = checked(case, inputs, [total] * 4)
    assert (found.ranks_equal_promised, found.results) == (True, 1)
    assert (found.max_relative_error, found.rms_relative_error) == (None, None)


def test_relative_errors_are_shares_of_the_results_root_mean_square():
    case = case_of("float32", "native")
    inputs = inputs_of(case)
    outputs = [rotated(case, inputs, rank) for rank in range(4)]
    exact = torch.stack([one.double() for one in inputs]).sum(0).to(torch.float32).double()
    errors = torch.stack([(output.double() - exact).abs() for output in outputs])
    scale = math.sqrt(float(exact.square().mean()))
    found = checked(case, inputs, outputs)
    assert found.rms_relative_error == pytest.approx(math.sqrt(float(errors.square().mean())) / scale)
    assert found.max_relative_error == pytest.approx(float(errors.max()) / scale)
    assert 0 < found.rms_relative_error < 2.0**-22


def test_a_sum_that_is_rounded_once_has_none():
    case = case_of("bfloat16", "float32", algorithm="one_shot")
    inputs = inputs_of(case)
    outputs = [fold(inputs, "float32")] * 4
    found = checked(case, inputs, outputs, ONE_SHOT)
    assert (found.max_relative_error, found.rms_relative_error, found.results) == (0.0, 0.0, 1)


def test_what_is_not_finite_does_not_count():
    case = case_of(inputs="edge")
    inputs = inputs_of(case)
    inputs[0][:8] = torch.tensor([math.inf, math.nan, -math.inf, 3e38] * 2)
    found = checked(case, inputs, [rotated(case, inputs, rank) for rank in range(4)])
    assert found.wrong == 0
    assert math.isfinite(found.rms_relative_error)


def test_data_that_moves_has_no_error_to_compare():
    case = Case("broadcast", "push", "bfloat16", "none", "none", 64, 2)
    inputs = inputs_of(case)
    found = checked(case, inputs, [inputs[0].clone()] * 2, find("broadcast/push"))
    assert (found.max_relative_error, found.rms_relative_error, found.results) == (None, None, 1)
