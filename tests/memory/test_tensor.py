"""SymmetricTensor: contents, addresses, views, and what is said to those who use it too late."""

import pytest
import torch

from memory.fabric import NoMulticast
from memory.pool import SymmetricPool
from memory.tensor import Released
from tests.memory.outcomes import good


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8])
def test_what_is_written_is_read_back_in_every_dtype(make_world, on_ranks, dtype):
    def program(fabric):
        values = torch.arange(6).to(dtype).reshape(2, 3) + fabric.rank
        with SymmetricPool(fabric) as pool:
            data = pool.tensor((2, 3), dtype, name="data")
            assert (data.numel, data.size_bytes) == (6, 6 * dtype.itemsize)
            assert data.read().view(torch.uint8).unique().tolist() == [0xFF]
            data.write(values)
            assert data.read().dtype == dtype
            assert torch.equal(data.read(), values)
            data.fill(7)
            assert torch.equal(data.read(), torch.full((2, 3), 7, dtype=dtype))

    good(on_ranks(make_world(2), program))


def test_a_read_is_a_copy_and_a_strided_tensor_is_written_in_order(make_world, on_ranks):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            data = pool.tensor((3, 2), torch.float32, name="data")
            data.write(torch.arange(6, dtype=torch.float32).reshape(2, 3).T)
            copy = data.read()
            assert copy.flatten().tolist() == [0, 3, 1, 4, 2, 5]
            copy.zero_()
            assert data.read()[0, 1] == 3

    good(on_ranks(make_world(1), program))


def test_an_expanded_tensor_is_written_like_any_other(make_world, on_ranks):
    def program(fabric):
        one = torch.full((), 3.0)
        with SymmetricPool(fabric) as pool:
            for numel in (1, 4):
                data = pool.tensor((numel,), torch.float32, name=f"data {numel}")
                data.write(one.expand(numel))
                assert data.read().tolist() == [3.0] * numel

    good(on_ranks(make_world(1), program))


def test_local_shares_memory_and_is_empty_after_the_scope(make_world, on_ranks):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            data = pool.tensor((4, 2), torch.bfloat16, name="data", fill=1)
            local = data.local
            local[3, 1] = 5
            assert data.read()[3, 1] == 5
            data.fill(2)
            assert local.sum() == 16
        return tuple(local.shape)

    assert good(on_ranks(make_world(2), program)) == [(0,), (0,)]


def test_addresses_are_symmetric_and_aligned(make_world, on_ranks):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            pool.tensor(3, torch.uint8, name="odd")
            first = pool.tensor(10, torch.float32, name="first")
            second = pool.tensor(1, torch.float32, name="second", alignment_bytes=4096)
            assert first.address % 256 == 0
            assert second.address % 4096 == 0
            assert first.peer(fabric.rank).address == first.address == first.peer_addresses()[fabric.rank]
            assert first.peer(1) is first.peer(1)
            return first.peer_addresses(), second.peer_addresses()

    for first, second in good(on_ranks(make_world(3), program)):
        assert len(set(first)) == 3
        assert len({there - here for here, there in zip(first, second, strict=True)}) == 1


def test_multicast_addresses_are_symmetric_and_nobodys_own(make_world, on_ranks, needs_multicast):
    world = make_world(2)
    needs_multicast(world)

    def program(fabric):
        with SymmetricPool(fabric) as pool:
            tensors = [pool.tensor(10, torch.float32, name=name) for name in ("first", "second")]
            return [(tensor.multicast().address, *tensor.peer_addresses()) for tensor in tensors]

    for first, second in good(on_ranks(world, program)):
        assert len(set(first)) == 3
        assert len({there - here for here, there in zip(first, second, strict=True)}) == 1


USES = [
    lambda data: data.address,
    lambda data: data.local,
    lambda data: data.read(),
    lambda data: data.fill(0),
    lambda data: data.write(torch.zeros(4)),
    lambda data: data.peer(0),
    lambda data: data.peer_addresses(),
    lambda data: data.multicast(),
]


def test_every_late_use_names_the_tensor(make_world, on_ranks):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            data = pool.tensor(4, torch.float32, name="data", fill=0)
            views = [data.peer(0), data.peer(1)]
            if fabric.traits.multicast:
                views.append(data.multicast())
        for use in USES:
            with pytest.raises(Released, match='"data" was used after its release'):
                use(data)
        for view in views:
            with pytest.raises(Released, match='view of .*"data".*released'):
                _ = view.address
        assert "released" in repr(data)
        assert "released" in repr(views[0])

    good(on_ranks(make_world(2), program))


def test_wrong_use_is_a_clear_line(make_world, on_ranks):
    def program(fabric):
        with SymmetricPool(fabric) as pool:
            data = pool.tensor(4, torch.float32, name="data")
            with pytest.raises(ValueError, match=r'"data" has replicas on ranks 0 to 1, none on rank 2'):
                data.peer(2)
            with pytest.raises(ValueError, match="none on rank -1"):
                data.peer(-1)
            with pytest.raises(ValueError, match=r'"data" takes 4 elements of torch.float32, not 4 of torch.float64'):
                data.write(torch.zeros(4, dtype=torch.float64))
            with pytest.raises(ValueError, match="not 5 of torch.float32"):
                data.write(torch.zeros(5))
            with pytest.raises(NoMulticast):
                data.multicast()
            flags = pool.tensor(4, torch.uint8, name="flags")
            with pytest.raises(ValueError, match="can't be filled with 1000"):
                flags.fill(1000)

    good(on_ranks(make_world(2, multicast=False), program))
