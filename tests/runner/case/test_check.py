"""The check: right results pass, and each way of being wrong is found, named and placed."""

import gc
import math
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cases.case import Case
from cases.dtypes import DTYPES
from cases.ops import collective as find_collective
from kernels.numeric.exact import exact_sum
from kernels.numeric.formats import FORMATS, round_to
from kernels.numeric.numerics import fold
from runner.case import reference
from runner.case.check import check_rank, merge
from runner.case.inputs import make_input
from tests.golden import refused
from tests.runner.promises import owner, spec

ALL_REDUCE = find_collective("all_reduce")
PLAIN = ["float32", "float16", "bfloat16"]
ORDERS = ("rank_order", "from_next_rank", "unordered")


def case(dtype="bfloat16", accumulator="float32", inputs="normal", world_size=8, numel=1000, op="all_reduce"):
    size_bytes = numel * DTYPES[dtype].itemsize
    return Case(op, "made_up", dtype, accumulator, "sum", size_bytes, world_size, inputs=inputs)


def contributions(one):
    return [make_input(one, rank, one.numel) for rank in range(one.world_size)]


def checked(one, order, outputs, inputs=None):
    """The merged check of what outputs(rank) gives."""
    the_spec = spec(order, one.op)
    checks = [check_rank(one, the_spec, rank, outputs(rank), (), inputs=inputs) for rank in range(one.world_size)]
    assert pickle.loads(pickle.dumps(checks)) == checks or any(math.isnan(c.max_absolute_error) for c in checks)
    return merge(one, the_spec, checks[::-1])


@pytest.fixture(autouse=True)
def _nothing_kept():
    reference.forget_references()


def right(one, order):
    first = (owner(one, 0) + 1) % one.world_size if order == "from_next_rank" else None
    return fold(contributions(one), one.accumulator, "sum", first)


def test_one_wrong_element_is_placed():
    one = case("float32", inputs="exact")
    result = right(one, "rank_order")
    broken = result.clone()
    broken[417] += 2

    def outputs(rank):
        return [result, broken if rank == 5 else result]

    found = checked(one, "rank_order", outputs)
    assert found.wrong == 1
    at = found.first_mismatch
    assert (at.rank, at.launch, at.index) == (5, 1, 417)
    assert (at.expected, at.actual) == (float(result[417]), float(result[417]) + 2)
    assert at.actual_bits == f"0x{int(broken[417:418].view(torch.int32)) & 0xFFFFFFFF:08x}"
    assert at.expected_bits == f"0x{int(result[417:418].view(torch.int32)) & 0xFFFFFFFF:08x}"
    assert found.max_absolute_error == 2.0
    assert not found.launches_equal
    assert found.ranks_equal  # of the first launch
    assert found.rms_ulp_error == pytest.approx(found.max_ulp_error / math.sqrt(found.elements))
    assert any("repeated launches" in fault for fault in found.faults)


def test_ranks_that_differ():
    one = case()
    low = round_to(torch.stack([part.double() for part in contributions(one)]).sum(0), torch.bfloat16)
    step = torch.nextafter(low, torch.full_like(low, math.inf))
    limit = reference.make_reference(one, spec("unordered"), ALL_REDUCE, 0, contributions(one)).limit
    other = torch.where(limit.permits(step), step, low)
    assert not torch.equal(other, low)

    loose = checked(one, "unordered", lambda rank: [other if rank == 2 else low, low])
    assert not loose.ranks_equal
    assert not loose.launches_equal
    assert loose.faults == ()  # within the bound, and no order was promised: reported, not demanded

    result = right(one, "rank_order")
    strict = checked(one, "rank_order", lambda rank: [other if rank == 2 else result])
    assert not strict.ranks_equal
    assert any("ranks' results differ" in fault for fault in strict.faults)


