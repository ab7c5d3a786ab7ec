"""What barrier means: no rank leaves before all have arrived.

Each rank brings a token, numel elements that it hands to all before it arrives, and leaves with those of all ranks: so
a barrier that lets a rank go too early, or does not order what was written before it, gives a wrong output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.spec import Collective

if TYPE_CHECKING:
    import torch


def _counts(numel: int, world_size: int) -> tuple[int, int]:
    return numel, numel * world_size


def _outputs(inputs: list[torch.Tensor], rank: int, root: int) -> list[torch.Tensor] | None:
    import torch  # takes seconds, and the catalogue is read before anything runs

    return [torch.cat(inputs)]


def _bus_factor(world_size: int) -> float:
    return 0.0


COLLECTIVE = Collective(
    op="barrier",
    summary="no rank leaves before all have arrived; each leaves with the tokens of all",
    counts=_counts,
    outputs=_outputs,
    bus_factor=_bus_factor,
    same_on_all_ranks=True,
    reduces=False,
)
