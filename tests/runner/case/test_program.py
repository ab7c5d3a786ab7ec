"""The per-rank program: how it binds memory and arguments, what it notices, and that it leaves nothing behind."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cases.case import Case
from kernels.spec import KernelSpec, Parameter, Workspace
from memory.fabric import Executable, HeapFull, Launch
from runner.case import program
from runner.case.allocation import SlotsMemory
from runner.case.binding import BoundKernel
from runner.case.buffers import Buffer
from runner.case.inputs import make_input
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from tests.golden import refused, same_text
from tests.patience import NEVER_S

SPEC = KernelSpec(
    op="all_reduce",
    algorithm="tried",
    summary="declares a parameter of every kind",
    dtypes=("float32", "float16", "bfloat16"),
    accumulators=("float32",),
    reductions=("sum",),
    placements=("out_of_place", "in_place"),
    needs_multicast=True,
    fold="rank_order",
    parameters=(
        *(Parameter(*one.split()) for one in ("address input", "address output", "peers input", "multicast input")),
        *(Parameter(*one.split()) for one in ("address flags", "peers flags", "numel", "rank")),
    ),
    workspaces=lambda case: (Workspace("flags", 3 * case.world_size),),
    launch=lambda case: Launch(2, 64),
    build=lambda case: None,
    files=(),
)

CASE = Case("all_reduce", "tried", "bfloat16", "float32", "sum", 34, 4)
EXECUTABLE = Executable("all_reduce/tried", "tried", "none", "", "sha256:0")


@pytest.fixture(autouse=True)
def _check(monkeypatch):
    """Only binding and noticing are tested here: the check gives back what it was given."""
    monkeypatch.setattr(program, "check_rank", lambda case, spec, rank, outputs, faults, **_: (outputs, tuple(faults)))


@pytest.fixture
def machine(dictionary_world):
    made = dictionary_world(4)
    made.kernels["tried"] = lambda fabric, *arguments: sum_kernel(fabric.world, *arguments)
    return made


def sum_kernel(world, source, target, peers, *others):
    """All ranks' bfloat16 added up in rank order into the own output; in place that is not to be looked at."""
    numel = others[3]
    total = torch.zeros(numel)
    for address in world.at(peers, 8 * world.world_size).view(torch.int64).tolist():
        total += world.at(address, 2 * numel).view(torch.bfloat16)
    world.at(target, 2 * numel).view(torch.bfloat16).copy_(total)


def run(machine, plan):
    outcomes = ThreadWorld(plan.case.world_size, machine=machine).run(run_case, plan, NEVER_S)
    assert [outcome.rank for outcome in outcomes] == list(range(plan.case.world_size))
    assert nothing_held(machine)
    return [outcome.check for outcome in outcomes]


def nothing_held(machine):
    return not any(machine.live_regions(rank) for rank in range(machine.world_size))


