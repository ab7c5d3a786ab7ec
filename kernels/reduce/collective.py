"""What reduce means: each rank gives numel elements, and the root gets the elementwise reduction of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return inputs if rank == root else None


def _bus_factor(world_size: int) -> float:
    return 1.0


def _in_place(numel: int, world_size: int, rank: int) -> tuple[int, int]:
    return 0, 0


COLLECTIVE = Collective(
    op="reduce",
    summary="the root gets the reduction of all inputs",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=False,
    rooted=True,
    in_place=_in_place,
)
