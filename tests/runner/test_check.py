"""The check: right results pass, and each way of being wrong is found, named and placed."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kernels.catalogue import SPECS
from kernels.numerics import FORMATS, ExactSum, exact_sum, fold, nan_distance, round_to
from kernels.spec import DTYPES, Case, Collective, Fold, KernelSpec, Launch
from reports.record import Check
from runner import check
from runner.check import RankCheck, check_rank, merge
from runner.inputs import make_input

ALL_REDUCE = Collective(
    op="all_reduce",
    counts=lambda numel, world_size: (numel, numel),
    outputs=lambda inputs, rank: inputs,
    bus_factor=lambda world_size: 2 * (world_size - 1) / world_size,
    same_on_all_ranks=True,
)
REDUCE_SCATTER = Collective(
    op="reduce_scatter",
    counts=lambda numel, world_size: (numel, numel // world_size),
    outputs=lambda inputs, rank: [part.chunk(len(inputs))[rank] for part in inputs],
    bus_factor=lambda world_size: (world_size - 1) / world_size,
    same_on_all_ranks=False,
)
COLLECTIVES = {"all_reduce": ALL_REDUCE, "reduce_scatter": REDUCE_SCATTER}


def owner(numel: int, world_size: int, dtype: str) -> torch.Tensor:
    return torch.arange(numel) * world_size // numel


def spec(order: Fold = "rank_order", op: str = "all_reduce") -> KernelSpec:
    return KernelSpec(
        op=op,
        algorithm="made_up",
        summary="for tests",
        dtypes=("float32", "float16", "bfloat16"),
        accumulators=("float32", "native"),
        reductions=("sum",),
        placements=("out_of_place",),
        needs_multicast=order == "unordered",
        fold=order,
        parameters=(),
        workspaces=lambda case: (),
        launch=lambda case: Launch(1, 32),
        build=lambda case: None,
        sources=(),
        owner=owner if order == "from_next_rank" else None,
    )


def case(
    dtype: str = "bfloat16",
    accumulator: str = "float32",
    inputs: str = "normal",
    world_size: int = 8,
    numel: int = 1000,
    op: str = "all_reduce",
) -> Case:
    size_bytes = numel * DTYPES[dtype].itemsize
    return Case(op, "made_up", dtype, accumulator, "sum", size_bytes, world_size, inputs=inputs)


def contributions(one: Case) -> list[torch.Tensor]:
    return [make_input(one, rank, one.numel) for rank in range(one.world_size)]


def checked(
    one: Case, order: Fold, outputs: Callable[[int], list[torch.Tensor]], inputs: list[torch.Tensor] | None = None
) -> Check:
    """The merged check of what outputs(rank) gives."""
    collective = COLLECTIVES[one.op]
    the_spec = spec(order, one.op)
    checks = [
        check_rank(one, the_spec, rank, outputs(rank), (), collective=collective, inputs=inputs)
        for rank in range(one.world_size)
    ]
    assert pickle.loads(pickle.dumps(checks)) == checks or any(math.isnan(c.max_absolute_error) for c in checks)
    return merge(one, the_spec, checks[::-1], collective=collective)


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    check._totals._results.clear()
    check._references._results.clear()


def right(one: Case, order: Fold) -> torch.Tensor:
    first = (owner(one.numel, one.world_size, one.dtype) + 1) % one.world_size if order == "from_next_rank" else None
    return fold(contributions(one), one.accumulator, first)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("accumulator", ["float32", "native"])
@pytest.mark.parametrize("inputs", ["exact", "normal"])
@pytest.mark.parametrize("order", ["rank_order", "from_next_rank", "unordered"])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_right_results_pass(dtype: str, accumulator: str, inputs: str, order: Fold, world_size: int) -> None:
    one = case(dtype, accumulator, inputs, world_size)
    result = right(one, order)
    found = checked(one, order, lambda rank: [result, result.clone()])
    method = "bitwise" if inputs == "exact" else "bound" if order == "unordered" else "bitwise_fold"
    assert found.faults == ()
    assert (found.method, found.wrong, found.elements) == (method, 0, 2 * world_size * 1000)
    assert found.ranks_equal
    assert found.launches_equal
    assert found.launches == 2
    if inputs == "exact" or world_size == 1 or (accumulator == "float32" and dtype == "float16"):
        assert found.max_ulp_error <= (0 if inputs == "exact" or world_size == 1 else 1)
    if method == "bound":
        assert found.bound
        assert found.bound_used is not None
        assert found.bound_used <= 1.0


@pytest.mark.parametrize("inputs", ["exact", "normal"])
@pytest.mark.parametrize("order", ["rank_order", "from_next_rank", "unordered"])
@pytest.mark.parametrize("accumulator", ["float32", "native"])
def test_a_dropped_rank_is_caught(inputs: str, order: Fold, accumulator: str) -> None:
    one = case(accumulator=accumulator, inputs=inputs)
    for dropped in (0, 3, 7):
        parts = [part for rank, part in enumerate(contributions(one)) if rank != dropped]
        result = fold(parts, accumulator)
        found = checked(one, order, lambda rank, result=result: [result])  # type: ignore[misc]
        assert found.wrong > 0.5 * found.elements
        assert found.first_mismatch is not None
        assert found.first_mismatch.rank == 0
        assert "elements are wrong" in found.faults[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("order", ["rank_order", "from_next_rank", "unordered"])
def test_a_native_accumulator_is_caught_where_float32_is_asked_for(dtype: str, order: Fold) -> None:
    one = case(dtype)
    wrong = right(replace(one, accumulator="native"), order)
    found = checked(one, order, lambda rank: [wrong])
    assert found.wrong > 0.05 * found.elements
    assert found.max_ulp_error >= 2
    if found.bound_used is not None:
        assert found.bound_used > 1.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_float32_accumulator_is_caught_where_native_is_asked_for(dtype: str) -> None:
    one = case(dtype, "native")
    better = right(replace(one, accumulator="float32"), "rank_order")
    assert checked(one, "rank_order", lambda rank: [better]).wrong > 0
    # a switch may well be better than it was asked to be
    assert checked(one, "unordered", lambda rank: [better]).wrong == 0


def test_the_wrong_order_is_caught() -> None:
    one = case(accumulator="native")
    for order, other in (("rank_order", "from_next_rank"), ("from_next_rank", "rank_order")):
        result = right(one, other)  # type: ignore[arg-type]
        assert checked(one, order, lambda rank, result=result: [result]).wrong > 100  # type: ignore[arg-type,misc]


def test_one_wrong_element_is_placed() -> None:
    one = case("float32", inputs="exact")
    result = right(one, "rank_order")
    broken = result.clone()
    broken[417] += 2

    def outputs(rank: int) -> list[torch.Tensor]:
        return [result, broken if rank == 5 else result]

    found = checked(one, "rank_order", outputs)
    assert found.wrong == 1
    assert found.first_mismatch is not None
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


def test_errors_are_counted_from_the_exact_sum_rounded_once() -> None:
    one = case("float16", "native", numel=64)
    result = right(one, "rank_order")
    exact = torch.stack([part.double() for part in contributions(one)]).sum(0)  # float16 sums are exact in float64
    nearest = round_to(exact, torch.float16)
    found = checked(one, "rank_order", lambda rank: [result])
    error = (result.double() - nearest.double()).abs().max()
    assert found.max_absolute_error == float(error) > 0
    assert found.wrong == 0


def test_ranks_that_differ() -> None:
    one = case()
    low = round_to(torch.stack([part.double() for part in contributions(one)]).sum(0), torch.bfloat16)
    step = torch.nextafter(low, torch.full_like(low, math.inf))
    limit = check._make_reference(one, spec("unordered"), 0, contributions(one), None).limit
    assert limit is not None
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


def test_guard_faults_name_the_rank() -> None:
    one = case()
    result = right(one, "rank_order")
    checks = [
        check_rank(one, spec(), rank, [result], ["output: 2 bytes behind it"] * (rank == 1), collective=ALL_REDUCE)
        for rank in range(8)
    ]
    assert merge(one, spec(), checks, collective=ALL_REDUCE).faults == ("rank 1: output: 2 bytes behind it",)


def special(dtype: torch.dtype) -> list[torch.Tensor]:
    """Two ranks' payloads: -0.0, NaN, infinities, subnormals, overflow, cancellation."""
    tiny, large = FORMATS[dtype].smallest_subnormal, FORMATS[dtype].largest
    left = [-0.0, -0.0, 0.0, math.nan, math.inf, math.inf, tiny, -tiny, large, large, 1.5]
    right = [-0.0, 0.0, -0.0, 1.0, 1.0, -math.inf, tiny, tiny, large, -large, -1.5]
    return [torch.tensor(left, dtype=dtype), torch.tensor(right, dtype=dtype)]


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("accumulator", ["float32", "native"])
def test_special_payloads(dtype: str, accumulator: str) -> None:
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
        found = checked(one, "rank_order", lambda rank, broken=broken: [broken], parts)  # type: ignore[misc]
        assert found.wrong == 2
        assert found.first_mismatch is not None
        assert found.first_mismatch.index == index
    assert found.max_absolute_error == math.inf  # 1.0 where infinity must be


