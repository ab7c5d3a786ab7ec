"""What memory/ counts on NVSHMEM for: the same tests on the stand-in, and with -m gpu on the real library.

So the stand-in is held to the library in all but multicast, which needs a switch that not every machine has.
"""

import contextlib

import pytest
import torch

from memory.fabric import LibraryCall
from tests.memory import nvshmem_stand_in
from tests.memory.outcomes import good

SIZE_BYTES = 8 << 10


@pytest.fixture(params=["stand-in", pytest.param("nvshmem", marks=pytest.mark.gpu)])
def world(request):
    """Two ranks whose fabric.library is the stand-in or the real one."""
    if request.param == "stand-in":
        return nvshmem_stand_in.StandInWorld(2, multicast=False)
    return request.getfixturevalue("gpu_worlds")(2, 1 << 20)


def test_memory_lies_at_multiples_of_the_granule_and_at_one_offset(world, on_ranks):
    def program(fabric):
        library = fabric.library
        tensors = [library.tensor(size) for size in (1, 700, 512)]
        seen = []
        for tensor in tensors:
            assert tensor.dtype == torch.uint8
            assert tensor.dim() == 1
            peer = library.get_peer_tensor(tensor, 1 - fabric.rank)
            seen.append((tensor.data_ptr() % 512, peer.data_ptr() - tensor.data_ptr(), tensor.numel()))
            library.free_tensor(peer)
            del peer
        for tensor in reversed(tensors):
            library.free_tensor(tensor)
        return seen

    for seen in good(on_ranks(world, program)):
        assert [remainder for remainder, _, _ in seen] == [0, 0, 0]
        assert len({distance for _, distance, _ in seen}) == 1
        assert seen[0][1] != 0
        assert [numel for _, _, numel in seen] == [1, 700, 512]


def test_a_peer_tensor_shows_the_peers_memory(world, on_ranks):
    def program(fabric):
        tensor = fabric.library.tensor(4)
        tensor.fill_(fabric.rank + 1)
        peer = fabric.library.get_peer_tensor(tensor, 1 - fabric.rank)
        fabric.synchronize()
        fabric.barrier()
        seen = peer.to("cpu").tolist()
        fabric.barrier()
        fabric.library.free_tensor(peer)
        del peer
        fabric.library.free_tensor(tensor)
        return seen

    assert good(on_ranks(world, program)) == [[2] * 4, [1] * 4]


def test_freed_memory_is_given_again_once_unless_the_own_ranks_peer_tensor_keeps_it(world, on_ranks):
    """Why the fabric never asks for its own. All ranks do it here: one alone would hang the others."""

    def program(fabric):
        library = fabric.library
        addresses = set()
        for _ in range(5):
            tensor = library.tensor(SIZE_BYTES)
            addresses.add(tensor.data_ptr())
            for call in (library.free_tensor, lambda view: library.get_peer_tensor(view, 1 - fabric.rank)):
                with pytest.raises(Exception, match="not tracked"):
                    call(tensor[256:])
            library.free_tensor(tensor)
            fabric.barrier()
            with contextlib.suppress(Exception):
                library.free_tensor(tensor)  # not known, or nothing happens: it never frees what lies there now
        size_bytes = 3 * SIZE_BYTES
        tensor = library.tensor(size_bytes)
        own = library.get_peer_tensor(tensor, fabric.rank)
        same = own.data_ptr() == tensor.data_ptr()
        library.free_tensor(tensor)
        other = library.tensor(size_bytes)
        given_again = other.data_ptr() == tensor.data_ptr()
        library.free_tensor(other)
        return len(addresses) == 1, same, given_again

    assert good(on_ranks(world, program)) == [(True, True, False)] * 2


