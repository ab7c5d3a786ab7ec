"""How the all_reduce kernels divide a buffer: blocks for a number of vectors, and slices of the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import ITEMSIZES, Case

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16

DEVICE_SOURCES = (
    "kernels/arithmetic.py",
    "kernels/barrier.py",
    "kernels/device.py",
    "kernels/peers.py",
    "kernels/traverse.py",
)
"""The device code that all four algorithms stand on."""


def vectors(case: Case) -> int:
    """Full vectors of 16 bytes in the case's buffer."""
    return case.numel * case.itemsize // VECTOR_BYTES


def blocks(work: int, threads: int, max_blocks: int) -> int:
    """Enough blocks that each thread has one of `work` vectors, at least one and at most max_blocks."""
    return min(max(-(-work // threads), 1), max_blocks)


def slice_vectors(count: int, world_size: int) -> list[int]:
    """Vectors in each rank's slice: contiguous, in rank order, the first ranks have one more (traverse.py)."""
    share, longer = divmod(count, world_size)
    return [share + (rank < longer) for rank in range(world_size)]


def owner(numel: int, world_size: int, dtype: str) -> torch.Tensor:
    """Who reduces each element in two_shot: int64[numel] of ranks. What fills no vector is the last rank's."""
    import torch  # takes seconds, and the catalogue is asked before anything runs

    per_vector = VECTOR_BYTES // ITEMSIZES[dtype]
    lengths = [length * per_vector for length in slice_vectors(numel // per_vector, world_size)]
    lengths[-1] += numel % per_vector
    return torch.repeat_interleave(torch.arange(world_size), torch.tensor(lengths))
