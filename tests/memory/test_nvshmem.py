"""NvshmemFabric on the stand-in: what the contract's own tests don't ask, and NVSHMEM's facts do."""

import functools
import time

import pytest
import torch
from torch.distributed import HashStore

from memory.fabric import DeadlineExceeded, DeviceFault, Executable, FabricError, HeapFull, Launch, NoMulticast
from memory.library import probe
from memory.meeting import Meeting
from memory.pool import SymmetricPool
from tests.golden import refused, same_text
from tests.memory.driver_stand_in import Spinning
from tests.memory.nvshmem_stand_in import StandInLibrary, StandInWorld
from tests.memory.outcomes import good, together

ONE = Launch(1, 32)


def kernel(name):
    return Executable(f"test/{name}", name, "sm_90a", "", f"sha256:{name}")


def test_traits_say_what_was_found():
    traits = StandInWorld(4).fabric(0).traits
    assert (traits.name, traits.arch, traits.world_size, traits.heap_bytes) == ("nvshmem", "sm_90a", 4, 1 << 20)
    assert (traits.multicast, traits.multicast_reason, traits.unmapped) == (True, "", "")
    assert traits.description == "stand-in, libnvshmem 0.0.0, nvshmem4py stand-in"
    assert traits.l2_bytes == 50 << 20
    assert traits.multiprocessors == 132
    assert not traits.simulated
    world = StandInWorld(1)
    world.fabrics[0].note_queued("all_reduce/nccl")
    assert world.drivers[0].noted == ["all_reduce/nccl"]


@pytest.mark.parametrize(("multicast", "rank"), [(False, 0), ((0, 2), 1)], ids=["nowhere", "not on rank 1"])
def test_without_multicast_the_librarys_reason_is_kept(on_ranks, multicast, rank, monkeypatch):
    monkeypatch.delenv("NVSHMEM_DISABLE_NVLS", raising=False)
    world = StandInWorld(3, multicast=multicast)

    def program(fabric):
        with SymmetricPool(fabric) as pool, pytest.raises(NoMulticast) as caught:
            pool.tensor(4, torch.int32, name="data").multicast()
        return str(caught.value)

    reason = f"NVSHMEM gave rank {rank} no multicast address: NvshmemError: Failed to retrieve multicast buffer"
    assert good(on_ranks(world, program)) == [reason] * 3
    assert [world.fabric(one).traits.multicast_reason for one in range(3)] == [reason] * 3


def test_one_rank_alone_has_no_multicast_and_that_the_user_turned_it_off_is_said(monkeypatch):
    monkeypatch.delenv("NVSHMEM_DISABLE_NVLS", raising=False)
    same_text(StandInWorld(1).fabric(0).traits.multicast_reason)
    monkeypatch.setenv("NVSHMEM_DISABLE_NVLS", "1")
    same_text(StandInWorld(1).fabric(0).traits.multicast_reason)
    assert StandInWorld(2).fabric(0).traits.multicast_reason == ""


def test_unmapped_peers_are_named_and_the_rest_goes_on(on_ranks):
    world = StandInWorld(4, unmapped=[(0, 2), (0, 3), (2, 0)])

    def program(fabric):
        region = fabric.allocate(64, 16, "data")
        reached = 0
        for peer in range(4):
            if (fabric.rank, peer) in world.unmapped:
                with pytest.raises(ValueError, match=f"rank {fabric.rank} .*rank {peer}"):
                    fabric.peer_address(region, peer)
            else:
                reached += fabric.peer_address(region, peer) > 0
        fabric.free(region)
        return reached

    assert good(on_ranks(world, program)) == [2, 4, 3, 4]
    assert world.fabric(3).traits.unmapped == "rank 0 can't reach ranks 2, 3; rank 2 can't reach rank 0"


def test_the_own_peer_is_never_asked_of_the_library_and_200_rounds_leave_nothing(on_ranks):
    world = StandInWorld(3, heap_bytes=1 << 18)

    def program(fabric):
        addresses = set()
        for turn in range(100):
            with SymmetricPool(fabric) as pool:
                first = pool.tensor(1 + 37 * turn, torch.uint8, name="first")
                pool.tensor(1 + 11 * turn, torch.float64, name="second").multicast()
                addresses.add(first.peer_addresses()[fabric.rank] - first.address)
                addresses.add(first.address - world.windows[fabric.rank].address)
        return addresses

    assert good(on_ranks(world, program)) == [{0}] * 3
    assert world.spans == {}
    for library in world.libraries:
        assert (library.own_peer_requests, library.entries) == (0, {})
    assert [world.live_regions(rank) for rank in range(3)] == [(), (), ()]


