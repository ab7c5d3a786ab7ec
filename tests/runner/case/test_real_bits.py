"""Bit for bit: what a kernel gives on GPUs is what the simulator says its PTX gives.

For every peer-to-peer kernel of the catalogue: of all_reduce with each dtype of 16 and 32 bits and each accumulator, of
the other ops with bfloat16; all cells are for `python -m tests.matrix --gpus`. Results of multimem, whose order of
adding is the switch's own, are not comparable so.

GPUs need seconds for all of it, compiling and simulating minutes on one core: so processes do that ahead, a case each.
"""

import hashlib
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

import pytest
import torch

from cases import ops
from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from kernels.spec import KernelSpec, refuses
from memory.fabric import Traits
from memory.placing import NVSHMEM, SIMULATED
from memory.pool import SymmetricPool
from runner.case.binding import bind
from runner.case.inputs import make_input
from runner.case.memory_needed import heap_bytes_needed
from runner.case.program import Plan
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.conftest import run_ranks
from tests.memory.outcomes import good
from tests.patience import NEVER_S
from tests.runner.case.not_compiled import NOT_COMPILED

LAUNCHES = 2
NUMELS = (1, 1001, (1 << 20) + 3)
"""The last is above the size up to which two_shot pulls, for every dtype."""

LARGEST_BYTES = 64 << 10

DTYPES = ("float32", "float16", "bfloat16")

MOST_PROCESSES = 16
"""Processes that compile and simulate ahead, of as many cores; each imports torch and the compiler."""


def cases(spec, world_size):
    """One dtype and accumulator each, at the largest size; sizes() gives the others."""
    op = ops.collective(spec.op)
    dtypes = DTYPES if spec.op == "all_reduce" else DTYPES[2:] if DTYPES[2] in spec.dtypes else spec.dtypes[:1]
    for dtype in dtypes:
        for accumulator in ("float32", "native") if op.reduces else ("none",):
            reduction = "sum" if op.reduces else "none"
            yield Case(spec.op, spec.algorithm, dtype, accumulator, reduction, LARGEST_BYTES, world_size)


