"""References of every op, dtype and reduction: right results pass, and each kind of wrong one is found."""

import itertools
from dataclasses import replace

import pytest
import torch

from cases.case import Case
from cases.dtypes import ALL, DTYPES, FLOATS, INTEGERS, ITEMSIZES, NONE, accumulators_of, reductions_of
from cases.ops import COLLECTIVES, collective
from kernels.numeric.formats import FORMATS, bits_of, is_nan, narrow, to_float64
from kernels.numeric.numerics import average_of_sum, fold
from runner.case import reference
from runner.case.check import check_rank, merge
from runner.case.reference import method_of, reference_of
from tests.golden import refused
from tests.runner.promises import owner, parts_of, right, spec

OPS = [one.op for one in COLLECTIVES]
REDUCING = [op for op in OPS if collective(op).reduces]
MOVING = [op for op in OPS if not collective(op).reduces]
ORDERS = ("rank_order", "from_next_rank", "unordered")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _nothing_kept():
    reference.forget_references()


def case(
    op="all_reduce", dtype="bfloat16", accumulator="native", reduction="sum", inputs="normal", world_size=4, numel=96
):
    if not collective(op).reduces:
        accumulator = reduction = NONE
    root = world_size - 1 if collective(op).rooted else 0
    size_bytes = numel * ITEMSIZES[dtype]
    return Case(op, "made_up", dtype, accumulator, reduction, size_bytes, world_size, inputs=inputs, root=root)


def checked(one, promise, outputs):
    """The merged check of an output a rank, each of two launches; None: what a rank without one has."""
    nothing = torch.zeros(3, dtype=torch.uint8).view(torch.uint8)
    checks = [
        check_rank(one, promise, rank, [nothing if output is None else output] * 2, ())
        for rank, output in enumerate(outputs)
    ]
    return merge(one, promise, checks)


def honest(one, promise):
    return [right(one, promise, rank) for rank in range(one.world_size)]


def with_bits(value, index, change):
    broken = bits_of(value).clone()
    broken[index] ^= change
    return broken.view(value.dtype)


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("inputs", ["exact", "normal", "edge"])
def test_right_results_of_every_reduction_pass(op, dtype, inputs):
    for reduction in reductions_of(dtype):
        for accumulator, order in itertools.product(accumulators_of(dtype, reduction), ORDERS):
            one = case(op, dtype, accumulator, reduction, inputs, 4 if inputs == "exact" else 3)
            promise = spec(order, op)
            outputs = honest(one, promise)
            found = checked(one, promise, outputs)
            assert (found.faults, found.wrong, found.launches_equal) == ((), 0, True)
            assert found.ranks_equal or not collective(op).same_on_all_ranks
            assert found.method == method_of(one, promise, collective(op))
            count = sum(output.numel() for output in outputs if output is not None)
            assert (found.elements, found.launches) == (2 * count, 2)
            assert (found.bound != "") == (found.method == "bound")
            assert found.bound_used is None or found.bound_used <= 1.0
            if found.method == "bitwise":
                assert (found.max_ulp_error, found.max_absolute_error, found.rms_ulp_error) == (0, 0.0, 0.0)
            elif (accumulator, dtype, reduction) == ("float32", "float16", "sum"):
                assert found.max_ulp_error <= 1


@pytest.mark.parametrize("op", REDUCING)
@pytest.mark.parametrize("order", ORDERS)
def test_one_wrong_bit_is_found_in_every_dtype(op, order):
    promise = spec(order, op)
    for dtype in (*FLOATS, *INTEGERS):
        for reduction in reductions_of(dtype):
            one = case(op, dtype, "native", reduction, "exact")
            outputs = honest(one, promise)
            victim = outputs[-1]
            outputs[-1] = with_bits(victim, 5, 1 << 3)
            found = checked(one, promise, outputs)
            assert found.wrong == 2
            at = found.first_mismatch
            assert (at.rank, at.index, len(at.actual_bits)) == (3, 5, 2 + 2 * ITEMSIZES[dtype])
            assert int(at.actual_bits, 16) ^ int(at.expected_bits, 16) == 8
            assert at.expected == float(to_float64(victim[5:6]))


