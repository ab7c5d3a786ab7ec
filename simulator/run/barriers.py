"""Barriers within a launch: lanes of a block, or of a warp, wait until all living lanes of it have come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.observe.lanes import Group, Ids, ids_of
from simulator.run.groups import split

WIDTHS = {"block": 0, "warp": 32}
"""Whose lanes meet, and how many they are at most; 0: all of a block."""


@dataclass(slots=True)
class Barrier:
    """The barriers of all blocks, or of all warps (the units), of a launch.

    lanes: of the launch, in blocks of block; the last warp of a block may have fewer than the others. alive: lanes by
    unit that haven't returned. waiting: those that have come, each group with the basic block that follows.
    """

    unit: str
    block: int
    lanes: int
    alive: Ids = field(init=False)
    waiting: list[tuple[int, Group]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alive = np.bincount(self.units_of(range(self.lanes)))

    @property
    def _width(self) -> int:
        return WIDTHS[self.unit] or self.block

    @property
    def _per_block(self) -> int:
        return -(-self.block // self._width)

    def units_of(self, group: Group) -> Ids:
        """The number of each lane's unit within the launch."""
        blocks, rest = np.divmod(ids_of(group), self.block)
        units: Ids = blocks * self._per_block + rest // self._width
        return units

    def arrive(self, following: int, group: Group) -> list[tuple[int, Group]]:
        """Lanes come; those that may go on are returned, with where they go."""
        if not self.waiting and self._is_whole(group) and self.lanes == int(self.alive.sum()):
            return [(following, group)]
        self.waiting.append((following, group))
        return self._release()

    def _is_whole(self, group: Group) -> bool:
        """Whether all units in it are in it with all their lanes, as far as a glance can tell."""
        if not isinstance(group, range):
            return False
        return all(end % self.block % self._width == 0 for end in (group.start, group.stop))

    def leave(self, group: Group) -> list[tuple[int, Group]]:
        """Lanes return for good: no barrier waits for them any longer."""
        self.alive -= np.bincount(self.units_of(group), minlength=len(self.alive))
        return self._release() if self.waiting else []

    def _release(self) -> list[tuple[int, Group]]:
        counts = np.zeros(len(self.alive), np.int64)
        for _, group in self.waiting:
            counts += np.bincount(self.units_of(group), minlength=len(counts))
        full = (counts == self.alive) & (counts > 0)
        if not full.any():
            return []
        going: list[tuple[int, Group]] = []
        staying: list[tuple[int, Group]] = []
        for following, group in self.waiting:
            yes, no = split(group, [full[self.units_of(group)]])
            if yes is not None:
                going.append((following, yes))
            if no is not None:
                staying.append((following, no))
        self.waiting = staying
        return going
