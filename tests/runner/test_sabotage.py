"""Kernels with a defect must be caught, correct ones never accused: the simulator, the check and both together.

The programs here are less kind than the runner's: no host barrier between launches, another input for each. That is
legal, because kernels begin and end with a barrier over ranks; it is what shows when they don't.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from kernels import catalogue, numerics
from kernels.compile import executable
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable, Fabric
from memory.pool import SymmetricPool
from runner import program
from runner.check import merge
from runner.inputs import make_input
from runner.program import Plan, run_case
from runner.threads import ThreadWorld
from runner.world import WorldFailure
from simulator.world import SimulatorOptions

SEEDS = range(20)
ALGORITHMS = ("one_shot", "two_shot", "multimem_one_shot", "multimem_two_shot")
HEAP_BYTES = 1 << 22
LAUNCHES = 3


@dataclass(frozen=True)
class Chain:
    """A case launched LAUNCHES times in a row; compiled for it."""

    case: Case
    spec: KernelSpec
    executable: Executable


def run_chain(fabric: Fabric, chain: Chain) -> list[int]:
    """Launches with no host barrier between them, each on an input of its own; wrong elements of each output."""
    wrong = []
    with SymmetricPool(fabric) as pool:
        binding = program.bind(fabric, pool, Plan(chain.case, chain.executable), chain.spec)
        fabric.synchronize()
        fabric.barrier()
        launch = chain.spec.launch(chain.case)
        for index in range(LAUNCHES):
            case = replace(chain.case, seed=chain.case.seed + index)
            data = make_input(case, fabric.rank, case.numel)
            binding.input.write(fabric, data)
            fabric.launch(chain.executable, launch.grid, launch.block, binding.arguments)
            fabric.synchronize()
            output = binding.output.inspect(fabric)
            parts = [make_input(case, rank, case.numel) for rank in range(case.world_size)]
            expected = numerics.fold(parts, case.accumulator)
            wrong.append(int((output.view(data.dtype) != expected).sum()))
    return wrong


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[KernelSpec, Case], Executable]:
    cache_dir = tmp_path_factory.mktemp("compiled")
    return lambda spec, case: executable(spec, case, "sm_90a", cache_dir)


def case_of(algorithm: str, **changes: object) -> Case:
    values = Case("all_reduce", algorithm, "bfloat16", "float32", "sum", 40_010, 4, inputs="exact")
    return replace(values, **changes)  # type: ignore[arg-type]


def chain_result(compiled: Callable[[KernelSpec, Case], Executable], spec: KernelSpec, seed: int) -> str:
    """ "right", or what was seen."""
    case = case_of(spec.algorithm)
    world = ThreadWorld(4, SimulatorOptions(heap_bytes=HEAP_BYTES, schedule="random", seed=seed))
    try:
        wrong = world.run(run_chain, Chain(case, spec, compiled(spec, case)), 60)
    except WorldFailure as failure:
        return failure.status
    return "right" if not any(map(any, wrong)) else "wrong"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_correct_kernels_give_the_same_result_for_every_seed(
    algorithm: str, compiled: Callable[[KernelSpec, Case], Executable]
) -> None:
    spec = catalogue.find(f"all_reduce/{algorithm}")
    assert {chain_result(compiled, spec, seed) for seed in SEEDS} == {"right"}


def test_a_pushed_two_shot_gives_the_same_result_for_every_seed(
    sabotaged: dict[str, KernelSpec], compiled: Callable[[KernelSpec, Case], Executable]
) -> None:
    assert {chain_result(compiled, sabotaged["two_shot_pushed"], seed) for seed in SEEDS} == {"right"}


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
    spec = sabotaged["two_shot_pushed"]
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
        "two_shot_no_entry_barrier",
        "two_shot_no_exit_barrier",
        "two_shot_pushed_no_middle_barrier",
        "two_shot_pushed_no_exit_barrier",
        "multimem_one_shot_no_entry_barrier",
        "multimem_one_shot_no_exit_barrier",
        "multimem_two_shot_no_entry_barrier",
        "multimem_two_shot_no_exit_barrier",
    ],
)
def test_a_missing_barrier_is_caught_by_some_seed(
    defect: str, sabotaged: dict[str, KernelSpec], compiled: Callable[[KernelSpec, Case], Executable]
) -> None:
    seen = [chain_result(compiled, sabotaged[defect], seed) for seed in SEEDS]
    assert set(seen) - {"right"}, f"{defect} passed with every seed"


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
    spec = sabotaged[defect]
    case = case_of(spec.algorithm, inputs=inputs, world_size=8)
    monkeypatch.setattr(catalogue, "find", lambda name: spec)
    world = ThreadWorld(8, SimulatorOptions(heap_bytes=HEAP_BYTES, multimem=multimem))
    outcomes = world.run(run_case, Plan(case, compiled(spec, case)), 60)
    check = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check is not None])
    assert check.wrong > 100
    assert check.first_mismatch is not None
