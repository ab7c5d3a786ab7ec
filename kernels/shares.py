"""How kernels divide a buffer among ranks, said for the host: vectors, slices, and the owner of each element.

Sliced kernels (two_shot and its kin) divide the vectors between the first and last 16-byte boundary into contiguous
slices in rank order, one vector longer for the first ranks if they don't divide evenly; the elements before and after
them, the edges, are the last rank's. kernels/dsl/traverse.py says the same for the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cases.case import Case
from kernels.spec import Workspace

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16

LINE_BYTES = 128
"""A cache line. Copies of slices that begin off one are slower over NVLink (root_owners)."""

BATCH = 8
"""Maximum number of ranks whose loads are issued together (kernels/dsl/peers.py), and of vectors that a thread takes at
a time."""

MOST_GROUPS, FEW_GROUPS = 16, 4
"""Larger worlds than 16 are only simulated, where idle blocks cost time: a group goes through several ranks."""


def vectors(numel: int, itemsize: int, offset: int = 0) -> int:
    """Vectors within a buffer of numel elements that begins offset elements after a 16-byte boundary."""
    _, body, _ = parts(numel, itemsize, offset)
    return body * itemsize // VECTOR_BYTES


def of_buffer(case: Case) -> int:
    """Vectors within all of a case's elements."""
    return vectors(case.numel, case.itemsize, case.offset)


def of_chunk(case: Case) -> int:
    """Vectors within a rank's chunk of them."""
    return vectors(case.numel // case.world_size, case.itemsize)


def of_chunks(case: Case) -> int:
    """Vectors that groups of blocks go through together, a chunk each."""
    return groups(case) * of_chunk(case)


def of_slice(case: Case) -> int:
    """Vectors within the longest slice of a case's elements."""
    return longest_slice(of_buffer(case), case.world_size)


def root_owners(world_size: int) -> int:
    """Number of ranks with a slice where the root's links are the busiest: from three ranks on all but the root, whose
    slices are in the order of the ranks after it and begin at whole lines; else all, in rank order.

    Each byte then crosses the root's links once. On 4 H100 broadcast of 256 MiB took two_shot 1123 us where the root
    had a slice, 935 without one, and 846 since slices begin at lines (bulk 1376 and 825, NCCL 787); of 16 MiB the best
    of ours takes 63 us, NCCL 73; reduce 63 and 68 (27 November 2026, multicast off). On two ranks a byte crosses once
    either way, and both GPUs work.
    """
    return world_size - 1 if world_size > 2 else world_size


def of_root_slice(case: Case) -> int:
    """Vectors within the longest slice where the root has none."""
    owners = root_owners(case.world_size)
    count = of_buffer(case)
    return longest_slice(count, owners) if owners == case.world_size else max(line_slices(count, owners))


def each_rank(case: Case) -> int:
    """Number of ranks: loads before a reduced vector can be stored."""
    return case.world_size


def row_bytes(size_bytes: int) -> int:
    """Bytes of a row of scratch for a copy of size_bytes that has its 16-byte boundaries anywhere."""
    return (size_bytes + 2 * VECTOR_BYTES - 1) // VECTOR_BYTES * VECTOR_BYTES


def rows(case: Case, size_bytes: int) -> Workspace:
    """Scratch with such a row for each other rank."""
    return Workspace("scratch", max(case.world_size - 1, 1) * row_bytes(size_bytes) // 4, zeroed=False)


def chunk_rows(case: Case) -> tuple[Workspace, ...]:
    """The same of rows of a chunk, as all workspaces of a kernel."""
    return (rows(case, case.numel // case.world_size * case.itemsize),)


def groups(case: Case) -> int:
    """Ranks that a launch's blocks are shared out among at the same time: all of them, up to 16."""
    return case.world_size if case.world_size <= MOST_GROUPS else FEW_GROUPS


def groups_of_others(case: Case) -> int:
    """Of the ranks but one: those that a rank stores to."""
    return max(1, min(case.world_size - 1, groups(case)))


def parts(numel: int, itemsize: int, offset: int = 0) -> tuple[int, int, int]:
    """Elements before the first 16-byte boundary, in the vectors, and after them."""
    per_vector = VECTOR_BYTES // itemsize
    head = min(-offset % per_vector, numel)
    body = (numel - head) // per_vector * per_vector
    return head, body, numel - head - body


def slice_vectors(count: int, world_size: int) -> list[int]:
    """Vectors in each rank's slice: contiguous, in rank order, the first ranks have one more (traverse.py)."""
    share, longer = divmod(count, world_size)
    return [share + (rank < longer) for rank in range(world_size)]


def line_slices(count: int, owners: int) -> list[int]:
    """Vectors in each owner's slice where slices are contiguous and begin whole lines after the first vector: at the
    last line at or before the owner's share of all bytes (traverse.py)."""
    size = count * VECTOR_BYTES
    begins = [size * number // owners // LINE_BYTES * LINE_BYTES for number in range(owners)]
    return [(end - begin) // VECTOR_BYTES for begin, end in itertools.pairwise([*begins, size])]


def longest_slice(count: int, world_size: int) -> int:
    """Vectors in the longest slice, the first rank's."""
    return slice_vectors(count, world_size)[0]


def slice_owner(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element where a buffer of numel elements is sliced by rank: int64[numel] of ranks."""
    return _owners(case, range(case.world_size))


def root_slice_owner(case: Case, rank: int) -> torch.Tensor:
    """The same where the root has no slice."""
    if root_owners(case.world_size) == case.world_size:
        return slice_owner(case, rank)
    return _owners(case, [(case.root + number) % case.world_size for number in range(1, case.world_size)], line_slices)


def _owners(case: Case, owners: Sequence[int], slices: Callable[[int, int], list[int]] = slice_vectors) -> torch.Tensor:
    """int64[numel] of ranks, from those that have slices, in order; the edges are the last rank's."""
    import torch  # takes seconds, and the catalogue is read before anything runs

    head, body, tail = parts(case.numel, case.itemsize, case.offset)
    per_vector = VECTOR_BYTES // case.itemsize
    lengths = [length * per_vector for length in slices(body // per_vector, len(owners))]
    last = case.world_size - 1
    return torch.repeat_interleave(torch.tensor([last, *owners, last]), torch.tensor([head, *lengths, tail]))


def own(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element where every rank reduces its own output, of one chunk: int64[chunk] of the rank."""
    import torch

    return torch.full((case.numel // case.world_size,), rank)


def roots(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element where the root reduces all: int64[numel] of the root."""
    import torch

    return torch.full((case.numel,), case.root)