def test_children_go_with_their_parent_and_freeing_one_frees_nothing(world, on_ranks):
    def program(fabric):
        library, peer = fabric.library, 1 - fabric.rank
        first = library.tensor(SIZE_BYTES)
        child = library.get_peer_tensor(first, peer)
        place = (first.data_ptr(), child.data_ptr())
        library.free_tensor(child)
        del child
        other = library.tensor(SIZE_BYTES)
        facts = [other.data_ptr() != place[0]]  # the parent was still held
        library.free_tensor(other)
        child = library.get_peer_tensor(first, peer)
        facts.append(child.data_ptr() == place[1])
        del child  # not freed: the parent's release is
        library.free_tensor(first)
        again = library.tensor(SIZE_BYTES)
        child = library.get_peer_tensor(again, peer)
        facts.append((again.data_ptr(), child.data_ptr()) == place)
        library.free_tensor(child)
        del child
        library.free_tensor(again)
        return facts

    assert good(on_ranks(world, program)) == [[True, True, True]] * 2


@pytest.mark.parametrize(
    ("collective", "reduction", "given", "taken", "expected"),
    [
        ("reduce", "sum", 4, 4, lambda rank: [3, 5, 7, 9]),
        ("reduce", "max", 4, 4, lambda rank: [3, 4, 5, 6]),
        ("reduce", "min", 4, 4, lambda rank: [0, 1, 2, 3]),
        ("reducescatter", "sum", 8, 4, lambda rank: [3 + 2 * index + 8 * rank for index in range(4)]),
        ("fcollect", "", 4, 8, lambda rank: [0, 1, 2, 3, 3, 4, 5, 6]),
        ("alltoall", "", 8, 8, lambda rank: [index + 4 * rank + add for add in (0, 3) for index in range(4)]),
        ("broadcast", "", 4, 4, lambda rank: [3, 4, 5, 6]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8])
def test_the_librarys_collectives_on_raw_addresses(
    world, on_ranks, dtype, collective, reduction, given, taken, expected
):
    """Two ranks: rank 0 gives 0, 1, .., rank 1 gives 3, 4, ..; the root is rank 1."""

    def program(fabric):
        source = fabric.allocate(given * dtype.itemsize, 256, "source")
        target = fabric.allocate(taken * dtype.itemsize, 256, "target")
        data = (torch.arange(given) + 3 * fabric.rank).to(dtype)
        fabric.write(source, 0, data.view(torch.uint8))
        fabric.synchronize()
        fabric.barrier()
        call = LibraryCall(collective, str(dtype), 4, reduction, root=1)
        fabric.queue_library(call, target.address, source.address)
        found = fabric.read(target, 0, taken * dtype.itemsize).view(dtype).tolist()
        fabric.barrier()
        fabric.free(target)
        fabric.free(source)
        return [int(value) for value in found]

    assert good(on_ranks(world, program)) == [expected(0), expected(1)]


def test_copies_and_barriers_are_queued(world, on_ranks):
    def program(fabric):
        data = fabric.allocate(64, 256, "data")
        fabric.write(data, 0, torch.full((32,), fabric.rank + 5, dtype=torch.uint8))
        fabric.queue_barrier()
        fabric.queue_copy(data.address + 32, fabric.peer_address(data, 1 - fabric.rank), 32)
        fabric.queue_barrier()
        seen = fabric.read(data, 32, 32).unique().tolist()
        fabric.free(data)
        return seen

    assert good(on_ranks(world, program)) == [[6], [5]]


def test_two_hundred_rounds_leave_the_heap_and_the_gpu_where_they_began(world, on_ranks):
    def program(fabric):
        seen = []
        for turn in range(200):
            region = fabric.allocate(1 + 3001 * (turn % 100), 256, "data")
            other = fabric.allocate(512 + 77 * (turn % 3), 256, "other")
            if turn in (99, 199):
                seen.append((region.address, fabric.free_bytes))
            fabric.free(other)
            fabric.free(region)
        return seen

    for seen in good(on_ranks(world, program)):
        assert seen[0] == seen[1]
