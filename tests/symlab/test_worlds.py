"""Worlds from Python: functions on all ranks, symmetric memory, launches; and nothing is left, however it ends."""

import asyncio
import gc
import hashlib
import threading
import weakref

import pytest
import torch

import symlab
from memory.fabric import Argument, Disagreement, Executable
from runner.case.binding import BoundKernel
from runner.world import fabrics
from runner.world.fabrics import HostOffer
from runner.world.threads import ThreadWorld
from tests.golden import refused
from tests.memory import nvshmem_stand_in
from tests.patience import NEVER_S, PATIENCE_S, pressed
from tests.runner.conftest import is_running
from tests.runner.rank_programs import FileOpener
from tests.symlab.rank_functions import divided, left_behind, sent_on

STORE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry store(.param .u64 target, .param .u32 value, .param .f32 scale)
{
  .reg .u32 %r<6>;
  .reg .u64 %rd<4>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd1, [target];
  ld.param.u32 %r1, [value];
  ld.param.f32 %f1, [scale];
  mov.u32 %r2, %tid.x;
  add.u32 %r3, %r1, %r2;
  cvt.rn.f32.u32 %f2, %r3;
  mul.f32 %f3, %f2, %f1;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.f32 [%rd3], %f3;
  ret;
}
"""
KERNEL = Executable("store", "store", "sm_90a", STORE, f"sha256:{hashlib.sha256(STORE.encode()).hexdigest()}")
"""Stores scale * (value + thread) to an array of floats."""


HIDDEN = (r"\.py:\d+", r"(?<=WorldFailure: )(rank \d: )?", r"(?s) after \d+ steps.*")
"""Lines of files, which of ranks that all fail is the first, and where a kernel stands."""


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} is left"


def memory_of(world):
    """A weak reference to the memory of an open simulated world."""
    return weakref.ref(world._world._machine.space.memory)


def failing(program, *given, **settings):
    """What a function's failure was raised from. Its text is compared."""
    with symlab.world(**{"ranks": 2, **settings}) as world, refused(symlab.WorldFailure, *HIDDEN) as caught:
        world.run(program, *given, deadline_s=NEVER_S)
    return caught.value.__cause__


# Functions on ranks


def test_results_are_by_rank_and_the_argument_is_everyones():
    def program(rank, argument):
        notes = rank.exchange(f"note {rank.rank}")
        return rank.rank, rank.world_size, rank.traits.name, rank.traits.multicast, argument["x"], notes

    notes = ("note 0", "note 1", "note 2")
    with symlab.world(ranks=3) as world:
        wanted = [(rank, 3, "simulator", True, 5, notes) for rank in range(3)]
        assert world.run(program, {"x": 5}) == wanted
        assert world.run(program, {"x": 5}, deadline_s=NEVER_S) == wanted, "a world runs functions one after another"
        assert (world.ranks, world.fabric, world.why, world.healthy) == (3, "simulator", "asked for", True)
        assert repr(world) == "<world of 3 ranks, simulator, open>"
    assert repr(world) == "<world of 3 ranks, simulator, closed>"
    assert not world.healthy


def test_a_kernel_is_launched_with_tensors_views_and_numbers():
    def program(rank, _):
        with rank.pool() as pool:
            data = pool.tensor((2, 4), torch.float32, name="data", fill=-1)
            rank.barrier()
            following = data.peer((rank.rank + 1) % rank.world_size)
            rank.launch(KERNEL, grid=1, block=4, arguments=[following, ("u32", 10 * rank.rank), ("f32", 0.5)])
            rank.synchronize()
            rank.barrier()
            own = Argument("address", data.address + 16)
            rank.launch(KERNEL, grid=(1, 1, 1), block=(4, 1, 1), arguments=[own, ("u32", 7), Argument("f32", 2.0)])
            return [float(one) for one in data.read().view(-1)]

    with symlab.world(ranks=2) as world:
        found = world.run(program)
        assert world.counters()["of"] == {"launches": 2, "ranks": 2}
    assert found == [[5, 5.5, 6, 6.5, 14, 16, 18, 20], [0, 0.5, 1, 1.5, 14, 16, 18, 20]]


def test_a_compiled_kernel_is_bound_and_launched_again_and_again():
    compiled = symlab.compile(symlab.case("all_reduce/multimem_two_shot", size_bytes="2K", ranks=3, inputs="exact"))

    def program(rank, inputs):
        with rank.pool() as pool:
            bound = rank.bind(pool, compiled)
            found = []
            for turn in (1, 2):
                bound.write(inputs[rank.rank] * turn)
                bound.launch()
                found.append(bound.read())
            return found

    inputs = symlab.make_inputs(compiled.case)
    with symlab.world(ranks=3, schedule="random", seed=4) as world:
        found = world.run(program, inputs)
    for turn in (0, 1):
        mine = [one * (turn + 1) for one in inputs]
        assert symlab.check(compiled.case, [one[turn] for one in found], mine).faults == ()


