"""Kernels with a defect must be caught by what runs and checks them, right ones never accused.

Missing barriers are caught with less kindness than the runner has: tests/kernels/test_missing_barriers.py.
"""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.dtypes import ITEMSIZES
from kernels.compile import executable
from tests.runner.judged import judged


@pytest.fixture
def checked(compile_cache, sabotaged):
    """checked(name, case, launches, **options of the simulator): what the runner finds of that kernel."""

    def check(name, case, launches=2, **options):
        spec = sabotaged[name]
        case = replace(case, op=spec.op, algorithm=spec.algorithm)
        return judged(case, spec, executable(spec, case, "sm_90a", compile_cache), launches, **options)

    return check


def case_of(**changes):
    values = Case("all_reduce", "", "bfloat16", "float32", "sum", 40_010, 4, inputs="exact")
    return replace(values, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2, 3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("dtype", "placement"), [("float32", "out_of_place"), ("bfloat16", "in_place")])
def test_a_pushed_two_shot_folds_as_a_pulled_one(checked, dtype, placement, world_size):
    """Normal inputs, to the bit, of sizes with and without whole vectors, slices and blocks, from any element on.

    Every addition rounds: sums of a few bfloat16 in float32 are mostly exact, and would not tell orders apart.
    """
    changes = {"dtype": dtype, "accumulator": "native", "placement": placement, "inputs": "normal"}
    for offset, numel in enumerate((1, 15, 500, 2049, 9_001)):
        case = case_of(world_size=world_size, size_bytes=numel * ITEMSIZES[dtype], offset=offset, **changes)
        check = checked("all_reduce/two_shot_pushed", case, launches=3, schedule="random", seed=numel)
        assert (check.faults, check.method) == ((), "bitwise_fold")


@pytest.mark.parametrize(
    ("name", "inputs", "multimem"),
    [
        ("all_reduce/one_shot_drops_last_rank", "normal", "exact"),
        ("all_reduce/one_shot_drops_last_rank", "exact", "exact"),
        ("reduce_scatter/pull_drops_last_rank", "exact", "exact"),
        ("reduce/two_shot_drops_last_rank", "normal", "exact"),
        ("all_reduce/one_shot_accumulates_natively", "normal", "exact"),
        ("all_reduce/multimem_one_shot_no_wide_accumulator", "normal", "stated"),
    ],
)
def test_a_wrong_sum_is_caught_by_the_check(checked, name, inputs, multimem):
    check = checked(name, case_of(inputs=inputs, world_size=8, size_bytes=40_000), multimem=multimem)
    assert check.wrong > 100
    assert check.first_mismatch is not None


@pytest.mark.parametrize(
    "name", ["all_gather/push_short", "broadcast/two_shot_short", "all_to_all/pull_short", "send_recv/push_short"]
)
def test_an_element_that_was_left_out_is_caught(checked, name):
    moved = {"accumulator": "none", "reduction": "none", "inputs": "normal", "size_bytes": 40_000}
    check = checked(name, case_of(**moved))
    assert check.wrong >= 4
    assert check.first_mismatch is not None


@pytest.mark.slow
def test_a_wrong_root_is_caught(checked):
    moved = case_of(accumulator="none", reduction="none", inputs="normal", root=2)
    assert checked("broadcast/pull_of_rank_0", moved).wrong > 100
    everywhere = checked("reduce/pull_for_all", case_of(root=2))
    assert everywhere.wrong == 0
    assert {text.split(":")[0] for text in everywhere.guard_faults} == {"rank 0", "rank 1", "rank 3"}
