"""Contestants on the simulator: every slot has its own data, addresses and result; nothing stays behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from memory.fabric import Fabric, HeapFull
from memory.pool import SymmetricPool
from runner.case.contestant import Contestant
from runner.case.slots import open_kernel, slot_bytes
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.patience import NEVER_S
from tests.runner.measuring import case_of, contestant

SLOTS = 3


@pytest.fixture(scope="session")
def cache(compile_cache: Path) -> Path:
    return compile_cache


def data_of(rank: int, slot: int, numel: int) -> torch.Tensor:
    """Small integers, other ones in every slot and rank: their sums are exact."""
    return ((torch.arange(numel) + 3 * rank + 7 * slot) % 13 + 1).to(torch.bfloat16)


def run(fabric: Fabric, wanted: Contestant) -> list[list[torch.Tensor]]:
    """Two rounds over all slots in reverse, each on fresh inputs; the outputs by round and slot."""
    case = wanted.case
    found = []
    with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, SLOTS, 10.0) as contestant:
        for _ in range(2):
            for slot in range(contestant.slots):
                contestant.write(slot, data_of(fabric.rank, slot, case.numel))
            if case.placement == "out_of_place":
                assert set(contestant.output(0).view(torch.uint8).tolist()) == {0xFF}
            fabric.synchronize()
            fabric.barrier()
            for slot in reversed(range(contestant.slots)):
                contestant.launch(slot)
            fabric.synchronize()
            fabric.barrier()
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
def test_each_slot_has_its_own_result(cache: Path, algorithm: str, placement: str, size_bytes: int) -> None:
    wanted = contestant(cache, algorithm, placement=placement, size_bytes=size_bytes, world_size=3)
    world = ThreadWorld(3, SimulatorOptions(heap_bytes=1 << 22))
    numel = wanted.case.numel
    for rounds in world.run(run, wanted, NEVER_S):
        for outputs in rounds:
            for slot, output in enumerate(outputs):
                expected = sum((data_of(rank, slot, numel).float() for rank in range(3)), torch.zeros(numel))
                assert torch.equal(output, expected.to(torch.bfloat16))


MOVED = [("push", "out_of_place", 0), ("push", "in_place", 0), ("pull", "in_place", 3), ("pull", "out_of_place", 1)]


@pytest.mark.parametrize("size_bytes", [0, 36, 4032])
@pytest.mark.parametrize(("algorithm", "placement", "offset"), MOVED)
def test_slots_of_an_all_gather_begin_where_the_case_says(
    cache: Path, algorithm: str, placement: str, offset: int, size_bytes: int
) -> None:
    wanted = contestant(
        cache, algorithm, op="all_gather", accumulator="none", reduction="none", placement=placement,
        offset=offset, size_bytes=size_bytes, world_size=3,
    )  # fmt: skip
    count = wanted.case.numel // 3

    def program(fabric: Fabric, _: None) -> list[torch.Tensor]:
        with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, SLOTS, 10.0) as contestant:
            for slot in range(SLOTS):
                contestant.write(slot, data_of(fabric.rank, slot, count))
                whole = contestant.output(slot).clone()
                if placement == "in_place":
                    own = whole[count * fabric.rank :][:count]
                    assert torch.equal(own, data_of(fabric.rank, slot, count))
                    own.view(torch.uint8).fill_(0xFF)
                assert set(whole.view(torch.uint8).tolist()) <= {0xFF}
            fabric.synchronize()
            fabric.barrier()
            for slot in reversed(range(SLOTS)):
                contestant.launch(slot)
            fabric.synchronize()
            fabric.barrier()
            return [contestant.output(slot).clone() for slot in range(SLOTS)]

    for outputs in ThreadWorld(3, SimulatorOptions(heap_bytes=1 << 22)).run(program, None, NEVER_S):
        for slot, output in enumerate(outputs):
            assert torch.equal(output, torch.cat([data_of(rank, slot, count) for rank in range(3)]))


def test_two_contestants_live_side_by_side(cache: Path) -> None:
    wanted = [contestant(cache, "one_shot"), contestant(cache, "two_shot")]

    def program(fabric: Fabric, _: None) -> list[torch.Tensor]:
        with SymmetricPool(fabric) as pool:
            with (
                open_kernel(fabric, pool, wanted[0], 2, 1.0) as one,
                open_kernel(fabric, pool, wanted[1], 2, 1.0) as other,
            ):
                for contestant in (one, other):
                    contestant.write(1, data_of(fabric.rank, 0, 2048))
                fabric.synchronize()
                fabric.barrier()
                for contestant in (one, other, one):
                    contestant.launch(1)
                fabric.synchronize()
                found = [one.output(1).clone(), other.output(1).clone()]
                fabric.barrier()
            assert pool.live == ()
        return found

    for one, other in ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 22)).run(program, None, NEVER_S):
        assert torch.equal(one, other)
        assert torch.equal(one, data_of(0, 0, 2048) + data_of(1, 0, 2048))


def test_launching_does_no_host_work_but_one_launch(cache: Path) -> None:
    wanted = contestant(cache, "two_shot")

    def program(fabric: Any, _: None) -> list[str]:
        seen: list[str] = []

        class Watched:
            def __getattr__(self, name: str) -> Any:
                seen.append(name)
                return getattr(fabric, name)

        with (
            SymmetricPool(fabric) as pool,
            open_kernel(Watched(), pool, wanted, 2, 1.0) as contestant,  # type: ignore[arg-type]
        ):
            for slot in range(2):
                contestant.write(slot, data_of(fabric.rank, slot, 2048))
            fabric.synchronize()
            fabric.barrier()
            seen.clear()
            contestant.launch(1)
            contestant.launch(0)
            before = list(seen)
            fabric.synchronize()
            fabric.barrier()
        return before

    assert ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 22)).run(program, None, NEVER_S) == [["launch"] * 2] * 2


def test_what_does_not_fit_is_said(cache: Path) -> None:
    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 14))
    with pytest.raises(WorldFailure, match="all_reduce/one_shot") as caught:
        world.run(run, contestant(cache, "one_shot", size_bytes=8192), NEVER_S)
    assert any(isinstance(error, HeapFull) for error in caught.value.errors.values())


def test_no_slots_are_an_error(cache: Path) -> None:
    wanted = contestant(cache, "one_shot")

    def program(fabric: Fabric, _: None) -> None:
        with SymmetricPool(fabric) as pool, open_kernel(fabric, pool, wanted, 0, 1.0):
            pass

    with pytest.raises(WorldFailure, match="0 slots for all_reduce-one_shot"):
        ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 22)).run(program, None, NEVER_S)


def test_slot_bytes_are_input_and_output() -> None:
    assert slot_bytes(case_of("one_shot")) == 8192
    assert slot_bytes(case_of("two_shot", placement="in_place")) == 4096
    assert slot_bytes(case_of("pull", op="all_gather")) == 4096 + 2048
    assert slot_bytes(case_of("pull", op="all_gather", placement="in_place")) == 4096
    assert slot_bytes(case_of("pull", size_bytes=0, offset=3)) == 0
