"""What copies and calls need of the batch that they belong to."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from memory.fabric import DeviceFault
from simulator.isa.registry import Lanes
from simulator.memory.space import Space
from simulator.observe.lanes import Group, Ids, Launched
from simulator.ptx.ir import Instruction

LAG_STEPS = 16
"""Steps from issue to read and from read to write, in fair order: enough for another block to run in between."""


class Owner(Protocol):
    """The batch that copies and calls belong to, as far as they need it."""

    space: Space
    launched: Launched
    block: int
    shared: Any
    shared_start: int
    shared_written: Any
    rank_alive: dict[int, int]
    steps: int
    lanes: int
    kept: dict[int, Lanes]
    warpgroups: Any
    tensor_cores: Any

    @property
    def alive(self) -> Ids:
        """Threads by block that haven't returned."""
        ...

    def place(self, lane: int) -> tuple[int, int, int]:
        """Rank, block and thread of a lane."""
        ...

    def blocks_of(self, ids: Any) -> Any:
        """The number of each lane's block within the batch."""
        ...

    def arrive(self, index: int, group: Group, back: bool = False) -> None:
        """Send lanes to a basic block."""
        ...

    def finish(self, rank: int, count: int) -> None:
        """Count threads or copies of a rank as over."""
        ...

    def blaming(self, lanes: Group, instruction: Instruction | None) -> AbstractContextManager[None]:
        """What goes wrong within is a lane's among these."""
        ...

    def fault(
        self, lane: int, message: str, instruction: Instruction, kind: type[DeviceFault] = DeviceFault
    ) -> DeviceFault:
        """The error that names a lane and what it did wrong in which instruction."""
        ...
