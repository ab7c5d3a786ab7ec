"""What carries the contract tests to GPUs, without GPUs: closures on rank processes, and what comes home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from memory.fabric import Disagreement, PeerLost
from memory.pool import SymmetricPool
from tests.memory.nvshmem_stand_in import AloneWorld
from tests.memory.process_world import KeptWorlds


def on_stand_in(heap_bytes: int) -> Callable[..., Any]:
    def open_here(store: Any, rank: int, world_size: int) -> Any:
        return AloneWorld(store, rank, world_size, heap_bytes).fabrics[0]

    return open_here


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptWorlds]:
    worlds = KeptWorlds(on_stand_in)
    yield worlds
    worlds.close()


@pytest.fixture
def world(kept: KeptWorlds) -> Any:
    return kept.get(2, 1 << 16)


def doubled(value: int) -> int:
    """A function of this module, which no rank can import."""
    return 2 * value


@pytest.mark.slow
def test_closures_and_results_travel(world: Any, on_ranks: Any, interrupted: Any) -> None:
    addend = torch.arange(3)

    def program(fabric: Any) -> tuple[torch.Tensor, tuple[str, ...], list[str]]:
        notes = fabric.exchange(str(doubled(fabric.rank)))
        return addend + fabric.rank, notes, fabric.calls

    for rank, outcome in enumerate(on_ranks(world, program, lambda fabric, rank: interrupted(fabric, 0, None))):
        total, notes, calls = outcome
        assert total.tolist() == [rank, rank + 1, rank + 2]
        assert (notes, calls) == (("0", "2"), ["exchange"])


@pytest.mark.slow
def test_errors_come_home_as_they_were_and_the_world_is_kept(world: Any, kept: KeptWorlds, on_ranks: Any) -> None:
    def fails(fabric: Any) -> None:
        region = fabric.allocate(64, 16, "data")
        if fabric.rank == 1:
            raise KeyError("its own fault")
        with pytest.raises(PeerLost, match="rank 1 failed: KeyError: 'its"):
            fabric.barrier()
        fabric.drop(region)

    processes = world.processes.processes
    assert [repr(outcome) for outcome in on_ranks(world, fails)] == ["None", "KeyError('its own fault')"]
    assert [len(world.live_regions(rank)) for rank in range(2)] == [0, 1]
    assert world.held_bytes == 512
    again = kept.get(2, 1 << 16)
    assert again is world
    assert on_ranks(again, lambda fabric: fabric.exchange("x")) == [("x", "x")] * 2
    assert world.processes.processes == processes


def test_disagreement_is_seen_by_both(world: Any, on_ranks: Any) -> None:
    def program(fabric: Any) -> None:
        with SymmetricPool(fabric) as pool:
            pool.tensor(fabric.rank + 1, torch.int32, name="data")

    assert [type(outcome) for outcome in on_ranks(world, program)] == [Disagreement, Disagreement]
