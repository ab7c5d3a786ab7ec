"""The per-rank program with every op: what kernels are given in and out of place, and what they must not touch.

The kernel here is Python and does what the collective says, through the addresses that it was given.
"""

from dataclasses import replace

import pytest
import torch

from cases.case import Case
from cases.dtypes import ALL, DTYPES
from cases.ops import COLLECTIVES, collective
from kernels.spec import Parameter
from memory.fabric import Executable
from memory.pool import SymmetricPool
from runner.case import program
from runner.case.buffers import guarded
from runner.case.layout import layout_of
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from tests.golden import refused, same_text
from tests.patience import NEVER_S
from tests.runner.case import test_program

PARAMETERS = (
    *(Parameter(kind, buffer) for kind in ("address", "peers") for buffer in ("input", "output")),
    *(Parameter(kind) for kind in ("numel", "rank", "root")),
)
SPEC = replace(test_program.SPEC, dtypes=ALL, needs_multicast=False, parameters=PARAMETERS, workspaces=lambda case: ())


def case_of(op, **changes):
    return replace(Case(op, "tried", "uint8", "none", "none", 24, 4), **changes)


def plan_of(case, launches):
    compiled = Executable(case.name, "tried", "none", "", "sha256:0")
    return Plan(case, replace(SPEC, op=case.op), compiled, launches=launches, between=0)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch):
    """Inputs are known bytes, and the check gives back what it was given."""

    def known_bytes(case, rank, numel, device=None):
        made = torch.arange(numel * case.itemsize, dtype=torch.int64) * 7 + 31 * rank + case.seed + 1
        return (made % 251).to(torch.uint8).view(DTYPES[case.dtype])

    monkeypatch.setattr(program, "make_input", known_bytes)
    monkeypatch.setattr(program, "check_rank", lambda case, spec, rank, outputs, faults, **_: (outputs, tuple(faults)))


