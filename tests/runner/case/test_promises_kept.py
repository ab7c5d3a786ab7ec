"""Each of the project's kernels keeps each of its promises, in two random orders of four ranks."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import SPECS
from kernels.compile import executable
from kernels.spec import cases_in_turn, refuses_stress
from runner.case.check import merge
from runner.case.stress import StressPlan, run_stressed, unnamed_death
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_kernel_keeps_its_promises(spec, tmp_path):
    op = collective(spec.op)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    types = (dtype, "native", "sum") if op.reduces else (dtype, "none", "none")
    plain = Case(spec.op, spec.algorithm, *types, 4 if spec.op == "barrier" else 3072, 4, spec.placements[0])
    assert spec.promises
    for stress in sorted(spec.promises):
        case = replace(plain, stress=stress)
        assert refuses_stress(spec, op, case) is None
        cases = cases_in_turn(spec, op, case)
        plan = StressPlan(cases, spec, tuple(executable(spec, one, "sm_90a", tmp_path) for one in cases))
        orders = [("fair", 0)] if stress == "dead_rank" else [("random", 0), ("random", 1)]
        for schedule, seed in orders:
            world = ThreadWorld(4, SimulatorOptions(heap_bytes=1 << 24, schedule=schedule, seed=seed))
            outcomes = world.run(run_stressed, plan, 120)
            check = merge(case, spec, [one.check for one in outcomes if one.check is not None])
            assert check.faults == (), (stress, seed)
            assert stress != "dead_rank" or unnamed_death(outcomes) == ""
            world.close()
