"""What reduce_scatter means: each rank gives numel elements and gets its chunk of their elementwise reduction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel // world_size


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    chunk = inputs[0].numel() // len(inputs)
    return [one[rank * chunk : (rank + 1) * chunk] for one in inputs]


def _bus_factor(world_size: int) -> float:
    return (world_size - 1) / world_size


def _in_place(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return 0, rank * (numel // world_size)


COLLECTIVE = Collective(
    op="reduce_scatter",
    summary="every rank gets its chunk of the reduction of all inputs",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=False,
    chunked=True,
    in_place=_in_place,
)
