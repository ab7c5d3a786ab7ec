"""What all_gather means: each rank gives its chunk and gets the chunks of all, numel elements in rank order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel // world_size, numel


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    import torch  # takes seconds, and the catalogue is read before anything runs

    return [torch.cat(inputs)]


def _bus_factor(world_size: int) -> float:
    return (world_size - 1) / world_size


def _in_place(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return rank * (numel // world_size), 0


COLLECTIVE = Collective(
    op="all_gather",
    summary="every rank gets the chunks of all ranks, in rank order",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=True,
    reduces=False,
    chunked=True,
    in_place=_in_place,
)