def test_a_bound_kernel_that_gave_a_wait_up_is_a_deadlock(monkeypatch):
    compiled = symlab.compile(symlab.case("send_recv/pull", size_bytes=64, ranks=2))

    def program(rank, _):
        with rank.pool() as pool:
            rank.bind(pool, compiled).read()

    monkeypatch.setattr(BoundKernel, "trouble", lambda self: "waited for rank 1")
    with symlab.world(ranks=2) as world, pytest.raises(symlab.WorldFailure, match="waited for rank 1") as caught:
        world.run(program)
    assert caught.value.status == "DEADLOCK"


@pytest.mark.parametrize("settings", [{"multicast": False}, {"arch": "sm_80"}, {"ranks": 3}])
def test_a_kernel_that_the_world_can_not_run_is_refused_with_the_reason(settings):
    compiled = symlab.compile(symlab.case("all_reduce/multimem_one_shot", size_bytes="1K", ranks=2))

    def program(rank, _):
        with rank.pool() as pool:
            rank.bind(pool, compiled)

    assert isinstance(failing(program, **settings), ValueError)


UNFIT = [[("u64", 0), ("u32", 1 << 40)], [("u65", 0), ("u32", 1)], [("u64", 0), ("u64", 1)]]


@pytest.mark.parametrize("arguments", [[], [1, 2, 3], *([*pair, ("f32", 1.0)] for pair in UNFIT)])
def test_wrong_arguments_of_a_kernel_are_value_errors(arguments):
    def program(rank, _):
        rank.launch(KERNEL, grid=1, block=1, arguments=arguments)

    assert isinstance(failing(program), ValueError)


def test_a_launch_needs_a_grid_and_an_input_its_length():
    compiled = symlab.compile(symlab.case("send_recv/pull", size_bytes=64, ranks=2))

    def no_grid(rank, _):
        rank.launch(KERNEL, arguments=[], block=1)

    def short(rank, _):
        with rank.pool() as pool:
            rank.bind(pool, compiled).write(torch.zeros(15))

    for program in (no_grid, short):
        failing(program)


# What goes wrong


WRONG = {
    **{"ranks": [73, "many"], "fabric": ["gpus"], "heap_bytes": ["4Q", "8G"], "arch": ["hopper"], "seed": [-1]},
    **{"schedule": ["unfair"], "multimem": ["none"], "step_budget": [0]},
}


@pytest.mark.parametrize(
    "given", [{"fabric": "auto", "heap_bytes": "8G"}, *({key: one} for key, some in WRONG.items() for one in some)]
)
def test_wrong_settings_have_the_commands_messages_with_the_arguments_names(given, monkeypatch):
    monkeypatch.setattr(fabrics, "look", lambda: HostOffer(0, "no GPU driver found", False))
    with refused():
        symlab.world(**given)


def test_an_exception_in_a_rank_names_the_rank_and_leaves_nothing():
    """The caught exception is kept, as a notebook keeps the last one: the world's memory is gone all the same."""
    kept = []
    with symlab.world(ranks=3) as world:
        memory = memory_of(world)
        machine = world._world._machine
        try:
            world.run(divided, 1)
        except symlab.WorldFailure as failure:
            kept.append(failure)
        assert [machine.live_regions(rank) for rank in range(3)] == [()] * 3, "the pools dropped what they held"
        assert not world.healthy
        with refused():
            world.run(divided, 1)
    gc.collect()
    assert memory() is None
    assert kept[0].rank == 1
    assert str(kept[0]).startswith("rank 1: ZeroDivisionError: division by zero (")
    assert "rank_functions.py" in str(kept[0])
    assert isinstance(kept[0].__cause__, ZeroDivisionError)


def test_an_exception_in_the_block_leaves_nothing():
    def block(memory):
        with symlab.world(ranks=2) as world:
            memory.append(memory_of(world))
            raise KeyError("mine")

    memory = []
    with pytest.raises(KeyError):
        block(memory)
    gc.collect()
    assert memory[0]() is None


def test_an_interrupt_ends_the_ranks_and_leaves_nothing():
    """Ctrl-C while one rank computes and the others wait for it."""
    reached, ended = threading.Event(), threading.Event()

    def program(rank, _):
        with rank.pool() as pool:
            pool.tensor(4, torch.int32, name="held", fill=0)
            if rank.rank == 1:
                reached.set()
                ended.wait(PATIENCE_S)
            rank.barrier()

    try:
        with symlab.world(ranks=3) as world:
            memory = memory_of(world)
            machine = world._world._machine
            with pytest.raises(KeyboardInterrupt), pressed(reached.is_set):
                world.run(program)
            assert not world.healthy
    finally:
        ended.set()
    for thread in threading.enumerate():
        if thread.name.startswith("rank "):
            thread.join(PATIENCE_S)
    assert [machine.live_regions(rank) for rank in range(3)] == [()] * 3
    del machine
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (lambda rank, _: rank.barrier() if rank.rank else None, None),
        (lambda rank, _: rank.exchange("x") if rank.rank else rank.barrier(), Disagreement),
        (left_behind, None),
    ],
)
def test_what_ranks_do_wrong_together_is_told(program, kind):
    cause = failing(program)
    assert kind is None or isinstance(cause, kind)