def test_the_library_is_called_in_one_order_on_all_ranks(on_ranks):
    world = StandInWorld(2)

    def program(fabric):
        regions = [fabric.allocate(size, 256, f"of {size}") for size in (100, 5000)]
        for region in regions:
            fabric.free(region)
        fabric.barrier()
        fabric.close()

    good(on_ranks(world, program))
    assert world.calls[0] == world.calls[1]
    found = ["init", "malloc 512", "free 0", "malloc 100", "malloc 5000", "free 0", "free 512", "finalize"]
    assert world.calls[0] == found
    assert world.complaints == []
    assert [library.initialized for library in world.libraries] == [False, False]


@pytest.mark.parametrize("alignment_bytes", [1, 512, 4096, 1 << 16])
def test_alignments_hold_on_all_ranks_and_through_multicast(on_ranks, alignment_bytes):
    def program(fabric):
        fabric.allocate(1, 1, "before")
        region = fabric.allocate(100, alignment_bytes, "data")
        seen = (*(fabric.peer_address(region, peer) for peer in range(2)), fabric.multicast_address(region))
        assert all(address % alignment_bytes == 0 for address in seen)
        fabric.write(region, 0, torch.arange(100, dtype=torch.uint8))
        assert fabric.read(region, 0, 100).tolist() == list(range(100))
        return seen

    assert len(set(good(on_ranks(StandInWorld(2), program)))) == 1


@pytest.mark.parametrize(
    ("free_bytes", "heap_bytes"),
    [({0: 79 << 30, 1: 41 << 30}, 41 << 29), ({0: (3 << 30) - 1, 1: 79 << 30}, 1 << 30), ({0: 1, 1: 1}, 512 << 20)],
)
def test_a_heap_of_what_is_free_is_that_of_the_gpu_with_the_least(free_bytes, heap_bytes):
    """Half of it, in whole steps, on all ranks the same; and never none."""
    meetings = [Meeting(store, rank, 2) for store in [HashStore()] for rank in range(2)]
    world = StandInWorld(2, gpu_free_bytes=free_bytes)
    found = good(
        together(lambda one=one: probe(world.libraries[one.rank], world.drivers[one.rank], one, 0) for one in meetings)
    )
    assert [traits.heap_bytes for traits, _ in found] == [heap_bytes] * 2


def test_what_one_rank_lacks_all_ranks_are_told_and_the_world_goes_on(on_ranks):
    world = StandInWorld(3, heap_bytes=1 << 40 >> 16, gpu_free_bytes={1: (512 + 256 << 20) - 1})

    def program(fabric):
        with pytest.raises(HeapFull) as caught:
            fabric.allocate(1 << 20, 256, "big")
        assert fabric.exchange("still here") == ("still here",) * 3
        return str(caught.value)

    (message,) = set(good(on_ranks(world, program)))
    same_text(message)
    assert world.spans == {}
    world.gpu_free_bytes[1] += 1

    def again(fabric):
        fabric.free(fabric.allocate(1 << 20, 256, "big"))
        world.gpu_free_bytes[fabric.rank] = 0
        # The library's heap has grown by its step, and keeps it.
        fabric.free(fabric.allocate(1 << 20, 256, "big"))

    good(on_ranks(world, again))


def test_nobody_frees_what_one_rank_still_looks_at(on_ranks):
    world = StandInWorld(2)

    def program(fabric):
        region = fabric.allocate(64, 16, "data")
        view = fabric.view(region)[3:5] if fabric.rank == 1 else None
        with pytest.raises(ValueError, match='a view of "data" outlives it on rank 1'):
            fabric.free(region)
        if view is not None:
            view.fill_(7)
            del view
        assert fabric.read(region, 3, 1).tolist() == [7 if fabric.rank else 0xFF]
        fabric.free(region)

    good(on_ranks(world, program))
    assert world.spans == {}


def test_faults_and_kernels_that_never_end_name_the_rank(on_ranks):
    world = StandInWorld(2)

    def spin(fabric):
        if fabric.rank:
            raise Spinning

    world.kernels["spin"] = spin
    world.kernels["stray"] = lambda fabric: world.at(fabric.rank, 4096, 4)

    def program(fabric):
        fabric.launch(kernel("stray"), ONE, [])
        with pytest.raises(DeviceFault, match=f"rank {fabric.rank}: .*bytes at 0x1000"):
            fabric.synchronize()
        fabric.set_deadline(time.monotonic() + 0.1)
        fabric.launch(kernel("spin"), ONE, [])
        fabric.synchronize()

    outcomes = on_ranks(world, program)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], DeadlineExceeded)
    assert "work launched on rank 1 is still running" in str(outcomes[1])