def special(dtype):
    """Two ranks' payloads: -0.0, NaN, infinities, subnormals, overflow, cancellation."""
    tiny, large = FORMATS[dtype].smallest_subnormal, FORMATS[dtype].largest
    left = [-0.0, -0.0, 0.0, math.nan, math.inf, math.inf, tiny, -tiny, large, large, 1.5]
    right = [-0.0, 0.0, -0.0, 1.0, 1.0, -math.inf, tiny, tiny, large, -large, -1.5]
    return [torch.tensor(left, dtype=dtype), torch.tensor(right, dtype=dtype)]


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("accumulator", ["float32", "native"])
def test_special_payloads(dtype, accumulator):
    tiny = FORMATS[DTYPES[dtype]].smallest_subnormal
    parts = special(DTYPES[dtype])
    one = case(dtype, accumulator, world_size=2, numel=len(parts[0]))
    values = [-0.0, 0.0, 0.0, math.nan, math.inf, math.nan, 2 * tiny, 0.0, math.inf, 0.0, 0.0]
    expected = torch.tensor(values, dtype=torch.float64).to(torch.float32).to(DTYPES[dtype])
    # another NaN than torch's: the canonical one of PTX
    bits = FORMATS[DTYPES[dtype]].bits
    expected.view(bits)[3] = 0x7FFFFFFF if dtype == "float32" else 0x7FFF
    found = checked(one, "rank_order", lambda rank: [expected, expected], parts)
    assert found.faults == ()
    assert found.max_absolute_error == 0.0
    assert found.max_ulp_error == 0

    for index, bad in ((0, 0.0), (1, -0.0), (3, 1.0), (4, math.nan), (5, math.inf), (6, 0.0), (7, tiny), (8, 1.0)):
        broken = expected.clone()
        broken[index] = bad
        found = checked(one, "rank_order", lambda rank, broken=broken: [broken], parts)
        assert found.wrong == 2
        assert found.first_mismatch.index == index
    assert found.max_absolute_error == math.inf  # 1.0 where infinity must be


def test_the_reference_is_made_once_for_all_threads(monkeypatch):
    calls = []
    for name, made in (("exact_sum", exact_sum), ("fold", fold)):

        def counted(*given, name=name, made=made):
            calls.append(name)
            return made(*given)

        monkeypatch.setattr(reference, name, counted)
    one = case()
    result = right(one, "rank_order")
    for order in ("rank_order", "unordered"):
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda rank, order=order: check_rank(one, spec(order), rank, [result], ()), range(8))
        assert [one_rank.wrong for one_rank in found] == [0] * 8
    assert sorted(calls) == ["exact_sum", "fold"]


def test_references_are_kept_within_limits(monkeypatch):
    def look(numel):
        one = case(numel=numel)
        check_rank(one, spec(), 0, [right(one, "rank_order")], ())

    for numel in range(100, 120):
        look(numel)
    assert len(reference._references._on_cpu) == reference.KEPT_REFERENCES
    monkeypatch.setattr(reference, "KEPT_ELEMENTS", 250)
    monkeypatch.setattr(reference, "_totals", reference._Kept(lambda total: total.value))
    monkeypatch.setattr(reference, "_references", reference._Kept(lambda kept: kept.nearest))
    for numel in (118, 119, 120):
        look(numel)
    assert len(reference._references._on_cpu) == 2
    look(1000)
    assert len(reference._references._on_cpu) == len(reference._totals._on_cpu) == 1


def test_outputs_of_a_wrong_shape_are_our_own_error():
    with refused(AssertionError):
        check_rank(case(), spec(), 3, [torch.zeros(7, dtype=torch.bfloat16)], ())


def test_outputs_that_were_looked_at_are_given_up_but_the_latest():
    """A sweep looks at thousands of them: what kept each would fill the memory."""
    expected = reference.Reference("bytes", torch.zeros(8), torch.zeros(8))
    outputs = []
    for number in range(12):
        output = torch.full((8,), float(number))
        assert expected.look_at(output).wrong == 8 * bool(number)
        outputs.append(weakref.ref(expected._seen[0][0]))
    gc.collect()
    assert [held() is not None for held in outputs] == [False] * 10 + [True] * reference.KEPT_OUTPUTS
