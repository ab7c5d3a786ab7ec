"""What cases need of the symmetric heap, counted by the programs' own allocations."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from cases.case import Case
from kernels.baselines import find_baseline
from kernels.catalogue import NVSHMEM_SPECS, SPECS, find
from memory.fabric import HeapFull
from memory.placing import NVSHMEM, SIMULATED
from memory.pool import SymmetricPool
from runner.case import memory_needed
from runner.case.allocation import allocate_arenas
from runner.case.binding import bind
from runner.case.memory_needed import heap_bytes_needed, heap_bytes_to_measure, largest_fitting, step_bytes
from runner.command.plan import prepare
from runner.request.compose import compose_jobs, hydra_over
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.memory.nvshmem_stand_in import StandInWorld
from tests.patience import NEVER_S
from tests.runner.case.not_compiled import NOT_COMPILED

KERNEL_PATIENCE_S = 10.0


def case_of(spec, size_bytes=4096, world_size=3, **fields):
    """A case of a kernel: the size as given, or the smallest that its op takes."""
    step = step_bytes(spec.op, spec.dtypes[0], world_size)
    size_bytes = max(size_bytes // step, 1) * step
    types = (spec.dtypes[0], spec.accumulators[0], spec.reductions[0])
    return dataclasses.replace(Case(spec.op, spec.algorithm, *types, size_bytes, world_size), **fields)


ODD = ({}, {"offset": 3}, {"size_bytes": 0}, {"world_size": 8, "size_bytes": 8 * 8 * 4097})


def check_need_in_the_simulator(spec, fields):
    """Check that the program binds in a heap of what is needed, and in none of a granule less: the torch-free part of
    it allocates everything."""
    for placement in spec.placements:
        case = case_of(spec, placement=placement, **fields)

        def program(fabric, bound):
            with SymmetricPool(fabric) as pool:
                bind(fabric, pool, spec, [bound], [NOT_COMPILED], KERNEL_PATIENCE_S)

        needed = heap_bytes_needed(case, spec)
        ThreadWorld(case.world_size, SimulatorOptions(heap_bytes=needed)).run(program, case, NEVER_S)
        with pytest.raises(WorldFailure):
            ThreadWorld(case.world_size, SimulatorOptions(heap_bytes=needed - 256)).run(program, case, NEVER_S)


@pytest.mark.parametrize("number", range(len(SPECS)), ids=lambda number: SPECS[number].name)
def test_a_simulated_heap_of_the_need_is_enough_and_a_granule_less_is_not(number):
    check_need_in_the_simulator(SPECS[number], ODD[number % len(ODD)])


def test_the_need_of_every_kernel_on_nvshmem_is_known_without_its_bitcode():
    """Whether a case fits is said before anything is compiled, also where nothing can be."""
    for number, spec in enumerate(NVSHMEM_SPECS):
        check_need_in_the_simulator(spec, ODD[number % len(ODD)])


BEYOND_LL = (find("all_reduce/ll").max_size_bytes or 0) + 8
TIMED = ("one_shot", "ll", "nccl", "two_shot", "torch/one_shot", "nvshmem")


@pytest.mark.parametrize("fields", [{}, {"offset": 5}, {"size_bytes": BEYOND_LL}], ids=["plain", "offset", "too large"])
def test_nvshmems_heap_of_the_need_holds_all_that_is_timed_together(fields):
    """The slots themselves, on the stand-in for NVSHMEM; "ll" takes none of a size that it refuses."""
    cases = [
        dataclasses.replace(case_of(find("all_reduce/one_shot"), world_size=1), algorithm=name, **fields)
        for name in TIMED
    ]

    def open_all(heap_bytes):
        fabric: Any = StandInWorld(1, heap_bytes=heap_bytes).fabric(0)
        with SymmetricPool(fabric) as pool:
            for case in cases:
                if case.algorithm == "nvshmem":
                    allocate_arenas(pool, None, case, 1)
                elif find_baseline(case.algorithm) is None and not ("size_bytes" in fields and case.algorithm == "ll"):
                    allocate_arenas(pool, find(case.name), case, 1)

    needed = heap_bytes_to_measure(cases)
    open_all(needed)
    with pytest.raises(HeapFull):
        open_all(needed - 512)


@pytest.mark.parametrize(("name", "needed"), [("nccl", 0), ("torch/multimem", 0), ("nvshmem", 2 * 1024)])
def test_a_baseline_needs_the_heap_only_where_it_works_there(name, needed):
    case = case_of(find("all_reduce/one_shot"), size_bytes=1000, world_size=2, dtype="float32")
    baseline = find_baseline(name)
    assert heap_bytes_needed(dataclasses.replace(case, algorithm=name), baseline, NVSHMEM) == needed


@pytest.mark.parametrize("rules", [SIMULATED, NVSHMEM], ids=["simulator", "nvshmem"])
def test_the_largest_size_fits_and_the_next_does_not(rules):
    for name in ("all_reduce/two_shot", "all_gather/push", "all_to_all/pull"):
        spec = find(name)
        case = case_of(spec, world_size=5)
        most = largest_fitting(case, spec, 1 << 22, rules)
        step = step_bytes(case.op, case.dtype, 5)
        assert most % step == 0
        fitting, beyond = (dataclasses.replace(case, size_bytes=size) for size in (most, most + step))
        assert heap_bytes_needed(fitting, spec, rules) <= 1 << 22 < heap_bytes_needed(beyond, spec, rules)


@pytest.mark.slow
def test_a_size_beyond_the_heap_is_refused_without_torch():
    """Importing it takes longer than all the rest of the refusal."""
    program = """
import sys
from runner.__main__ import main
print(main(["sizes=64G", "track=none"]), *sorted({"torch", "numpy", "cutlass", "mlflow"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "beyond the heap" in done.stderr
    assert done.stdout.strip() == "2"


@pytest.mark.slow
def test_jobs_that_differ_in_data_only_share_what_was_counted():
    counts = []
    for lines in (["seed=1"], ["seed=range(1,20)", "inputs=normal,edge"]):
        with hydra_over():
            jobs = compose_jobs(["sizes=[1K,4K]", "fabric=simulator", "track=none", *lines], True)
        memory_needed._heap_bytes_needed.cache_clear()
        command = prepare((), jobs, memory=lambda: 64 << 30)
        counts.append(memory_needed._heap_bytes_needed.cache_info().misses)
        assert len(command.jobs) == len(jobs)
    assert counts == [18, 18]  # nine algorithms of two sizes
