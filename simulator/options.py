"""What can be chosen of a simulated world, by the names that configurations and records have. It imports nothing heavy.

Members are named as they are written: OmegaConf reads an enum by its members' names.
"""

from __future__ import annotations

from enum import StrEnum

from memory.fabric import Traits
from simulator.gpu import Gpu, block_shared_bytes


class MultimemModel(StrEnum):
    """How the switch adds floats."""

    exact = "exact"
    """It sums exactly and rounds once, as was measured on hardware."""
    stated = "stated"
    """It folds in the precision that the instruction states."""


class Schedule(StrEnum):
    """Which group of lanes runs next."""

    fair = "fair"
    random = "random"
    """By seed."""


def traits_of(
    world_size: int, arch: str, heap_bytes: int, multicast: bool, gpu: Gpu | None = None, description: str = ""
) -> Traits:
    """Return what a simulated fabric can do: known from how it was set, before there is one."""
    return Traits(
        name="simulator",
        arch=arch,
        world_size=world_size,
        heap_bytes=heap_bytes,
        multicast=multicast,
        multicast_reason=""
        if multicast
        else "the simulated switch was made without multicast (fabric.multicast=false)",
        simulated=True,
        description=description,
        multiprocessors=gpu.multiprocessors if gpu is not None else 0,
        block_shared_bytes=block_shared_bytes(arch, gpu),
    )
