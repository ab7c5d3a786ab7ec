"""The real program with real kernels on the simulator: right results, and an empty heap however it ends."""

import hashlib
import os
import signal
import threading

import pytest
import torch

from cases.case import Case
from kernels import catalogue
from kernels.compile import executable
from memory.pool import SymmetricPool
from runner.case.inputs import make_input
from runner.case.program import Plan, run_case
from runner.interrupt import Interrupted, interruptible
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S, PATIENCE_S, within
from tests.runner.judged import judged

OPTIONS = SimulatorOptions(heap_bytes=1 << 22)
CASE = Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 70, 3)


def plan_of(case, compile_cache):
    spec = catalogue.find(case.name)
    return Plan(case, spec, executable(spec, case, OPTIONS.arch, compile_cache))


def held(machine):
    return [f"rank {rank}: {one.name}" for rank in range(machine.world_size) for one in machine.live_regions(rank)]


def sha256(data):
    return hashlib.sha256(data.view(torch.uint8).numpy().tobytes()).hexdigest()


def checked(case, compile_cache):
    plan = plan_of(case, compile_cache)
    return judged(case, plan.spec, plan.executable)


@pytest.mark.slow
def test_digests_are_of_what_went_in_and_of_what_came_out(compile_cache):
    case = Case("broadcast", "pull", "int32", "none", "none", 40, 3, root=1)
    check = checked(case, compile_cache)
    given = [sha256(make_input(case, rank, 10)) for rank in range(3)]
    assert len(set(given)) == 3
    assert check.input_digests == tuple(given)
    assert check.output_digests == ((given[1],) * 2,) * 3, "each rank has the root's bits"
    case = Case("reduce", "pull", "int32", "native", "sum", 40, 3, root=2)
    total = sum((make_input(case, rank, 10) for rank in range(3)), torch.zeros(10, dtype=torch.int32))
    assert checked(case, compile_cache).output_digests == ((), (), (sha256(total),) * 2)


class InterruptedMachine:
    """A simulated world whose rank 1 is interrupted at the count-th call of a method of its fabric."""

    def __init__(self, machine, interrupted, method, count, error):
        self.machine = machine
        self.interrupted = lambda fabric: interrupted(fabric, count, error, method)

    def fabric(self, rank):
        fabric = self.machine.fabric(rank)
        return self.interrupted(fabric) if rank == 1 else fabric

    def __getattr__(self, name):
        return getattr(self.machine, name)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    ("method", "counts"),
    [("allocate", 7), ("launch", 5), ("free", 7), ("exchange", 8), ("write", 28), ("synchronize", 10), ("barrier", 3)],
)
def test_a_failure_at_each_call_ends_all_ranks_and_empties_the_heap(compile_cache, interrupted, method, counts, kind):
    plan = plan_of(CASE, compile_cache)
    for count in range(1, counts + 1):
        machine = SimulatedWorld(3, OPTIONS)
        world = ThreadWorld(3, machine=InterruptedMachine(machine, interrupted, method, count, kind("injected")))
        with within(), pytest.raises(WorldFailure, match=f"^rank 1: .*{kind.__name__}|^rank 1: injected") as caught:
            world.run(run_case, plan, NEVER_S)
        assert held(machine) == [], f"{method} {count}"
        assert (caught.value.status, caught.value.rank) == ("FAILED", 1)
        assert not world.healthy
        assert all("rank 1" in str(error) for rank, error in caught.value.errors.items() if rank != 1)
    beyond = InterruptedMachine(SimulatedWorld(3, OPTIONS), interrupted, method, counts + 1, kind("injected"))
    ThreadWorld(3, machine=beyond).run(run_case, plan, NEVER_S)  # counts were all calls that there are


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_run_empties_the_heap(number):
    machine = SimulatedWorld(2, OPTIONS)
    world = ThreadWorld(2, machine=machine)
    running = threading.Event()

    def program(fabric, argument):
        with SymmetricPool(fabric) as pool:
            pool.tensor(100, torch.float32, name="data", fill=1)
            with pool.scope():
                pool.tensor(100, torch.float32, name="inner")
                while True:
                    fabric.barrier()
                    running.set()

    def send():
        if running.wait(PATIENCE_S):
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    with within(), pytest.raises(Interrupted), interruptible():
        world.run(program, None, NEVER_S)
    assert held(machine) == []
    assert not world.healthy


def test_a_slice_that_outlives_its_tensor_is_named():
    machine = SimulatedWorld(2, OPTIONS)
    kept = []

    def program(fabric, argument):
        with SymmetricPool(fabric) as pool:
            data = pool.tensor(100, torch.float32, name="data", fill=1)
            inside = data.local[3:5] + 1  # a copy, which may stay
            if fabric.rank == 1:
                kept.append(data.local[3:5])
            assert inside.tolist() == [2.0, 2.0]

    with refused(WorldFailure) as caught:
        ThreadWorld(2, machine=machine).run(program, None, NEVER_S)
    assert caught.value.rank == 1
    assert held(machine) == []