@pytest.mark.parametrize("deadline_s", [0, -1.0, float("nan"), float("inf")])
def test_a_deadline_leaves_time(deadline_s):
    with symlab.world() as world, refused():
        world.run(sent_on, 1, deadline_s=deadline_s)


def test_a_world_is_used_in_its_block_by_one_at_a_time():
    world = symlab.world(ranks=2)
    case = symlab.case("all_reduce/one_shot", size_bytes=64)
    for use in (lambda: world.run(sent_on, 1), world.counters, lambda: symlab.run(case, world=world)):
        with refused():
            use()
    with world:
        with refused(), world:
            pass
        with refused(symlab.WorldFailure, *HIDDEN):
            world.run(lambda rank, _: world.run(sent_on, 1))
    with world:
        assert world.healthy, "a world that was closed can be opened again: it is a new one"


# Where it runs


def test_it_works_in_a_running_event_loop():
    """Jupyter runs cells within one, in the main thread."""

    async def cell():
        with symlab.world(ranks=2) as world:
            found = world.run(lambda rank, _: rank.exchange(str(rank.rank)))
        return found, symlab.run(symlab.case("all_reduce/one_shot", size_bytes="1K")).verified

    assert asyncio.run(cell()) == ([("0", "1")] * 2, True)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(fabrics, "look", lambda: HostOffer(2, "", True))


@pytest.fixture
def processes(two_gpus, tmp_path, monkeypatch):
    """Ranks in processes over a fabric of files, in place of GPUs."""
    monkeypatch.setattr(
        fabrics, "NvshmemOpener", lambda heap_bytes, joined=False, share_gpus=False: FileOpener(str(tmp_path))
    )


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["nvshmem", "auto"])
def test_ranks_in_processes_run_functions_of_modules(processes, fabric):
    with symlab.world(ranks=2, fabric=fabric) as world:
        pids = world._world.processes
        assert world.fabric == "nvshmem"
        assert world.run(sent_on, 10) == [[11] * 4, [10] * 4]
        for function in (lambda rank, _: 0, in_main()):
            with refused(ValueError, r"Can't .*"):
                world.run(function)
        assert world.healthy, "nothing was sent"
        with refused(symlab.WorldFailure, *HIDDEN) as caught:
            world.run(divided, 1)
        assert caught.value.rank == 1
    assert not any(map(is_running, pids))


def in_main():
    """A function as a notebook defines it."""

    def program(rank, _):
        pass

    program.__module__, program.__qualname__ = "__main__", "program"
    return program


def test_gpus_that_are_not_there_are_a_value_error(two_gpus):
    with refused():
        symlab.world(ranks=3, fabric="nvshmem")
    with symlab.world(ranks=3, fabric="auto") as world:
        assert (world.fabric, world.why) == ("simulator", "world_size is 3, and 2 GPUs are here")


def test_a_launchers_processes_start_no_worlds_of_gpus(two_gpus, monkeypatch):
    outer = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with refused():
        symlab.world(fabric="nvshmem")
    with symlab.world(ranks=2) as world:
        assert world.healthy


def test_ranks_work_on_the_nvshmem_fabric(two_gpus, monkeypatch):
    """Over the stand-in for the library and the driver, which is strict: pools, peers, multicast and launches."""
    machine = nvshmem_stand_in.StandInWorld(2)

    def store(fabric, target, value):
        machine.at(fabric.rank, target, 4).view(torch.int32)[0] = value

    machine.kernels["store"] = store
    monkeypatch.setattr(fabrics, "make_world", lambda fabric, ranks, say: ThreadWorld(ranks, machine=machine))

    def program(rank, _):
        with rank.pool() as pool:
            data = pool.tensor(1, torch.int32, name="data", fill=0)
            rank.barrier()
            arguments = [data.peer(1 - rank.rank), ("u32", 40 + rank.rank)]
            rank.launch(Executable("store", "store", "sm_90a", "", ""), grid=1, block=32, arguments=arguments)
            rank.synchronize()
            rank.barrier()
            return int(data.local[0]), data.multicast().address != data.address

    with symlab.world(ranks=2, fabric="nvshmem") as world:
        assert world.run(program) == [(41, True), (40, True)]
    assert machine.complaints == []
