"""What all_to_all means: each rank gives a chunk for each rank and gets the chunks for it, in rank order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    import torch  # takes seconds, and the catalogue is read before anything runs

    chunk = inputs[0].numel() // len(inputs)
    return [torch.cat([one[rank * chunk : (rank + 1) * chunk] for one in inputs])]


def _bus_factor(world_size: int) -> float:
    return (world_size - 1) / world_size


COLLECTIVE = Collective(
    op="all_to_all",
    summary="every rank gets the chunk for it from every rank",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=False,
    reduces=False,
    chunked=True,
)