def given(case, rank):
    """A rank's input as bytes."""
    return program.make_input(case, rank, layout_of(case).input_bytes // case.itemsize).view(torch.uint8)


def wanted(case, rank):
    """What the stand-in kernel puts out: the first part of what the collective would reduce."""
    parts = collective(case.op).outputs([given(case, peer) for peer in range(case.world_size)], rank, case.root)
    return None if parts is None else parts[0]


def run(dictionary_world, case, touch=None, launches=3):
    """Outputs and faults of each rank. touch(world, arguments, launch) is called on each rank after the kernel."""
    machine = dictionary_world(case.world_size)
    count = [0] * case.world_size

    def kernel(fabric, *arguments):
        source, target, inputs, outputs, numel, rank, root = arguments
        world, layout = fabric.world, layout_of(case)
        assert (numel, rank, root) == (case.numel, fabric.rank, case.root)
        tables = [world.at(table, 8 * case.world_size).view(torch.int64).tolist() for table in (inputs, outputs)]
        assert (tables[0][rank], tables[1][rank]) == (source, target)
        for peer, (at, there) in enumerate(zip(*tables, strict=True)):
            away = fabric.window(peer) - fabric.window(rank)
            assert at == source + away + layout.input_starts[peer] - layout.input_starts[rank]
            assert there == target + away + layout.output_starts[peer] - layout.output_starts[rank]
            # In place another rank's kernel may be done with its own already.
            if layout.input_bytes and (peer == rank or not layout.in_place):
                assert torch.equal(world.at(at, layout.input_bytes), given(case, peer))
        result = wanted(case, rank)
        if result is not None and result.numel():
            world.at(target, layout.outputs_bytes[rank]).copy_(result)
        if touch is not None:
            touch(fabric, arguments, count[rank])
        count[rank] += 1

    machine.kernels["tried"] = kernel
    plan = plan_of(case, launches)
    outcomes = ThreadWorld(case.world_size, machine=machine).run(run_case, plan, NEVER_S)
    assert not any(machine.live_regions(rank) for rank in range(case.world_size))
    return [outcome.check for outcome in outcomes]


OPS_AND_PLACEMENTS = [
    (one.op, placement) for one in COLLECTIVES for placement in ("out_of_place", "in_place")[: 1 + bool(one.in_place)]
]


@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize(("op", "placement"), OPS_AND_PLACEMENTS)
def test_every_op_comes_out_right_and_without_a_fault(dictionary_world, op, placement, offset):
    root = 2 if collective(op).rooted else 0
    case = case_of(op, placement=placement, offset=offset, root=root)
    for rank, (outputs, faults) in enumerate(run(dictionary_world, case)):
        assert faults == ()
        expected = wanted(case, rank)
        for output in outputs:
            assert output.numel() == collective(op).received(case, rank)
            assert expected is None or torch.equal(output, expected)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_every_dtype_is_brought_home_with_its_bits(dictionary_world, dtype, placement):
    itemsize = DTYPES[dtype].itemsize
    case = case_of("all_gather", dtype=dtype, size_bytes=12 * itemsize, world_size=3, placement=placement, offset=3)
    for outputs, faults in run(dictionary_world, case):
        assert faults == ()
        for output in outputs:
            assert (output.dtype, output.numel()) == (DTYPES[dtype], 12)
            assert torch.equal(output.view(torch.uint8), wanted(case, 0))


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize(("op", "placement"), OPS_AND_PLACEMENTS)
def test_an_empty_message_has_empty_buffers_between_guards(dictionary_world, op, placement, world_size):
    case = case_of(op, size_bytes=0, world_size=world_size, placement=placement, offset=3)
    for outputs, faults in run(dictionary_world, case):
        assert faults == ()
        assert [output.numel() for output in outputs] == [0, 0, 0]


@pytest.mark.parametrize("offset", [0, 1, 7, 16])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float64"])
def test_an_offset_is_counted_in_elements_from_a_boundary(dictionary_world, dtype, offset):
    case = case_of("all_reduce", dtype=dtype, offset=offset)
    seen = []
    run(dictionary_world, case, lambda fabric, arguments, launch: seen.extend(arguments[:2]))
    assert len(seen) == 24
    assert {(address - offset * case.itemsize) % 16 for address in seen} == {0}


@pytest.mark.parametrize("launch", [0, 1, 2])
@pytest.mark.parametrize(
    ("op", "changes", "argument", "byte", "size"),
    [
        ("all_reduce", {"offset": 3}, 1, -1, 1),
        ("all_reduce", {"offset": 3}, 1, 24, 1),
        ("all_reduce", {"offset": 3}, 0, -1, 1),
        ("all_reduce", {"offset": 3}, 0, 24, 1),
        ("all_reduce", {"offset": 3}, 1, -259, 1),
        ("all_reduce", {"size_bytes": 0}, 1, 0, 1),
        ("reduce", {"root": 1}, 1, 20, 2),
        ("reduce", {"root": 1, "placement": "in_place"}, 1, 20, 2),
        ("reduce_scatter", {"placement": "in_place"}, 0, 12, 1),
    ],
)
def test_what_a_rank_must_leave_is_watched_to_the_byte(dictionary_world, op, changes, argument, byte, size, launch):
    """Around a misaligned or empty buffer, an output that is not the rank's to give, and other ranks' chunks."""

    def touch(fabric, arguments, number):
        if fabric.rank == 1 and op.startswith("reduce"):
            fabric.world.at(arguments[1], 6).fill_(0)  # the root's output, or its own chunk
        if fabric.rank == 3 and number == launch:
            fabric.world.at(arguments[argument] + byte, size).fill_(0)

    checks = run(dictionary_world, case_of(op, **changes), touch)
    assert [bool(faults) for _, faults in checks] == [False, False, False, True]
    same_text(checks[3][1][0])


def test_in_place_what_is_not_input_is_poison_before_each_launch(dictionary_world):
    seen = []
    case = case_of("all_gather", placement="in_place")
    machine = dictionary_world(4)

    def kernel(fabric, *arguments):
        whole = fabric.world.at(arguments[1], 24).clone()
        own = whole[6 * fabric.rank :][:6]
        seen.append(torch.equal(own, given(case, fabric.rank)))
        own.fill_(0xFF)
        seen.append(whole.unique().tolist() == [0xFF])
        fabric.world.at(arguments[1], 24).fill_(1)

    machine.kernels["tried"] = kernel
    plan = plan_of(case, 3)
    ThreadWorld(4, machine=machine).run(run_case, plan, NEVER_S)
    assert seen == [True] * 24


def test_there_is_no_multicast_of_what_begins_elsewhere_on_every_rank(dictionary_world):
    fabric = dictionary_world(1).fabric(0)
    with SymmetricPool(fabric) as pool:
        whole = guarded(pool, "whole", 24, 256, 3)
        assert whole.multicast_address() - whole.tensor.multicast().address == 259
        assert whole.part((0,), 0, 24) == whole
        assert whole.part((6,), 0, 6).multicast_address() == whole.multicast_address() + 6
        apart = whole.part((0, 6, 12), 1, 6)
        assert apart.address == whole.address + 6
        with refused(AssertionError):
            apart.multicast_address()