@pytest.mark.parametrize(
    ("dtype", "reduction", "inputs", "world_size", "ordered", "unordered"),
    [
        ("float32", "sum", "exact", 3, "bitwise", "bitwise"),
        ("float32", "sum", "normal", 3, "bitwise_fold", "bound"),
        ("float8_e5m2", "sum", "edge", 3, "bitwise_fold", "bound"),
        ("float16", "avg", "exact", 8, "bitwise", "bitwise"),
        ("float16", "avg", "exact", 6, "bitwise_fold", "bound"),
        ("float64", "min", "edge", 3, "bitwise", "bound"),
        ("float64", "max", "exact", 3, "bitwise", "bitwise"),
        ("int32", "avg", "normal", 3, "bitwise", "bitwise"),
        ("uint64", "xor", "edge", 3, "bitwise", "bitwise"),
    ],
)
def test_methods(dtype, reduction, inputs, world_size, ordered, unordered):
    one = case("all_reduce", dtype, "native", reduction, inputs, world_size)
    op = collective("all_reduce")
    assert [method_of(one, spec(order), op) for order in ORDERS] == [ordered, ordered, unordered]
    for order, method in zip(ORDERS, (ordered, ordered, unordered), strict=True):
        found = checked(one, spec(order), honest(one, spec(order)))
        assert found.method == method
        assert found.ranks_equal_promised == found.launches_equal_promised == (method != "bound")


@pytest.mark.parametrize("op", MOVING)
@pytest.mark.parametrize("dtype", ALL)
def test_moved_data_is_compared_byte_by_byte(op, dtype):
    promise = spec("rank_order", op)
    for inputs in ("exact", "edge"):
        one = case(op, dtype, inputs=inputs)
        outputs = honest(one, promise)
        found = checked(one, promise, outputs)
        assert (found.faults, found.method, found.max_ulp_error) == ((), "bytes", 0)
        last = outputs[3]
        for index in range(0, len(last), 7):
            found = checked(one, promise, [*outputs[:3], with_bits(last, index, 1)])
            assert found.wrong == 2
            assert (found.first_mismatch.rank, found.first_mismatch.index) == (3, index)
        swapped = [outputs[1], outputs[0], *outputs[2:]]
        assert (checked(one, promise, swapped).wrong > 0) != collective(op).same_on_all_ranks


@pytest.mark.parametrize(("op", "wrong"), [("all_gather", 2), ("all_reduce", 0)])
def test_a_nan_of_another_payload_is_another_byte(op, wrong):
    one, promise = case(op, "float32", inputs="edge"), spec("rank_order", op)
    first, *others = honest(one, promise)
    index = int(is_nan(first).to(torch.uint8).argmax())
    broken = with_bits(first, index, 2)
    assert bool(is_nan(broken)[index])
    assert checked(one, promise, [broken, *others]).wrong == wrong


@pytest.mark.parametrize("op", MOVING)
def test_what_moved_ops_are_to_give(op):
    """From the definitions, not from the collectives."""
    one = case(op, "int32", inputs="normal", numel=12)
    given = [data.tolist() for data in reference.make_inputs(one, range(4), collective(op).counts(12, 4)[0])]
    for rank in range(4):
        whole = [number for row in given for number in row]
        columns = [number for row in given for number in row[3 * rank : 3 * rank + 3]]
        expected = {
            **dict.fromkeys(("all_gather", "barrier"), whole),
            **dict.fromkeys(("all_to_all", "all_to_all_v"), columns),
            "broadcast": given[3],
            "send_recv": given[rank - 1],
        }
        found = reference_of(one, spec("rank_order", op), collective(op), rank, CPU).nearest.tolist()
        assert found == expected[op]