def test_what_was_dropped_counts_and_is_named_at_the_end(on_ranks):
    world = StandInWorld(2, heap_bytes=1 << 16)

    def program(fabric):
        region = fabric.allocate(1 << 15, 256, "data")
        fabric.drop(region)
        assert fabric.live_regions() == ()
        with pytest.raises(HeapFull, match="32,768 .*32,768 bytes"):
            fabric.allocate((1 << 15) + 1, 256, "more")
        messages = []
        for close in (fabric.close, fabric.barrier):
            with pytest.raises(FabricError) as caught:
                close()
            messages.append(str(caught.value))
        fabric.close()
        return messages

    leak = "leak: symmetric memory was never freed before the end: rank 0: 'data'; rank 1: 'data'"
    assert good(on_ranks(world, program)) == [[leak, f"rank {rank} has closed its fabric"] for rank in range(2)]
    assert len(world.complaints) == 2


def linked(name):
    """A kernel with NVSHMEM's device code in it. Its CUlibrary has the handle 7000 + the length of its digest."""
    return Executable(f"test/{name}", name, "sm_90a", ".const .b8 nvshmemi_device_state_d[848];", f"sha256:{name}")


def test_device_code_is_started_once_and_finished_before_the_library(on_ranks):
    world = StandInWorld(2)
    world.kernels |= {name: lambda fabric: None for name in ("a", "bb", "plain")}

    def program(fabric):
        for one in (linked("a"), linked("bb"), kernel("plain"), linked("a")):
            fabric.launch(one, ONE, [])
        fabric.synchronize()
        started = list(world.libraries[fabric.rank].started)
        fabric.close()
        return started

    assert good(on_ranks(world, program)) == [[7008, 7009]] * 2
    assert [library.ended for library in world.libraries] == [[7009, 7008]] * 2
    assert world.complaints == []


def test_device_code_is_finished_after_a_fault_and_the_fault_is_what_is_told(on_ranks):
    world = StandInWorld(2)
    world.kernels["a"] = lambda fabric: world.at(fabric.rank, 4096, 4)

    def program(fabric):
        world.libraries[fabric.rank].failing.add(7008)
        fabric.launch(linked("a"), ONE, [])
        with pytest.raises(DeviceFault, match="belong to no allocation"):
            fabric.close()

    good(on_ranks(world, program))
    assert [library.ended for library in world.libraries] == [[7008]] * 2


def test_a_library_that_fails_is_a_fabric_error_with_the_rank(on_ranks, monkeypatch):
    world = StandInWorld(2)
    monkeypatch.setattr(world, "place", lambda size_bytes: None)

    def program(fabric):
        with pytest.raises(FabricError) as caught:
            fabric.allocate(64, 16, "data")
        return str(caught.value)

    for message in good(on_ranks(world, program)):
        same_text(message)


def test_two_ranks_of_one_gpu_are_named_before_anything_starts(monkeypatch):
    """As two processes of torchrun on one GPU: without share_gpus their times would be those of turns."""
    started = []
    monkeypatch.setattr(StandInLibrary, "init", lambda library, identity, rank, size: started.append(rank))
    with refused(FabricError) as caught:
        StandInWorld(3, gpus=("GPU-a", "GPU-b", "GPU-a"))
    assert caught.value.rank == 2
    assert started == []


def test_ranks_that_may_share_a_gpu_share_its_memory():
    apart = StandInWorld(3, heap_bytes=0, gpu_free_bytes=dict.fromkeys(range(3), 8 << 30))
    free = dict.fromkeys(range(3), 8 << 30)
    shared = StandInWorld(3, heap_bytes=0, gpu_free_bytes=free, gpus=("GPU-a", "GPU-b", "GPU-a"), share_gpus=True)
    assert (apart.fabric(0).traits.ranks_on_gpu, apart.fabric(0).traits.heap_bytes) == (1, 4 << 30)
    assert (shared.fabric(0).traits.ranks_on_gpu, shared.fabric(0).traits.heap_bytes) == (2, 2 << 30)
    assert shared.fabric(0).traits.description.endswith(", up to 2 ranks on a GPU")
    assert "ranks on a GPU" not in apart.fabric(0).traits.description


def test_room_on_a_shared_gpu_is_divided():
    """Each of two ranks sees 3 GiB free, of which both would otherwise take 2."""
    free = dict.fromkeys(range(2), (3 << 30) + (256 << 20))
    world = StandInWorld(2, heap_bytes=4 << 30, gpu_free_bytes=free, gpus=("GPU-a",) * 2, share_gpus=True)
    outcomes = good(together(functools.partial(_refused, world.fabric(rank)) for rank in range(2)))
    assert all("1,610,612,736" in text for text in outcomes), outcomes


def _refused(fabric):
    with pytest.raises(HeapFull) as caught:
        fabric.allocate(2 << 30, 16, "large")
    return str(caught.value)
