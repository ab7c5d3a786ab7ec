"""SimulatorFabric keeps the Fabric contract: what ranks do together, memory, options."""

import itertools
import random

import numpy as np
import pytest
import torch

from memory.fabric import Disagreement, HeapFull, NoMulticast, PeerLost, Region
from simulator.world import SimulatorOptions
from tests.golden import refused, same_text
from tests.simulator.harness import executable, get, make_world, module, put, run, start, succeed

NOTHING = executable(module(""))


class TestTogether:
    @pytest.mark.parametrize("calls", [("allocate 64", "barrier", "allocate 64", "allocate 128"), ("free 0", "free 1")])
    def test_disagreement_names_the_ranks(self, calls):
        def program(fabric):
            call, _, number = calls[fabric.rank].partition(" ")
            if call == "barrier":
                fabric.barrier()
            elif call == "allocate":
                fabric.allocate(int(number), 256, "data")
            else:
                fabric.free([fabric.allocate(64, 256, name) for name in ("one", "two")][int(number)])

        outcome = run(make_world(len(calls)), program)
        assert {type(one) for one in outcome.errors} == {Disagreement}
        assert len({str(one) for one in outcome.errors}) == 1
        same_text(str(outcome.errors[0]))

    def test_everything_raises_afterwards(self):
        """A broken world stays broken, for every call of every rank; giving memory up still works."""
        said = set()

        def program(fabric):
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
            for call in [fabric.barrier, *calls]:
                with pytest.raises(PeerLost) as raised:
                    call()
                said.add(str(raised.value))
            fabric.drop(data)

        world = make_world(2)
        outcome = run(world, program)
        assert outcome.errors[1] is None
        same_text("\n".join(sorted(said)))
        assert world.live_regions(1) == ()


class TestMemory:
    def test_a_read_is_a_copy_and_a_view_is_not(self):
        def program(fabric):
            data = put(fabric, "data", np.array([5], np.uint8))
            view, copy = fabric.view(data), fabric.read(data, 0, 1)
            fabric.write(data, 0, torch.tensor([6], dtype=torch.uint8))
            return int(view[0]), int(copy[0])

        assert succeed(make_world(1), program).results == [(6, 5)]

    def test_what_is_not_allocated_here(self):
        def program(fabric):
            data, freed = (fabric.allocate(64, 256, name) for name in ("data", "freed"))
            fabric.free(freed)
            strange = Region("strange", data.address + 256, 64)
            said = set()
            for call in (
                lambda: fabric.peer_address(strange, 0),
                lambda: fabric.multicast_address(strange),
                lambda: fabric.view(strange),
                lambda: fabric.read(strange, 0, 1),
                lambda: fabric.write(strange, 0, torch.zeros(1, dtype=torch.uint8)),
                lambda: fabric.free(strange),
                lambda: fabric.free(freed),
            ):
                with pytest.raises(ValueError) as raised:  # noqa: PT011
                    call()
                said.add(str(raised.value))
            fabric.drop(strange)
            return said

        same_text("\n".join(sorted(set.union(*succeed(make_world(2), program).results))))

    def test_bounds_of_the_host(self):
        fabric = make_world(1).fabric(0)
        data = fabric.allocate(64, 256, "data")
        for offset, size in ((0, 65), (64, 1), (-1, 2)):
            with refused():
                fabric.read(data, offset, size)
        for values in (torch.zeros(10, dtype=torch.uint8), torch.zeros(4)):
            with refused():
                fabric.write(data, 60, values)
        with refused():
            fabric.peer_address(data, 1)

    def test_a_full_heap_says_what_would_fit_and_it_does(self):
        def program(fabric):
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

        same_text("\n".join(succeed(make_world(2, heap_bytes=1 << 20), program).results))

    def test_no_two_allocations_touch(self):
        """Random orders of taking and giving back: contents stay, addresses stay apart, and the heap is empty again."""

        def program(fabric):
            rng = random.Random(11)
            held = []
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
    def test_sizes_and_alignments(self, size, alignment):
        with refused():
            make_world(1).fabric(0).allocate(size, alignment, "data")

    def test_no_multicast(self):
        fabric = make_world(1, multicast=False).fabric(0)
        data = fabric.allocate(64, 256, "data")
        assert not fabric.traits.multicast
        with refused(NoMulticast) as raised:
            fabric.multicast_address(data)
        assert str(raised.value) == fabric.traits.multicast_reason


class TestOptions:
    @pytest.mark.parametrize("size", [0, -1, 73])
    def test_world_sizes(self, size):
        with refused():
            make_world(size)

    @pytest.mark.parametrize(
        "change", [{"multimem": "best"}, {"schedule": "unfair"}, {"heap_bytes": 100}, {"heap_bytes": 1 << 40}]
    )
    def test_impossible_values(self, change):
        with refused():
            SimulatorOptions(**change)

    @pytest.mark.parametrize(("parameters", "given"), [(["u64 a", "u32 b"], [1]), (["u64 a"], [1, 2]), ([], [1])])
    def test_numbers_of_arguments(self, parameters, given):
        with refused():
            start(make_world(1).fabric(0), executable(module("", parameters)), 1, 1, given)

    def test_arguments_differ_by_rank_and_wrap_to_their_parameters(self):
        ptx = module("st.global.b32 [%out], %small;", ["u64 out", "u32 small"])

        def program(fabric):
            out = fabric.allocate(4, 256, "out")
            start(fabric, executable(ptx), 1, 1, [out.address, -1 - fabric.rank])
            return int(get(fabric, out, "u4")[0])

        assert succeed(make_world(3), program).results == [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD]
