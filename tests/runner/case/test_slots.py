"""Contestants on the simulator: every slot has its own data, addresses and result; nothing stays behind."""

import pytest
import torch

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import find
from memory.fabric import HeapFull
from memory.pool import SymmetricPool
from runner.case.allocation import COUNTS
from runner.case.binding import bind, open_kernel
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S
from tests.runner.case.not_compiled import NOT_COMPILED
from tests.runner.measuring import contestant

SLOTS = 3


def data_of(rank, slot, numel):
    """Small integers, other ones in every slot and rank: their sums are exact."""
    return ((torch.arange(numel) + 3 * rank + 7 * slot) % 13 + 1).to(torch.bfloat16)


def meet(fabric):
    fabric.synchronize()
    fabric.barrier()


def ranks_of(ranks, program, argument=None):
    return ThreadWorld(ranks, SimulatorOptions(heap_bytes=1 << 22)).run(program, argument, NEVER_S)


def run(fabric, wanted):
    """Two rounds over all slots in reverse, each on fresh inputs; the outputs by round and slot."""
    case = wanted.case
    found = []
    with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, SLOTS, 10.0) as contestant:
        for _ in range(2):
            for slot in range(contestant.slots):
                contestant.write(slot, data_of(fabric.rank, slot, case.numel))
            if case.placement == "out_of_place":
                assert set(contestant.output(0).view(torch.uint8).tolist()) == {0xFF}
            meet(fabric)
            for slot in reversed(range(contestant.slots)):
                contestant.launch(slot)
            meet(fabric)
            assert contestant.trouble() == ""
            found.append([contestant.output(slot).clone() for slot in range(contestant.slots)])
        assert len({tensor.name for tensor in pool.live}) == len(pool.live)
    assert pool.live == ()
    return found


@pytest.mark.parametrize(
    ("algorithm", "placement"),
    [
        ("one_shot", "out_of_place"),
        ("two_shot", "out_of_place"),
        ("two_shot", "in_place"),
        ("multimem_two_shot", "out_of_place"),
    ],
)
@pytest.mark.parametrize("size_bytes", [34, 4096])
def test_each_slot_has_its_own_result(compile_cache, algorithm, placement, size_bytes):
    wanted = contestant(compile_cache, algorithm, placement=placement, size_bytes=size_bytes, world_size=3)
    numel = wanted.case.numel
    for rounds in ranks_of(3, run, wanted):
        for outputs in rounds:
            for slot, output in enumerate(outputs):
                expected = sum((data_of(rank, slot, numel).float() for rank in range(3)), torch.zeros(numel))
                assert torch.equal(output, expected.to(torch.bfloat16))


MOVED = [("push", "out_of_place", 0), ("push", "in_place", 0), ("pull", "in_place", 3), ("pull", "out_of_place", 1)]
GATHER = {"op": "all_gather", "accumulator": "none", "reduction": "none"}


@pytest.mark.parametrize("size_bytes", [0, 36, 4032])
@pytest.mark.parametrize(("algorithm", "placement", "offset"), MOVED)
def test_slots_of_an_all_gather_begin_where_the_case_says(compile_cache, algorithm, placement, offset, size_bytes):
    changes = {"placement": placement, "offset": offset, "size_bytes": size_bytes, "world_size": 3}
    wanted = contestant(compile_cache, algorithm, **GATHER, **changes)
    count = wanted.case.numel // 3

    def program(fabric, _):
        with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, SLOTS, 10.0) as contestant:
            for slot in range(SLOTS):
                contestant.write(slot, data_of(fabric.rank, slot, count))
                whole = contestant.output(slot).clone()
                if placement == "in_place":
                    own = whole[count * fabric.rank :][:count]
                    assert torch.equal(own, data_of(fabric.rank, slot, count))
                    own.view(torch.uint8).fill_(0xFF)
                assert set(whole.view(torch.uint8).tolist()) <= {0xFF}
            meet(fabric)
            for slot in reversed(range(SLOTS)):
                contestant.launch(slot)
            meet(fabric)
            return [contestant.output(slot).clone() for slot in range(SLOTS)]

    for outputs in ranks_of(3, program):
        for slot, output in enumerate(outputs):
            assert torch.equal(output, torch.cat([data_of(rank, slot, count) for rank in range(3)]))


def test_two_contestants_live_side_by_side_and_launching_is_all_the_host_does(compile_cache):
    wanted = [contestant(compile_cache, "one_shot"), contestant(compile_cache, "two_shot")]

    def program(fabric, _):
        seen = []

        class Watched:
            def __getattr__(self, name):
                seen.append(name)
                return getattr(fabric, name)

        watched = Watched()
        with SymmetricPool(fabric) as pool:
            with (
                open_kernel(watched, pool, wanted[0], 2, 1.0) as one,
                open_kernel(watched, pool, wanted[1], 2, 1.0) as other,
            ):
                for contestant in (one, other):
                    contestant.write(1, data_of(fabric.rank, 0, 2048))
                meet(fabric)
                seen.clear()
                for contestant in (one, other, one):
                    contestant.launch(1)
                assert seen == ["launch"] * 3
                fabric.synchronize()
                found = [one.output(1).clone(), other.output(1).clone()]
                fabric.barrier()
            assert pool.live == ()
        return found

    for one, other in ranks_of(2, program):
        assert torch.equal(one, other)
        assert torch.equal(one, data_of(0, 0, 2048) + data_of(1, 0, 2048))


def test_each_slot_is_told_its_own_counts():
    spec, sends = find("all_to_all_v/push"), collective("all_to_all_v").sends
    cases = [Case(spec.op, "push", "float32", "none", "none", 1200, 3, counts="skewed", seed=seed) for seed in (1, 2)]
    assert sends(cases[0]) != sends(cases[1])
    place = [one.kind for one in spec.parameters].index("counts")

    def program(fabric, _):
        with SymmetricPool(fabric) as pool:
            kernel = bind(fabric, pool, spec, cases, [NOT_COMPILED] * 2, 1.0)
            table = kernel.memory.tables[COUNTS]
            words = table.inspect(fabric).view(torch.int64).tolist()
            starts = [(int(given[place].value) - table.address) // 8 for given in kernel.arguments]
            return [words[start:][:3] for start in starts]

    assert ranks_of(3, program) == [[list(sends(case)[rank]) for case in cases] for rank in range(3)]


def test_what_does_not_fit_is_said_and_no_slots_are_an_error(compile_cache):
    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 14))
    with pytest.raises(WorldFailure, match="all_reduce/one_shot") as caught:
        world.run(run, contestant(compile_cache, "one_shot", size_bytes=8192), NEVER_S)
    assert any(isinstance(error, HeapFull) for error in caught.value.errors.values())

    def program(fabric, wanted):
        with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, 0, 1.0):
            pass

    with refused(WorldFailure):
        ranks_of(2, program, contestant(compile_cache, "one_shot"))
