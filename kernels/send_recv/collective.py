"""What send_recv means: each rank gives numel elements to the next rank, the last to the first: a ring shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    return [inputs[(rank - 1) % len(inputs)]]


def _bus_factor(world_size: int) -> float:
    return 1.0


COLLECTIVE = Collective(
    op="send_recv",
    summary="every rank gets the input of the rank before it",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=False,
    reduces=False,
)