def test_a_rank_without_an_output_has_nothing_to_compare():
    for inputs, order in (("exact", "rank_order"), ("normal", "unordered"), ("normal", "from_next_rank")):
        one = replace(case("reduce", inputs=inputs), root=2)
        promise = spec(order, "reduce")
        assert [collective("reduce").gives(one, rank) for rank in range(4)] == [False, False, True, False]
        result = right(one, promise, 2)
        for launches in (2, 0):
            alone = check_rank(one, promise, 1, [torch.zeros(5)] * launches, ["output: 1 byte changed"])
            assert (alone.elements, alone.wrong, alone.launches) == (0, 0, launches)
            checks = [replace(alone, rank=rank) for rank in (0, 1, 3)]
            found = merge(one, promise, [*checks, check_rank(one, promise, 2, [result, result], ())])
            assert (found.elements, found.launches) == (2 * 96, 2)
            assert found.method == method_of(one, promise, collective("reduce"))
            assert (found.bound != "") == (found.bound_value is not None) == (found.method == "bound")
            assert found.faults == tuple(f"rank {rank}: output: 1 byte changed" for rank in (0, 1, 3))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("inputs", ["exact", "normal", "edge"])
def test_an_empty_message(op, order, inputs):
    for dtype in ("bfloat16", "float8_e4m3fn", "uint32"):
        for reduction in ("sum", "avg", "max"):
            one = case(op, dtype, "native", reduction, inputs, numel=0)
            promise = spec(order, op)
            found = checked(one, promise, honest(one, promise))
            assert (found.faults, found.elements, found.rms_ulp_error) == ((), 0, 0.0)
            assert found.method == method_of(one, promise, collective(op))
            assert (found.bound != "") == (found.method == "bound")


def test_positive_zeros_are_demanded_where_they_are_promised():
    one = case("all_reduce", "float32", inputs="edge", world_size=3, numel=240)
    plain, promised = spec(), spec(positive_zero="inputs")
    zeros = honest(one, plain), honest(one, promised)
    assert checked(one, plain, zeros[0]).faults == checked(one, promised, zeros[1]).faults == ()
    # index 3 of 24 is -0.0 on all ranks
    assert checked(one, plain, zeros[1]).wrong == checked(one, promised, zeros[0]).wrong == 2 * 3 * 10
    mismatch = checked(one, promised, zeros[0]).first_mismatch
    assert (mismatch.index, mismatch.expected_bits, mismatch.actual_bits) == (3, "0x00000000", "0x80000000")


def test_references_tell_roots_orders_reductions_and_promises_apart():
    """Each differs from the others in bits, and none is kept for another."""
    usual, edge = case(numel=4000), case(inputs="edge", numel=4000)
    cases = [
        (usual, spec()),
        (usual, spec("from_next_rank")),
        (replace(usual, accumulator="float32"), spec()),
        *((replace(usual, reduction=reduction), spec()) for reduction in ("avg", "min", "max")),
        (replace(usual, seed=1), spec()),
        (edge, spec()),
        (edge, spec(positive_zero="inputs")),
        *((replace(case("broadcast", numel=4000), root=root), spec(op="broadcast")) for root in range(4)),
    ]
    for again in range(2):
        seen = []
        for one, promise in cases:
            found = reference_of(one, promise, collective(one.op), 0, CPU).expected
            wanted = right(one, promise, 0)
            assert torch.equal(bits_of(found), bits_of(wanted)) or bool((is_nan(found) == is_nan(wanted)).all())
            assert not any(torch.equal(bits_of(found), other) for other in seen), f"{one.id}, {again}"
            seen.append(bits_of(found))
    assert len(reference._references._on_cpu) == len(cases)


def test_an_owner_may_depend_on_where_the_buffer_lies():
    def shifted(one, rank):
        return (owner(one, rank) + one.offset + (one.placement == "in_place")) % one.world_size

    promise = replace(spec("from_next_rank"), owner=shifted)
    bits = []
    for changes in ({}, {"offset": 1}, {"offset": 2}, {"placement": "in_place"}):
        one = replace(case(numel=4000), **changes)
        found = reference_of(one, promise, collective("all_reduce"), 0, CPU).expected
        bits.append(bits_of(found))
    assert not torch.equal(bits[0], bits[1])
    assert not torch.equal(bits[1], bits[2])
    assert torch.equal(bits[1], bits[3])


