"""What all_to_all_v means: each rank gives each rank as much as it has for it, and gets what others have for it.

It is all_to_all with counts per peer, as the dispatch of a mixture of experts has it. A rank knows only how much it
sends. Both buffers are packed, as of torch.distributed.all_to_all_single with split sizes: what a rank gets lies
without gaps in the order of the ranks it is from, so that one grouped product can take it as it is, and the memory is
that of what arrives and not of the largest message from every rank. The price is that a rank must know what others send
before it can store: the algorithms say how counts travel.

size_bytes is what one rank sends if the counts are uniform, as in nccl-tests' alltoall; others distribute the total of
all ranks (sends.py). The bus factor is alltoall's for all counts, over the bytes of the mean rank: a bus bandwidth
below that of uniform counts is the cost of the imbalance, which a factor over the busiest rank's bytes would hide.
nccl-tests has no such op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.all_to_all_v.sends import sends_of
from kernels.dsl.count_rooms import ROOM
from kernels.spec import Collective, exchanged

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return ROOM * numel, ROOM * numel


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    ranks = len(inputs)
    chunk = inputs[0].numel() // (ROOM * ranks)
    return [exchanged(inputs, ((chunk,) * ranks,) * ranks, rank)]


def _bus_factor(world_size: int) -> float:
    return (world_size - 1) / world_size


COLLECTIVE = Collective(
    op="all_to_all_v",
    summary="every rank gets what every rank has for it, by counts per peer",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=False,
    reduces=False,
    chunked=True,
    sends=sends_of,
)
