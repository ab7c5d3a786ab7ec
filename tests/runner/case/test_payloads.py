"""-0.0, NaN, infinities, subnormals and the largest finite values, through the real kernels in the simulator."""

import pytest
import torch

from cases.case import Case
from cases.dtypes import DTYPES
from kernels import catalogue
from kernels.compile import executable
from runner.case import inputs, program
from runner.case.check import merge
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S

WORLD_SIZE = 4
NUMEL = 1999
HALVES = ("float16", "bfloat16")


def special_input(case, rank, numel, device=None):
    """Every element drawn from the values that arithmetic treats in a special way."""
    dtype = DTYPES[case.dtype]
    limits = torch.finfo(dtype)
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, limits.max, -limits.max, limits.tiny]
    values += [-limits.tiny, limits.smallest_normal / 2, limits.smallest_normal * limits.eps, 1 + limits.eps]
    generator = torch.Generator().manual_seed(case.seed * 100 + rank)
    # Infinities and NaN a little rarer than the others: sums of four must come out finite, too.
    weights = torch.tensor([0.3 if value != value or abs(value) == float("inf") else 1.0 for value in values])
    picks = torch.multinomial(weights, numel, replacement=True, generator=generator)
    return torch.tensor(values, dtype=torch.float64).to(dtype)[picks]


@pytest.mark.parametrize("multimem", ["exact", "stated"])
@pytest.mark.parametrize("types", ["float32 float32", *(f"{a} {b}" for a in HALVES for b in ("float32", "native"))])
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "multimem_one_shot", "multimem_two_shot"])
def test_special_values(algorithm, types, multimem, compile_cache, monkeypatch):
    dtype, accumulator = types.split()
    spec = catalogue.find(f"all_reduce/{algorithm}")
    if not spec.needs_multicast and multimem == "stated":
        pytest.skip("the model of the switch is nothing to a peer-to-peer kernel")
    monkeypatch.setattr(program, "make_input", special_input)
    monkeypatch.setattr(inputs, "make_input", special_input)
    size_bytes = NUMEL * DTYPES[dtype].itemsize
    case = Case("all_reduce", algorithm, dtype, accumulator, "sum", size_bytes, WORLD_SIZE, seed=20261121)
    compiled = executable(spec, case, "sm_90a", compile_cache)
    world = ThreadWorld(WORLD_SIZE, SimulatorOptions(heap_bytes=1 << 22, multimem=multimem))
    outcomes = world.run(run_case, Plan(case, spec, compiled), NEVER_S)
    found = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check is not None])
    assert found.first_mismatch is None
    assert found.faults == ()
    assert found.method == ("bound" if spec.needs_multicast else "bitwise_fold")
