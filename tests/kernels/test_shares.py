"""Who owns which element, and that a launch has a thread for each rank and signals for each block."""

import pytest
import torch

from kernels import shares


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "uint8"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 72])
@pytest.mark.parametrize("numel", [0, 1, 3, 7, 8, 9, 64, 1000, 4099])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_every_element_has_one_owner_in_rank_order(case_of, dtype, world_size, numel, offset):
    case = case_of(dtype=dtype, world_size=world_size, offset=offset)
    case = case_of(dtype=dtype, world_size=world_size, offset=offset, size_bytes=numel * case.itemsize)
    owner = shares.slice_owner(case, 0)
    assert owner.shape == (numel,)
    per_vector = 16 // case.itemsize
    head = min(-offset % per_vector, numel)
    full = head + (numel - head) // per_vector * per_vector
    edges = torch.cat([owner[:head], owner[full:]])
    assert edges.tolist() == [world_size - 1] * (numel - full + head)
    vectors = owner[head:full].reshape(-1, per_vector)
    assert torch.equal(vectors, vectors[:, :1].expand_as(vectors))
    assert bool((vectors[1:, 0] >= vectors[:-1, 0]).all())
    counts = torch.bincount(vectors[:, 0], minlength=world_size)
    assert int(counts.max() - counts.min()) <= 1
    assert shares.vectors(numel, case.itemsize, offset) == len(vectors)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
@pytest.mark.parametrize("numel", [0, 7, 24, 1000, 1 << 20])
def test_slices_of_the_ranks_after_the_root_begin_at_lines(case_of, world_size, numel):
    case = case_of(world_size=world_size, root=world_size - 1, size_bytes=2 * numel)
    if world_size == 2:
        assert torch.equal(shares.root_slice_owner(case, 0), shares.slice_owner(case, 0))
        return
    owner = shares.root_slice_owner(case, 0)[: numel // 8 * 8]
    others = list(range(world_size - 1))  # those after the root, in order
    assert bool((owner[1:] >= owner[:-1]).all())
    assert set(owner.tolist()) <= set(others)
    lengths = torch.bincount(owner, minlength=len(others)) * case.itemsize
    assert all(int(length) % 128 == 0 for length in lengths[:-1])
    assert int(lengths.max() - lengths.min()) <= 2 * 128
    assert int(lengths.max()) == 16 * shares.of_root_slice(case)


def test_chunks_and_roots_have_their_owners(case_of):
    case = case_of(world_size=4, size_bytes=2 * 24, root=3)
    assert shares.own(case, 2).tolist() == [2] * 6
    assert shares.roots(case, 0).tolist() == [3] * 24


def test_all_ranks_have_a_group_up_to_16(case_of):
    assert [shares.groups(case_of(world_size=n)) for n in (1, 2, 8, 16, 17, 72)] == [1, 2, 8, 16, 4, 4]
