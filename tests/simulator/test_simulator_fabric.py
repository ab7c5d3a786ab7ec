"""SimulatorFabric keeps the Fabric contract: what ranks do together, memory, options."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import numpy as np
import pytest
import torch
from simulator_harness import executable, get, make_world, module, put, run, start, succeed

from memory.fabric import Disagreement, HeapFull, NoMulticast, PeerLost, Region
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatorOptions
from tests.patience import PATIENCE_S

NOTHING = executable(module(""))


class TestTogether:
    @pytest.mark.parametrize("world_size", [1, 2, 72])
    def test_exchange(self, world_size: int) -> None:
        def program(fabric: SimulatorFabric) -> list[tuple[str, ...]]:
            return [fabric.exchange(f"{fabric.rank}/{turn}") for turn in range(3)]

        wanted = [tuple(f"{rank}/{turn}" for rank in range(world_size)) for turn in range(3)]
        assert succeed(make_world(world_size), program).results == [wanted] * world_size

    def test_a_barrier_waits(self) -> None:
        arrived: list[int] = []

        def program(fabric: SimulatorFabric) -> int:
            time.sleep(0.02 * fabric.rank)
            arrived.append(fabric.rank)
            fabric.barrier()
            return len(arrived)

        assert succeed(make_world(4), program).results == [4] * 4

    def test_disagreement_names_the_ranks(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            if fabric.rank == 1:
                fabric.barrier()
            else:
                fabric.allocate(64 if fabric.rank != 3 else 128, 256, "data")

        outcome = run(make_world(4), program)
        assert all(isinstance(one, Disagreement) for one in outcome.errors)
        text = str(outcome.errors[0])
        assert "ranks 0, 2: allocate data: 64 bytes" in text
        assert "rank 1: barrier" in text
        assert "rank 3: allocate data: 128 bytes" in text

    def test_disagreement_about_what_to_free(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            regions = [fabric.allocate(64, 256, name) for name in ("one", "two")]
            fabric.free(regions[fabric.rank])

        outcome = run(make_world(2), program)
        assert all("rank 0: free one" in str(one) and "rank 1: free two" in str(one) for one in outcome.errors)

    def test_a_rank_that_leaves(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            if fabric.rank != 1:
                fabric.exchange("hello")

        outcome = run(make_world(3), program)
        assert [type(one) for one in outcome.errors] == [PeerLost, type(None), PeerLost]
        assert "ranks 0, 2 wait for all in 'hello', but rank 1 has left" in str(outcome.errors[0])
        assert outcome.wall_s < PATIENCE_S

    def test_one_rank_alone_waits(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            if fabric.rank == 1:
                fabric.barrier()

        outcome = run(make_world(2), program)
        assert "rank 1 waits for all in 'barrier', but rank 0 has left" in str(outcome.errors[1])

    @pytest.mark.parametrize("failure", [RuntimeError("broken"), KeyboardInterrupt()])
    def test_a_rank_that_fails(self, failure: BaseException) -> None:
        def program(fabric: SimulatorFabric) -> None:
            fabric.barrier()
            if fabric.rank == 2:
                raise failure
            fabric.barrier()

        outcome = run(make_world(3), program)
        assert outcome.errors[2] is failure
        for rank in (0, 1):
            assert isinstance(outcome.errors[rank], PeerLost)
            assert f"rank 2 failed: {type(failure).__name__}" in str(outcome.errors[rank])

    def test_everything_raises_afterwards(self) -> None:
        """A broken world stays broken, for every call of every rank; giving memory up still works."""
        said: list[str] = []

        def program(fabric: SimulatorFabric) -> None:
            data = fabric.allocate(64, 256, "data")
            if fabric.rank == 0:
                raise RuntimeError("first")
            calls = [
                fabric.barrier,
                lambda: fabric.exchange("x"),
                lambda: fabric.allocate(64, 256, "more"),
                lambda: start(fabric, NOTHING, 1, 1, []),
                fabric.synchronize,
                lambda: fabric.read(data, 0, 64),
                lambda: fabric.write(data, 0, torch.zeros(64, dtype=torch.uint8)),
                lambda: fabric.free(data),
            ]
            with pytest.raises(PeerLost):
                fabric.barrier()
            for call in calls:
                with pytest.raises(PeerLost) as raised:
                    call()
                said.append(str(raised.value))
            fabric.drop(data)

        world = make_world(2)
        outcome = run(world, program)
        assert outcome.errors[1] is None
        assert all("rank 0 failed: RuntimeError: first" in one for one in said)
        assert len(said) == 8
        assert world.live_regions(1) == ()


class TestMemory:
    def test_poison_write_read(self) -> None:
        def program(fabric: SimulatorFabric) -> list[list[int]]:
            data = fabric.allocate(8, 256, "data")
            out = [fabric.read(data, 0, 8).tolist()]
            fabric.write(data, 2, torch.tensor([1, 2, 3], dtype=torch.uint8))
            out.append(fabric.read(data, 0, 8).tolist())
            out.append(fabric.read(data, 3, 2).tolist())
            fabric.view(data)[:] = 9
            out.append(fabric.read(data, 0, 8).tolist())
            fabric.free(data)
            again = fabric.allocate(8, 256, "again")
            assert again.address == data.address
            return [*out, fabric.read(again, 0, 8).tolist()]

        wanted = [[255] * 8, [255, 255, 1, 2, 3, 255, 255, 255], [2, 3], [9] * 8, [255] * 8]
        assert succeed(make_world(2), program).results == [wanted] * 2

    def test_a_read_is_a_copy_and_a_view_is_not(self) -> None:
        def program(fabric: SimulatorFabric) -> tuple[int, int]:
            data = put(fabric, "data", np.array([5], np.uint8))
            view, copy = fabric.view(data), fabric.read(data, 0, 1)
            fabric.write(data, 0, torch.tensor([6], dtype=torch.uint8))
            return int(view[0]), int(copy[0])

        assert succeed(make_world(1), program).results == [(6, 5)]

    def test_the_same_offset_on_every_rank_and_an_address_for_every_viewer(self) -> None:
        def program(fabric: SimulatorFabric) -> tuple[list[int], int]:
            fabric.allocate(100 * 256, 256, "first")
            data = fabric.allocate(64, 1 << 14, "data")
            assert data.address % (1 << 14) == 0
            peers = [fabric.peer_address(data, peer) for peer in range(4)]
            assert peers[fabric.rank] == data.address
            return peers, fabric.multicast_address(data)

        results = succeed(make_world(4), program).results
        every = [address for peers, multicast in results for address in (*peers, multicast)]
        assert len(set(every)) == 20
        heaps = [[address - peers[0] for address in peers] for peers, _ in results]
        assert all(one == heaps[0] for one in heaps)

    def test_freed_twice(self) -> None:
        def program(fabric: SimulatorFabric) -> str:
            data = fabric.allocate(64, 256, "data")
            fabric.free(data)
            with pytest.raises(ValueError, match="data is not allocated here") as raised:
                fabric.free(data)
            return str(raised.value)

        assert "rank 1" in succeed(make_world(2), program).results[1]

    def test_what_is_not_allocated_here(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            data = fabric.allocate(64, 256, "data")
            strange = Region("strange", data.address + 256, 64)
            for call in (
                lambda: fabric.peer_address(strange, 0),
                lambda: fabric.multicast_address(strange),
                lambda: fabric.view(strange),
                lambda: fabric.read(strange, 0, 1),
                lambda: fabric.write(strange, 0, torch.zeros(1, dtype=torch.uint8)),
                lambda: fabric.free(strange),
            ):
                with pytest.raises(ValueError, match="strange is not allocated here"):
                    call()
            fabric.drop(strange)

        succeed(make_world(1), program)

    def test_bounds_of_the_host(self) -> None:
        def program(fabric: SimulatorFabric) -> None:
            data = fabric.allocate(64, 256, "data")
            for offset, size in ((0, 65), (64, 1), (-1, 2)):
                with pytest.raises(ValueError, match="data: bytes"):
                    fabric.read(data, offset, size)
            with pytest.raises(ValueError, match="data: bytes 60 to 70 of 64"):
                fabric.write(data, 60, torch.zeros(10, dtype=torch.uint8))
            with pytest.raises(ValueError, match="flat uint8 tensor"):
                fabric.write(data, 0, torch.zeros(4))
            with pytest.raises(ValueError, match="rank 1 does not exist"):
                fabric.peer_address(data, 1)

        succeed(make_world(1), program)

    def test_a_full_heap_says_what_would_fit_and_it_does(self) -> None:
        def program(fabric: SimulatorFabric) -> str:
            keep = fabric.allocate(100_000, 256, "keep")
            with pytest.raises(HeapFull) as raised:
                fabric.allocate(1 << 20, 256, "big")
            text = str(raised.value)
            fits = int(text.split(" bytes would fit")[0].split("; ")[-1].replace(",", ""))
            fabric.free(fabric.allocate(fits, 256, "fits"))
            with pytest.raises(HeapFull):
                fabric.allocate(fits + 1, 256, "too much")
            fabric.free(keep)
            fabric.free(fabric.allocate(1 << 20, 256, "big"))
            return text

        for rank, text in enumerate(succeed(make_world(2, heap_bytes=1 << 20), program).results):
            assert (
                f"rank {rank}: big needs 1,048,576 bytes of a symmetric heap of 1,048,576 bytes that holds 100,000"
                in text
            )

    def test_no_two_allocations_touch(self) -> None:
        """Random orders of taking and giving back: contents stay, addresses stay apart, and the heap is empty again."""

        def program(fabric: SimulatorFabric) -> None:
            rng = random.Random(11)
            held: list[tuple[Region, int]] = []
            for turn in range(150):
                if held and (rng.random() < 0.45 or len(held) > 12):
                    region, mark = held.pop(rng.randrange(len(held)))
                    assert set(fabric.read(region, 0, region.size_bytes).tolist()) == {mark}
                    fabric.free(region)
                else:
                    alignment = 1 << rng.randrange(4, 13)
                    region = fabric.allocate(rng.randrange(1, 20_000), alignment, f"t{turn}")
                    assert region.address % alignment == 0
                    assert set(fabric.read(region, 0, region.size_bytes).tolist()) == {255}
                    fabric.view(region)[:] = turn % 250
                    held.append((region, turn % 250))
                spans = sorted((one.address, one.address + one.size_bytes) for one, _ in held)
                assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
            for region, _ in held:
                fabric.free(region)

        world = make_world(2)
        succeed(world, program)
        assert [world.live_regions(rank) for rank in range(2)] == [(), ()]

    @pytest.mark.parametrize(("size", "alignment"), [(0, 256), (-1, 256), (16, 3), (16, 0)])
    def test_sizes_and_alignments(self, size: int, alignment: int) -> None:
        def program(fabric: SimulatorFabric) -> None:
            with pytest.raises(ValueError, match="sizes are positive, alignments powers of two"):
                fabric.allocate(size, alignment, "data")

        succeed(make_world(1), program)

    def test_no_multicast(self) -> None:
        def program(fabric: SimulatorFabric) -> str:
            data = fabric.allocate(64, 256, "data")
            assert not fabric.traits.multicast
            with pytest.raises(NoMulticast) as raised:
                fabric.multicast_address(data)
            assert str(raised.value) == fabric.traits.multicast_reason
            return str(raised.value)

        assert "multicast" in succeed(make_world(1, multicast=False), program).results[0]


class TestOptions:
    @pytest.mark.parametrize("size", [0, -1, 73])
    def test_world_sizes(self, size: int) -> None:
        with pytest.raises(ValueError, match=f"world_size is {size}; the simulator has 1 to 72 ranks"):
            make_world(size)

    @pytest.mark.parametrize(
        "change", [{"multimem": "best"}, {"schedule": "unfair"}, {"heap_bytes": 100}, {"heap_bytes": 1 << 40}]
    )
    def test_impossible_values(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(change))} is "):
            SimulatorOptions(**change)

    @pytest.mark.parametrize(("parameters", "given"), [(["u64 a", "u32 b"], [1]), (["u64 a"], [1, 2]), ([], [1])])
    def test_numbers_of_arguments(self, parameters: list[str], given: list[int]) -> None:
        def program(fabric: SimulatorFabric) -> None:
            with pytest.raises(ValueError, match=f"has {len(parameters)} parameters, and was given {len(given)}"):
                start(fabric, executable(module("", parameters)), 1, 1, given)

        succeed(make_world(1), program)

    def test_arguments_differ_by_rank_and_wrap_to_their_parameters(self) -> None:
        ptx = module("st.global.b32 [%out], %small;", ["u64 out", "u32 small"])

        def program(fabric: SimulatorFabric) -> int:
            out = fabric.allocate(4, 256, "out")
            start(fabric, executable(ptx), 1, 1, [out.address, -1 - fabric.rank])
            return int(get(fabric, out, "u4")[0])

        assert succeed(make_world(3), program).results == [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD]
