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
    adversarial = "adversarial"
    """By seed, and of what can run next rather what is likely to break."""
    priority = "priority"
    """By seed: a few teams of blocks, of which the first that can runs as far as it can."""


class Granularity(StrEnum):
    """What a step of a schedule is, before other lanes may run."""

    access = "access"
    """One access to memory, or several if the order drawn has it so."""
    block = "block"
    """A basic block."""


def granularity_of(schedule: str, given: str | None) -> Granularity:
    """Return the granularity of a schedule, given the one that was asked for; None: access, and of fair and priority
    block. Raises ValueError for these by access."""
    is_by_block = schedule in (Schedule.fair, Schedule.priority)
    if given is None:
        return Granularity.block if is_by_block else Granularity.access
    if is_by_block and given == Granularity.access:
        what = f"schedule is {schedule}, which runs whole blocks"
        raise ValueError(f"granularity is access, and {what}; it must be block")
    return Granularity(given)


class Memory(StrEnum):
    """When a store becomes visible."""

    strong = "strong"
    """At once, to all."""
    weak = "weak"
    """To each observer at a time of its own, as far as the PTX memory model lets it; by seed."""


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
