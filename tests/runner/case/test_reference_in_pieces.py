"""References that are made in pieces, and outputs compared in pieces, are what they are as a whole."""

import math
from dataclasses import replace

import pytest
import torch

from cases.case import Case
from cases.dtypes import ALL, FLOATS, ITEMSIZES, accumulators_of, reductions_of
from cases.ops import collective
from kernels.numeric.formats import bits_of, same_bits, to_float64
from runner.case import reference
from runner.case.reference import LIMITS, reference_of
from tests.runner.promises import right, spec

CPU = torch.device("cpu")
NUMEL = 96


@pytest.fixture(autouse=True)
def _nothing_kept():
    reference.forget_references()


def made(case, promise, rank, device=CPU):
    reference.forget_references()
    return reference_of(case, promise, collective(case.op), rank, device)


def same(one, other, by_value=False):
    """Whether two tensors have the same bits; any NaN counts as any. by_value: -0.0 counts as +0.0."""
    if one is None or other is None:
        return one is other
    one, other = one.cpu(), other.cpu()
    if by_value:
        one, other = to_float64(one) + 0.0, to_float64(other) + 0.0
    return bool(same_bits(one, other).all())


def assert_same(whole, pieces):
    for name in ("nearest", "expected", "exact"):
        # Which NaN and which zero these are depends on the place in memory; the method "bound" compares values.
        assert same(getattr(whole, name), getattr(pieces, name), by_value=whole.method == "bound"), name
    assert (whole.expected is whole.nearest) == (pieces.expected is pieces.nearest)
    for name in ("method", "bound_value", "chosen", "reduced"):
        assert getattr(whole, name) == getattr(pieces, name)
    assert (whole.limit is None) == (pieces.limit is None)
    if whole.limit is not None and pieces.limit is not None:
        assert whole.limit.formula == pieces.limit.formula
        for name in LIMITS[:3]:
            assert same(getattr(whole.limit, name), getattr(pieces.limit, name), by_value=True), name
        nowhere = torch.zeros(whole.nearest.numel(), dtype=torch.bool)
        found = [one.may_be_nan for one in (whole.limit, pieces.limit)]
        assert torch.equal(*(nowhere if one is None else one.cpu() for one in found))


def assert_alike(whole, pieces):
    """The same but for sums, whose order is another one."""
    assert repr(replace(whole, squared_ulp_error=0.0, scale=None)) == repr(
        replace(pieces, squared_ulp_error=0.0, scale=None)
    )
    assert pieces.squared_ulp_error == pytest.approx(whole.squared_ulp_error, nan_ok=True)
    assert (whole.scale is None) == (pieces.scale is None)
    if whole.scale is not None and pieces.scale is not None:
        assert (pieces.scale.elements, pieces.scale.largest) == (whole.scale.elements, whole.scale.largest)
        assert pieces.scale.squared_error == pytest.approx(whole.scale.squared_error)
        assert pieces.scale.squared_result == pytest.approx(whole.scale.squared_result)


def cases(dtype):
    """Of every reduction and accumulator one case, with kinds of inputs, ops and orders in turn."""
    found = []
    turn = 0
    for reduction in reductions_of(dtype):
        for accumulator in accumulators_of(dtype, reduction):
            for order in ("rank_order", "from_next_rank", "unordered"):
                op = ("all_reduce", "reduce_scatter")[turn // 3 % 2]
                inputs = ("edge", "normal", "exact")[turn % 3 if dtype in FLOATS else 0]
                size_bytes = 3 * NUMEL * ITEMSIZES[dtype]
                found.append((Case(op, "made_up", dtype, accumulator, reduction, size_bytes, 3, inputs=inputs), order))
                turn += 1
            turn += 1
    return found


@pytest.mark.parametrize("dtype", ALL)
def test_pieces_give_what_the_whole_gives(dtype, monkeypatch):
    for case, order in cases(dtype):
        promise = spec(order, case.op)
        output = right(case, promise, 1)
        wrong = bits_of(output).clone()
        wrong[50] ^= 5
        wrong[83] ^= 1
        outputs = [output, wrong.view(output.dtype)]
        with monkeypatch.context() as patch:
            whole = made(case, promise, 1)
            expected = [whole.look_at(one) for one in outputs]
            patch.setattr(reference, "PIECE_ELEMENTS", 37)
            pieces = made(case, promise, 1)
            assert_same(whole, pieces)
            for one, found in zip(outputs, expected, strict=True):
                assert_alike(found, pieces.look_at(one))
        assert expected[0].wrong == 0


def test_the_first_wrong_element_of_a_later_piece_is_named(monkeypatch):
    monkeypatch.setattr(reference, "PIECE_ELEMENTS", 10)
    case = Case("all_reduce", "made_up", "float32", "native", "sum", 4 * NUMEL, 3)
    promise = spec("rank_order", "all_reduce")
    output = right(case, promise, 0)
    output[[57, 71]] = math.nan
    found = made(case, promise, 0).look_at(output)
    assert (found.wrong, found.first_index) == (2, 57)
    assert math.isnan(found.max_absolute_error)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ALL)
def test_a_gpu_finds_what_the_host_finds(dtype, monkeypatch):
    """Inputs, references and findings: the same bits."""
    monkeypatch.setattr(reference, "PIECE_ELEMENTS", 4096)
    gpu = torch.device("cuda", 0)
    for case, order in cases(dtype):
        case = replace(case, size_bytes=100 * case.size_bytes)
        promise = spec(order, case.op)
        here, there = made(case, promise, 1), made(case, promise, 1, gpu)
        assert_same(here, there)
        output = right(case, promise, 1)
        assert_alike(here.look_at(output), there.look_at(output.to(gpu)))