def sizes(case):
    """The case at every size that the kernel takes, out of place and in place where it can."""
    spec, op = catalogue.find(case.name), ops.collective(case.op)
    traits = Traits("any", "sm_90a", case.world_size, 1 << 40, multicast=False)
    step = case.world_size if op.chunked else 1
    sized = [replace(case, size_bytes=numel // step * step * case.itemsize) for numel in NUMELS] + [case]
    placed = [replace(one, placement=where) for one in sized for where in spec.placements]
    return [one for one in placed if refuses(spec, op, one, traits) is None]


@cache
def heap_bytes(world_size):
    """The heap of a world that runs any of its cases, simulated or on GPUs: one for all, so that worlds are kept."""
    return max(
        heap_bytes_needed(one, catalogue.find(one.name), rules)
        for case in CASES
        if case.world_size == world_size
        for one in sizes(case)
        for rules in (SIMULATED, NVSHMEM)
    )


def outputs(fabric, plans):
    """The output's bytes after each launch of each plan, on this rank."""
    found = []
    for plan in plans:
        with SymmetricPool(fabric) as pool:
            assert isinstance(plan.spec, KernelSpec)
            kernel = bind(fabric, pool, plan.spec, [plan.case], [plan.executable], plan.patience_s)
            source, target = kernel.inputs[0], kernel.outputs[0]
            data = make_input(plan.case, fabric.rank, source.size_bytes // plan.case.itemsize).cpu()
            for _ in range(plan.launches):
                fabric.write(source.tensor.region, source.offset_bytes, data.view(torch.uint8))
                fabric.synchronize()
                fabric.barrier()
                kernel.launch(0)
                fabric.synchronize()
                content = fabric.read(target.tensor.region, target.offset_bytes, target.size_bytes)
                found.append(content.numpy().tobytes())
                fabric.barrier()
    return found


def digests(fabric, plans):
    """SHA-256 of each of outputs(): some gigabytes of them need not come home."""
    return [hashlib.sha256(content).hexdigest() for content in outputs(fabric, plans)]


def named(case):
    return f"{case.op}-{case.algorithm}-{case.dtype}-{case.accumulator}-{case.world_size}"


PEER_TO_PEER = [spec for spec in catalogue.SPECS if not spec.needs_multicast]
CASES = [case for world_size in (2, 4, 8) for spec in PEER_TO_PEER for case in cases(spec, world_size)]


def plan_of(case, arch, cache_dir):
    spec = catalogue.find(case.name)
    return Plan(case, spec, executable(spec, case, arch, cache_dir), launches=LAUNCHES)


@pytest.fixture(scope="session")
def compiled(compile_cache):
    return lambda case, arch: plan_of(case, arch, compile_cache)


def simulated(plans, arch, program=outputs):
    """What the program gives on the ranks of a simulated world."""
    ranks = plans[0].case.world_size
    world = SimulatedWorld(ranks, SimulatorOptions(arch=arch, heap_bytes=heap_bytes(ranks)))
    return good(run_ranks(world, lambda fabric: program(fabric, plans)))


def simulated_digests(case, arch, cache_dir):
    """Compile a case at every size into the cache, and simulate it: what a process does ahead."""
    torch.set_num_threads(1)
    return simulated([plan_of(one, arch, cache_dir) for one in sizes(case)], arch, digests)


@pytest.fixture(scope="session")
def ahead(request, compile_cache):
    """ahead(case, arch): simulated_digests. The first call begins with all cases that GPUs are given in this run."""
    count = torch.cuda.device_count()
    callspecs = [getattr(item, "callspec", None) for item in request.session.items]
    asked = [one.params["case"] for one in callspecs if one is not None and one.params.get("case") in CASES]
    begun = {}
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))

    def get(case, arch):
        for one in dict.fromkeys([case, *(one for one in asked if one.world_size <= count)]):
            if (one, arch) not in begun:
                begun[one, arch] = pool.submit(simulated_digests, one, arch, compile_cache)
        return begun[case, arch].result()

    yield get
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("world_size", sorted({case.world_size for case in CASES}))
def test_every_case_fits_the_heap_of_its_world(world_size):
    """By the case that needs the most: all that the program allocates, and no launch."""
    here = [one for case in CASES if case.world_size == world_size for one in sizes(case)]
    largest = max(here, key=lambda case: heap_bytes_needed(case, catalogue.find(case.name)))

    def allocated(fabric):
        with SymmetricPool(fabric) as pool:
            bind(fabric, pool, catalogue.find(largest.name), [largest], [NOT_COMPILED], patience_s=NEVER_S)
        return True

    world = SimulatedWorld(world_size, SimulatorOptions(heap_bytes=heap_bytes(world_size)))
    assert good(run_ranks(world, allocated)) == [True] * world_size


def test_the_program_brings_home_what_was_added(compiled):
    """That the comparison compares something: exact inputs, whose sum has one value, in the simulator."""
    case = replace(CASES[0], size_bytes=1001 * CASES[0].itemsize, inputs="exact")
    dtype = make_input(case, 0, 1).dtype
    total = sum(make_input(case, rank, 1001).double() for rank in range(case.world_size))
    for found in simulated([compiled(case, "sm_90a")], "sm_90a"):
        assert len(found) == LAUNCHES
        for content in found:
            assert torch.equal(torch.frombuffer(bytearray(content), dtype=dtype).double(), total)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=named)
def test_gpus_give_the_simulated_bits(case, compiled, ahead, gpu_worlds, on_ranks):
    world = gpu_worlds(case.world_size, heap_bytes(case.world_size))
    arch = str(good(on_ranks(world, lambda fabric: fabric.traits.arch))[0])
    expected = ahead(case, arch)
    plans = [compiled(one, arch) for one in sizes(case)]
    real = good(on_ranks(world, lambda fabric: digests(fabric, plans)))
    labels = [(plan.case.size_bytes, plan.case.placement, launch) for plan in plans for launch in range(LAUNCHES)]
    different = [
        (rank, *label)
        for rank in range(case.world_size)
        for label, one, other in zip(labels, real[rank], expected[rank], strict=True)
        if one != other
    ]
    assert not different, f"(rank, bytes, placement, launch) that differ: {different}"