def test_special_payloads_without_an_order() -> None:
    parts = special(torch.float16)
    one = case("float16", world_size=2, numel=len(parts[0]))
    values = [0.0, 0.0, 0.0, math.nan, math.inf, math.nan, 2**-23, 0.0, math.inf, 0.0, 0.0]  # a switch gives no -0
    good = torch.tensor(values, dtype=torch.float16)
    found = checked(one, "unordered", lambda rank: [good], parts)
    assert found.faults == ()
    good[3] = 1.0
    found = checked(one, "unordered", lambda rank: [good], parts)
    assert found.wrong == 2
    assert found.max_ulp_error == nan_distance(torch.float16)
    assert math.isnan(found.max_absolute_error)
    assert found.first_mismatch is not None
    assert math.isnan(found.first_mismatch.expected)


def test_ops_whose_ranks_get_different_outputs() -> None:
    one = case("float32", inputs="exact", world_size=4, numel=64, op="reduce_scatter")
    total = torch.stack([part.double() for part in contributions(one)]).sum(0).to(torch.float32)
    found = checked(one, "rank_order", lambda rank: [total.chunk(4)[rank]])
    assert found.faults == ()
    assert (found.elements, found.ranks_equal_promised) == (64, False)
    swapped = checked(one, "rank_order", lambda rank: [total.chunk(4)[rank ^ 1]])
    assert swapped.wrong > 32


