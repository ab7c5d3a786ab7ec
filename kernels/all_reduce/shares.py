"""How the all_reduce kernels divide a buffer: vectors, slices of the ranks, and the owner of each element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import ITEMSIZES, Case

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16

DEVICE_SOURCES = (
    "kernels/all_reduce/frame_device.py",
    "kernels/arithmetic.py",
    "kernels/barrier.py",
    "kernels/device.py",
    "kernels/peers.py",
    "kernels/status.py",
    "kernels/traverse.py",
)
"""The device code that all four algorithms stand on."""


def vectors(case: Case) -> int:
    """Full vectors of 16 bytes in the case's buffer."""
    return case.numel * case.itemsize // VECTOR_BYTES


def whole(count: int, world_size: int) -> int:
    """Vectors that a rank works on where every rank works on all."""
    return count


def slice_vectors(count: int, world_size: int) -> list[int]:
    """Vectors in each rank's slice: contiguous, in rank order, the first ranks have one more (traverse.py)."""
    share, longer = divmod(count, world_size)
    return [share + (rank < longer) for rank in range(world_size)]


def longest_slice(count: int, world_size: int) -> int:
    """Vectors in the longest slice, the first rank's."""
    return slice_vectors(count, world_size)[0]


def owner(numel: int, world_size: int, dtype: str) -> torch.Tensor:
    """Who reduces each element in two_shot: int64[numel] of ranks. What fills no vector is the last rank's."""
    import torch  # takes seconds, and the catalogue is asked before anything runs

    per_vector = VECTOR_BYTES // ITEMSIZES[dtype]
    lengths = [length * per_vector for length in slice_vectors(numel // per_vector, world_size)]
    lengths[-1] += numel % per_vector
    return torch.repeat_interleave(torch.arange(world_size), torch.tensor(lengths))
