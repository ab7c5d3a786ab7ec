"""Kernels with a defect must be caught, correct ones never accused: the simulator, the check and both together.

tests/kernels/test_missing_barriers.py has launches of its own for every kernel; here the runner's program does it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernels import catalogue
from kernels.compile import executable
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable
from runner.check import merge
from runner.program import Plan, run_case
from runner.threads import ThreadWorld
from runner.world import WorldFailure
from simulator.world import SimulatorOptions

SEEDS = range(20)
HEAP_BYTES = 1 << 22


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[KernelSpec, Case], Executable]:
    cache_dir = tmp_path_factory.mktemp("compiled")
    return lambda spec, case: executable(spec, case, "sm_90a", cache_dir)


def case_of(algorithm: str, **changes: object) -> Case:
    values = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", 40_010, 4, inputs="exact")
    return replace(values, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize(("dtype", "placement"), [("float32", "out_of_place"), ("bfloat16", "in_place")])
def test_a_pushed_two_shot_folds_as_a_pulled_one(
    dtype: str,
    placement: str,
    world_size: int,
    sabotaged: dict[str, KernelSpec],
    compiled: Callable[[KernelSpec, Case], Executable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Normal inputs, to the bit, of sizes with and without whole vectors, slices and blocks.

    Every addition rounds: sums of a few bfloat16 in float32 are mostly exact, and would not tell orders apart.
    """
    spec = sabotaged["all_reduce/two_shot_pushed"]
    monkeypatch.setattr(catalogue, "find", lambda name: spec)
    itemsize = 4 if dtype == "float32" else 2
    for numel in (1, 15, 500, 2049, 35_000):
        changes = {"dtype": dtype, "accumulator": "native", "placement": placement, "inputs": "normal"}
        case = case_of(spec.algorithm, world_size=world_size, size_bytes=numel * itemsize, **changes)
        world = ThreadWorld(world_size, SimulatorOptions(heap_bytes=HEAP_BYTES, schedule="random", seed=numel))
        outcomes = world.run(run_case, Plan(case, compiled(spec, case), launches=3), 60)
        check = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check is not None])
        assert (check.faults, check.method) == ((), "bitwise_fold")


@pytest.mark.parametrize(
    "defect",
    [
        "one_shot_no_entry_barrier",
        "one_shot_no_exit_barrier",
        "two_shot_pushed_no_middle_barrier",
        "lamport_one_bank",
        "ll_one_bank",
    ],
)
def test_what_an_earlier_launch_has_left_is_seen(
    defect: str,
    sabotaged: dict[str, KernelSpec],
    compiled: Callable[[KernelSpec, Case], Executable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the product's own check, in some order: between two checked launches others run on other data."""
    spec = sabotaged[f"all_reduce/{defect}"]
    monkeypatch.setattr(catalogue, "find", lambda name: spec)
    case = case_of(spec.algorithm, size_bytes=40_010)
    for seed in SEEDS:
        world = ThreadWorld(4, SimulatorOptions(heap_bytes=HEAP_BYTES, schedule="random", seed=seed))
        try:
            outcomes = world.run(run_case, Plan(case, compiled(spec, case)), 60)
        except WorldFailure:
            return
        if merge(case, spec, [outcome.check for outcome in outcomes if outcome.check is not None]).wrong:
            return
    pytest.fail(f"{defect} passed by every seed")


@pytest.mark.parametrize(
    ("defect", "inputs", "multimem"),
    [
        ("one_shot_drops_last_rank", "normal", "exact"),
        ("one_shot_drops_last_rank", "exact", "exact"),
        ("one_shot_accumulates_natively", "normal", "exact"),
        ("multimem_one_shot_no_wide_accumulator", "normal", "stated"),
    ],
)
def test_a_wrong_sum_is_caught_by_the_check(
    defect: str,
    inputs: str,
    multimem: str,
    sabotaged: dict[str, KernelSpec],
    compiled: Callable[[KernelSpec, Case], Executable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = sabotaged[f"all_reduce/{defect}"]
    case = case_of(spec.algorithm, inputs=inputs, world_size=8)
    monkeypatch.setattr(catalogue, "find", lambda name: spec)
    world = ThreadWorld(8, SimulatorOptions(heap_bytes=HEAP_BYTES, multimem=multimem))
    outcomes = world.run(run_case, Plan(case, compiled(spec, case)), 60)
    check = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check is not None])
    assert check.wrong > 100
    assert check.first_mismatch is not None