def test_the_reference_is_made_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted_sum(parts: list[torch.Tensor]) -> ExactSum:
        calls.append("sum")
        return exact_sum(parts)

    def counted_fold(parts: list[torch.Tensor], accumulator: str, first: torch.Tensor | None) -> torch.Tensor:
        calls.append("fold")
        return fold(parts, accumulator, first)

    monkeypatch.setattr(check, "exact_sum", counted_sum)
    monkeypatch.setattr(check, "fold", counted_fold)
    one = case()
    result = right(one, "rank_order")
    found: list[RankCheck] = []

    def run(order: Fold, rank: int) -> None:
        found.append(check_rank(one, spec(order), rank, [result], (), collective=ALL_REDUCE))

    orders: tuple[Fold, ...] = ("rank_order", "unordered")
    for order in orders:
        threads = [threading.Thread(target=run, args=(order, rank)) for rank in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 16
    assert all(one_rank.wrong == 0 for one_rank in found)
    assert sorted(calls) == ["fold", "sum"]


def test_references_are_kept_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(numel: int) -> None:
        one = case(numel=numel)
        check_rank(one, spec(), 0, [right(one, "rank_order")], (), collective=ALL_REDUCE)

    for numel in range(100, 110):
        look(numel)
    assert len(check._references._results) == check.KEPT_REFERENCES
    monkeypatch.setattr(check, "KEPT_ELEMENTS", 250)
    look(110)
    assert len(check._references._results) == 2
    look(1000)
    assert len(check._references._results) == len(check._totals._results) == 1


@pytest.mark.parametrize("kernel", SPECS, ids=lambda one: one.name)
@pytest.mark.parametrize("inputs", ["exact", "normal"])
@pytest.mark.parametrize("numel", [1, 7, 1000])
def test_every_spec_of_the_catalogue_can_be_checked(kernel: KernelSpec, inputs: str, numel: int) -> None:
    for dtype in kernel.dtypes:
        for accumulator in kernel.accumulators:
            size_bytes = numel * DTYPES[dtype].itemsize
            one = Case(kernel.op, kernel.algorithm, dtype, accumulator, "sum", size_bytes, 3, inputs=inputs)
            parts = contributions(one)
            first = (kernel.owner(numel, 3, dtype) + 1) % 3 if kernel.owner and "next" in kernel.fold else None
            result = fold(parts, accumulator, first)
            checks = [check_rank(one, kernel, rank, [result], ()) for rank in range(3)]
            assert merge(one, kernel, checks).faults == ()
            dropped = fold(parts[:2], accumulator)
            wrong = check_rank(one, kernel, 0, [dropped], ()).wrong
            assert wrong == numel if inputs == "exact" else wrong > 0.9 * numel  # tiny numbers drop out unseen


def test_outputs_of_a_wrong_shape_are_our_own_error() -> None:
    one = case()
    with pytest.raises(AssertionError, match="rank 3: output is"):
        check_rank(one, spec(), 3, [torch.zeros(7, dtype=torch.bfloat16)], (), collective=ALL_REDUCE)


def test_a_reduction_that_the_check_does_not_know() -> None:
    one = replace(case(), reduction="max")
    with pytest.raises(ValueError, match="knows only sum"):
        check_rank(one, spec(), 0, [torch.zeros(1000, dtype=torch.bfloat16)], (), collective=ALL_REDUCE)
