"""Our own kernels under the limits of each GPU: they pass, and where they would not fit they are refused before."""

from dataclasses import replace

import pytest

from cases import ops
from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from kernels.spec import refuses
from runner.case.check import merge
from runner.case.program import Plan, run_case
from runner.gpu.names import gpu_names
from runner.gpu.reading import gpu_type
from runner.request.gpu_types import arch_of
from runner.world.threads import ThreadWorld
from simulator.options import traits_of
from simulator.world import SimulatorOptions

RANKS, SIZE_BYTES = 2, 4096


def case_of(spec, size_bytes=SIZE_BYTES, ranks=RANKS):
    types = (spec.dtypes[0], spec.accumulators[0], spec.reductions[0])
    return Case(spec.op, spec.algorithm, *types, 4 if spec.op == "barrier" else size_bytes, ranks)


@pytest.fixture(scope="module", params=[name for name in gpu_names() if name not in ("a100", "gb200_nvl72")])
def limited_world(request):
    gpu = gpu_type(request.param).limits
    world = ThreadWorld(RANKS, SimulatorOptions(arch=arch_of(gpu), gpu=gpu, heap_bytes=1 << 24))
    yield gpu, world
    world.close()


@pytest.mark.slow
@pytest.mark.parametrize("spec", catalogue.SPECS, ids=lambda spec: spec.name)
def test_every_kernel_passes_on_every_gpu(limited_world, spec, compile_cache):
    gpu, world = limited_world
    case = case_of(spec)
    plan = Plan(case, spec, executable(spec, case, arch_of(gpu), compile_cache), launches=1, between=0)
    outcomes = world.run(run_case, plan, 120)
    check = merge(case, spec, [outcome.check for outcome in outcomes if outcome.check])
    assert (check.wrong, check.guard_faults) == (0, ())
    found = world.counters()["residency"][spec.name]
    assert found["blocks_at_once"] >= spec.launch(case).blocks


def test_no_kernel_is_built_for_an_a100():
    traits = traits_of(RANKS, "sm_80", 1 << 24, True, gpu_type("a100").limits)
    for spec in catalogue.SPECS:
        reason = refuses(spec, ops.collective(spec.op), case_of(spec), traits)
        assert reason.key == "fabric.arch"


@pytest.mark.parametrize("spec", catalogue.SPECS, ids=lambda spec: spec.name)
def test_a_grid_of_more_blocks_than_multiprocessors_is_refused(spec):
    """As on a GPU with so few of them."""
    case = case_of(spec, 1 << 26 if spec.max_size_bytes is None else spec.max_size_bytes, 8)
    blocks = spec.launch(case).blocks
    few = replace(gpu_type("h100").limits, multiprocessors=blocks)
    assert refuses(spec, ops.collective(spec.op), case, traits_of(8, "sm_90a", 1 << 32, True, few)) is None
    if blocks > 1:
        fewer = replace(few, multiprocessors=blocks - 1)
        reason = refuses(spec, ops.collective(spec.op), case, traits_of(8, "sm_90a", 1 << 32, True, fewer))
        assert f"this GPU has {blocks - 1} multiprocessors" in str(reason)