@pytest.mark.parametrize("size_bytes", [2, 16, 30, 1000])
def test_arguments_are_what_the_spec_declares(machine, size_bytes):
    case = replace(CASE, size_bytes=size_bytes)
    seen = []

    def kernel(fabric, *arguments):
        world = fabric.world
        source, target, inputs, multicast, flags, flags_of_peers, numel, rank = arguments
        assert (numel, rank) == (size_bytes // 2, fabric.rank)
        assert source % 16 == target % 16 == flags % 16 == 0
        table = world.at(inputs, 32).view(torch.int64).tolist()
        assert table[rank] == source
        assert world.at(flags_of_peers, 32).view(torch.int64)[rank] == flags
        assert multicast - source == (1 << 60) - fabric.window(rank)
        for peer, address in enumerate(table):
            expected = make_input(case, peer, numel)
            assert torch.equal(world.at(address, size_bytes).view(torch.bfloat16), expected)
        assert world.at(target, size_bytes).unique().tolist() == [0xFF]
        counter = world.at(flags, 48).view(torch.int32)
        assert counter.tolist() == [len([one for one in seen if one[-1] == rank])] * 12
        counter += 1
        seen.append(arguments)

    machine.kernels["tried"] = kernel
    run(machine, Plan(case, SPEC, EXECUTABLE, launches=3, between=0))
    assert len(seen) == 12
    assert len(set(seen)) == 4, "the launches of a rank have the same arguments"


@pytest.mark.parametrize(
    ("argument", "offset", "size"),
    [(1, -4, 1), (1, -256, 1), (1, 34, 1), (1, 34 + 255, 1), (1, -16, 16), (0, -1, 1), (0, 12, 1), (4, 48, 1)],
)
@pytest.mark.parametrize("launch", [0, 1, 2])
def test_a_write_beyond_the_output_is_a_fault(machine, argument, offset, size, launch):
    """Of one byte, and of poison, as it is around fresh memory."""
    launched = []

    def kernel(fabric, *arguments):
        sum_kernel(fabric.world, *arguments)
        if fabric.rank == 2:
            launched.append(0)
            if len(launched) == launch + 1:
                fabric.world.at(arguments[argument] + offset, size).fill_(7 if size == 1 else 0xFF)

    machine.kernels["tried"] = kernel
    _, (_, others), (_, faults), _ = run(machine, Plan(CASE, SPEC, EXECUTABLE, launches=3, between=0))
    assert others == ()
    same_text(faults[0])


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_between_checked_launches_others_run_on_complemented_data(machine, placement):
    """All bytes of what they read are other ones: or a kernel that reads too early would give the right result.

    Each of them has new ones, in place of what the launch before it has left, and poison in an output of its own. A
    checked launch is followed by them before ranks meet: or a rank that was let go too early would spoil nothing.
    """
    seen = [[] for _ in range(4)]
    met = [[] for _ in range(4)]
    inputs = {}
    fabric_of = machine.fabric

    def kernel(fabric, source, target, *others):
        inputs[fabric.rank] = source
        seen[fabric.rank] += [fabric.world.at(address, 34).tolist() for address in (source, target)]
        fabric.world.at(target, 34).fill_(7)

    def watched(rank):
        fabric = fabric_of(rank)
        barrier = fabric.barrier

        def meet():
            if rank in inputs and len(met[rank]) < 3:
                met[rank].append(fabric.world.at(inputs[rank], 34).tolist())
            barrier()

        fabric.barrier = meet
        return fabric

    machine.kernels["tried"] = kernel
    machine.fabric = watched
    run(machine, Plan(replace(CASE, placement=placement), SPEC, EXECUTABLE, launches=3, between=2))
    for rank, found in enumerate(seen):
        data = make_input(CASE, rank, 17).view(torch.uint8)
        own, other = data.tolist(), (~data).tolist()
        assert found[::2] == [own, other, other, own, other, other, own]
        assert found[1::2] == ([[0xFF] * 34] * 7 if placement == "out_of_place" else found[::2])
        assert met[rank] == [other] * 3


def test_without_check_nothing_comes_home(machine):
    assert run(machine, Plan(CASE, SPEC, EXECUTABLE, check=False, between=0)) == [None] * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"launches": 0},
        {"patience_s": 0},
        {"executable": replace(EXECUTABLE, name="all_reduce/one_shot")},
        {"spec": replace(SPEC, algorithm="other")},
        {"executable": None},
    ],
)
def test_a_plan_that_can_not_be_is_refused(changes):
    with refused():
        Plan(**{"case": CASE, "spec": SPEC, "executable": EXECUTABLE} | changes)


def test_a_case_for_another_world_is_refused(machine):
    plan = Plan(replace(CASE, world_size=2), SPEC, EXECUTABLE, between=0)
    with refused(WorldFailure):
        ThreadWorld(4, machine=machine).run(run_case, plan, NEVER_S)


def test_a_heap_too_small_is_a_failure_that_names_the_buffer(dictionary_world):
    small = dictionary_world(4, heap_bytes=1 << 12)
    plan = Plan(replace(CASE, size_bytes=1 << 12), SPEC, EXECUTABLE, between=0)
    with refused(WorldFailure) as caught:
        ThreadWorld(4, machine=small).run(run_case, plan, NEVER_S)
    assert isinstance(caught.value.__cause__, HeapFull)
    assert nothing_held(small)


def test_patience_is_what_the_plan_gives_and_none_in_a_simulation(machine):
    spec, traits = (
        replace(SPEC, parameters=(Parameter("patience"),), workspaces=lambda case: ()),
        machine.fabric(0).traits,
    )
    buffer = Buffer("", SimpleNamespace(), 0, 0)
    for simulated, nanoseconds in ((True, 0), (False, 2_500_000_000)):
        gpu = SimpleNamespace(rank=0, traits=replace(traits, simulated=simulated))
        kernel = BoundKernel(gpu, SlotsMemory([(buffer, buffer)], (), {}), spec, [CASE], [EXECUTABLE], 2.5)
        assert kernel.arguments[0][0].value == nanoseconds


def test_a_report_in_the_status_words_is_a_deadlock(machine, monkeypatch):
    """A kernel that gave up a wait ends; what it left says where."""
    spec = replace(
        SPEC,
        parameters=(*SPEC.parameters, Parameter("address", "status")),
        workspaces=lambda case: (Workspace("flags", 3 * case.world_size), Workspace("status", 4)),
    )
    described = SimpleNamespace(describe=lambda words, rank: f"rank {rank}: waited for rank {words[1]}")
    monkeypatch.setitem(sys.modules, "kernels.dsl.status", described)
    launched = []

    def kernel(fabric, *arguments):
        sum_kernel(fabric.world, *arguments)
        launched.append(fabric.rank)
        if fabric.rank == 2 and launched.count(2) == 2:
            fabric.world.at(arguments[-1], 16).view(torch.int32).copy_(torch.tensor([1, 3, 0, 0]))

    machine.kernels["tried"] = kernel
    with refused(WorldFailure) as caught:
        ThreadWorld(4, machine=machine).run(run_case, Plan(CASE, spec, EXECUTABLE, launches=3, between=0), NEVER_S)
    assert (caught.value.status, caught.value.rank) == ("DEADLOCK", 2)
    assert nothing_held(machine)
