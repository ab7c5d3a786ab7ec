"""The Fabric contract itself, on every kind of world: what the pool and the program count on."""

import threading
import time

import pytest
import torch

from memory.fabric import Disagreement, FabricError, PeerLost
from tests.memory.outcomes import good
from tests.patience import PATIENCE_S


def test_everybody_gets_everybodys_note_each_time(make_world, on_ranks):
    def program(fabric, run):
        return [fabric.exchange(f"{fabric.rank} says {run}.{turn}") for turn in range(20)]

    world = make_world(5)
    for run in range(3):
        expected = [tuple(f"{rank} says {run}.{turn}" for rank in range(5)) for turn in range(20)]
        assert good(on_ranks(world, lambda fabric, run=run: program(fabric, run))) == [expected] * 5


def test_nobody_passes_a_barrier_before_all_are_there(make_world, on_ranks):
    def program(fabric):
        times = []
        for late in range(fabric.world_size):
            if fabric.rank == late:
                time.sleep(0.05)
            came = time.monotonic()
            fabric.barrier()
            times.append((came, time.monotonic()))
        return times

    for times in zip(*good(on_ranks(make_world(2), program)), strict=True):
        assert max(came for came, _ in times) <= min(went for _, went in times)


def test_fresh_memory_reads_as_poison_and_bytes_keep_their_place(make_world, on_ranks):
    def program(fabric):
        region = fabric.allocate(40, 64, "data")
        assert (region.name, region.size_bytes, region.address % 64) == ("data", 40, 0)
        assert fabric.read(region, 0, 40).tolist() == [0xFF] * 40
        data = torch.tensor([1, 2, 3], dtype=torch.uint8)
        fabric.write(region, 3, data)
        data.zero_()
        assert fabric.read(region, 2, 5).tolist() == [0xFF, 1, 2, 3, 0xFF]
        view = fabric.view(region)
        assert (view.dtype, tuple(view.shape)) == (torch.uint8, (40,))
        view[39] = 9
        assert fabric.read(region, 38, 2).tolist() == [0xFF, 9]
        del view  # a fabric may refuse to free what is still looked at
        fabric.free(region)

    good(on_ranks(make_world(2), program))


def test_different_collective_calls_are_a_disagreement(make_world, on_ranks):
    world = make_world(3)

    def program(fabric):
        if fabric.rank == 1:
            fabric.allocate(64, 256, "data")
        else:
            fabric.barrier()

    outcomes = on_ranks(world, program)
    assert all(isinstance(outcome, Disagreement) for outcome in outcomes), outcomes
    assert [world.live_regions(rank) for rank in range(3)] == [(), (), ()]


@pytest.mark.parametrize("error", [None, ValueError("its own fault")])
def test_who_waits_for_a_rank_that_has_left_is_told_who(make_world, on_ranks, error):
    def program(fabric):
        fabric.barrier()
        if fabric.rank == 2:
            if error is not None:
                raise error
            return
        fabric.barrier()

    outcomes = on_ranks(make_world(3), program)
    assert repr(outcomes[2]) == repr(error)
    for outcome in outcomes[:2]:
        assert isinstance(outcome, PeerLost)
        assert "rank 2" in str(outcome)
        assert error is None or "its own fault" in str(outcome)


def test_an_abort_reaches_who_waits_and_who_comes_later(make_world, on_ranks):
    world = make_world(2)
    if not hasattr(world, "abort"):
        pytest.skip("a world of processes is ended by ending them: tests of ProcessWorld are about that")
    aborted = threading.Event()

    def program(fabric):
        if fabric.rank == 0:
            fabric.barrier()
        aborted.wait(PATIENCE_S)
        fabric.synchronize()
        fabric.barrier()

    def abort():
        time.sleep(0.1)
        world.abort(FabricError("no more of this"))
        aborted.set()

    threading.Thread(target=abort, daemon=True).start()
    for outcome in on_ranks(world, program):
        assert isinstance(outcome, FabricError)
        assert "no more of this" in str(outcome)


def test_drop_waits_for_nobody_and_never_raises(make_world, on_ranks):
    world = make_world(2)

    def program(fabric):
        region = fabric.allocate(64, 256, "data")
        if fabric.rank == 0:
            raise ValueError("its own fault")
        with pytest.raises(PeerLost):
            fabric.barrier()
        fabric.drop(region)
        fabric.drop(region)
        return region

    on_ranks(world, program)
    assert len(world.live_regions(0)) == 1, "this rank did not drop its memory"
    assert world.live_regions(1) == ()
