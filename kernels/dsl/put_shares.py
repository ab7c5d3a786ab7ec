"""What kernels on NVSHMEM's device functions divide, said for the host: words for signals, slices of a reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.case import Case
from kernels.spec import Workspace

if TYPE_CHECKING:
    import torch

ALIGNMENT_BYTES = 16
"""Parts of messages begin at multiples of it."""

READY = 0
"""The row of words by which a rank says that its memory may be overwritten; a round of messages has the next rows."""

EXCHANGE = (
    "nvshmem_fence",
    "nvshmemx_signal_op",
    "nvshmem_signal_wait_until",
    "nvshmemx_putmem_signal_block",
)
"""The functions that kernels/dsl/signalled.py calls."""


def words(case: Case, max_blocks: int, rounds: int = 1) -> Workspace:
    """The words that signals set: of each block, a row for READY and one for each round, a word a rank."""
    return Workspace("words", max_blocks * (1 + rounds) * case.world_size, "uint64")


def slice_bytes(case: Case) -> int:
    """Bytes of a rank's slice of the buffer, which all ranks but the last ones have; whole multiples of 16."""
    every = case.world_size * ALIGNMENT_BYTES
    return -(-case.size_bytes // every) * ALIGNMENT_BYTES


def owner(case: Case, rank: int) -> torch.Tensor:
    """Who reduces each element of the buffer: int64[numel] of ranks."""
    import torch  # takes seconds, and the catalogue is read before anything runs

    return torch.arange(case.numel) * case.itemsize // max(slice_bytes(case), 1)
