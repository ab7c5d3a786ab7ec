"""What can be chosen of a simulated world, by the names that configurations and records have. It imports nothing heavy.

Members are named as they are written: OmegaConf reads an enum by its members' names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self

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


@dataclass(frozen=True, slots=True)
class Interleaving:
    """How the threads of a simulated run take turns; a run is a function of it.

    schedule is of Schedule, granularity of Granularity; None becomes access, and of fair and priority, which have no
    other, block. follows: choices (run/choices.py) to run by, as far as they go. Raises ValueError.
    """

    schedule: str = Schedule.fair
    granularity: str | None = None
    seed: int = 0
    follows: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        has_blocks = self.schedule in (Schedule.fair, Schedule.priority)
        given = self.granularity or (Granularity.block if has_blocks else Granularity.access)
        for name, value, known in (("schedule", self.schedule, Schedule), ("granularity", given, Granularity)):
            if value not in tuple(known):
                raise ValueError(f"{name} is {value!r}; it must be {' or '.join(known)}")
        if has_blocks and given == Granularity.access:
            what = f"schedule is {self.schedule}, which runs whole blocks"
            raise ValueError(f"granularity is access, and {what}; it must be block")
        object.__setattr__(self, "granularity", Granularity(given))

    @property
    def is_by_block(self) -> bool:
        return self.granularity == Granularity.block

    @property
    def settings(self) -> dict[str, object]:
        """What a record says of it."""
        return {name: str(getattr(self, name)) for name in ("schedule", "granularity")} | {"seed": self.seed}

    def under(self, other: Interleaving) -> Self:
        """The same with the turns of another."""
        return replace(self, **{one.name: getattr(other, one.name) for one in fields(Interleaving)})

    def __str__(self) -> str:
        return f"schedule={self.schedule}, seed {self.seed}"


BEFORE = {"granularity": "block"}
"""What the fabric of a record means that was written before there was a choice."""


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