def test_reduce_scatter_owners_are_asked_by_rank():
    one = case("reduce_scatter", numel=4000)
    promise = replace(spec("from_next_rank", "reduce_scatter"), owner=lambda one, rank: torch.full((1000,), rank))
    for rank in range(4):
        parts = parts_of(one, rank)
        following = fold([*parts[rank + 1 :], *parts[: rank + 1]], "native")
        assert check_rank(one, promise, rank, [following], ()).wrong == 0
        assert check_rank(one, promise, rank, [fold(parts, "native")], ()).wrong > (100 if rank < 3 else -1)
    with refused():
        check_rank(one, replace(promise, owner=None), 0, [torch.zeros(1000, dtype=torch.bfloat16)], ())


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_switchs_edge_results_pass_in_either_way(dtype):
    """min and max of the numbers or NaN; sums of float8 saturated or overflown; averages multiplied before or after."""
    kind = DTYPES[dtype]
    promise = spec("unordered")
    for reduction in ("min", "max"):
        one = case("all_reduce", dtype, "native", reduction, "edge", numel=480)
        result = right(one, promise, 0)
        parts = torch.stack([to_float64(part) for part in parts_of(one, 0) or []])
        lenient = parts.nan_to_num(torch.inf if reduction == "min" else -torch.inf, torch.inf, -torch.inf)
        best = lenient.amin(0) if reduction == "min" else lenient.amax(0)
        best = torch.where(parts.isnan().all(0), torch.nan, best)
        other = bits_of(narrow(best, kind))
        assert checked(one, promise, [result] * 4).faults == ()
        found = checked(one, promise, [other.view(kind)] * 4)
        assert (found.faults, found.max_ulp_error, found.max_absolute_error) == ((), 0, 0.0)
        assert int((is_nan(result) & ~is_nan(other.view(kind))).sum()) > 20
        assert checked(one, spec(), [other.view(kind)] * 4).wrong > 100, "a stated order has the stricter rule"
    one = case("all_reduce", dtype, "native", "avg", "normal", numel=480)
    total = fold(parts_of(one, 0) or [], "native")
    single = torch.float64 if dtype == "float64" else torch.float32
    after = average_of_sum(to_float64(total).to(single), 4, kind)
    assert checked(one, promise, [after] * 4).faults == ()


@pytest.mark.parametrize("dtype", [name for name in FLOATS if name != "float64"])
@pytest.mark.parametrize(("reduction", "divisor"), [("sum", 1), ("avg", 3)])
def test_errors_are_counted_from_the_exact_result_rounded_once(dtype, reduction, divisor):
    one = case("all_reduce", dtype, "native", reduction, "normal", world_size=3, numel=600)
    parts = torch.stack([to_float64(part) for part in parts_of(one, 0) or []])
    nearest = narrow(parts.sum(0) / divisor, DTYPES[dtype])
    result = right(one, spec(), 0)
    found = checked(one, spec(), [result] * 3)
    error = (to_float64(result) - to_float64(nearest)).abs().max()
    assert found.max_absolute_error == float(error) > 0
    assert found.max_ulp_error >= 1


def test_float64_and_wide_integers_keep_their_errors_finite():
    one = case("all_reduce", "int64", "native", "sum", "edge", numel=24)
    outputs = honest(one, spec())
    lowest = torch.full((24,), -(2**63), dtype=torch.int64)
    found = checked(one, spec(), [*outputs[:3], lowest])
    assert 2**62 < found.max_ulp_error <= 2**63 - 1
    one = case("all_reduce", "float64", "native", "sum", "normal", numel=24)
    found = checked(one, spec(), [torch.full((24,), torch.nan, dtype=torch.float64)] * 4)
    assert found.max_ulp_error == 2**63 - 1
    assert FORMATS[torch.float64].largest > found.rms_ulp_error > 1e18
