"""Lanes by number, and the rank, launch, block and thread behind each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Group = range | Ids
"""Lanes, ascending: a range where they are neighbours, else their numbers."""


def ids_of(group: Group) -> Ids:
    """Return the numbers of a group's lanes."""
    return np.arange(group.start, group.stop) if isinstance(group, range) else group


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A kernel that the simulator runs on several ranks together: one launch of each of them.

    kernel: the executable's name. ranks: ascending. numbers[i]: the number of the launch on ranks[i]; a rank counts its
    launches from 0 since the ranks came into the world. grid: number of blocks of one rank; block: number of threads of
    one block; both are numbered in order of x, then y, then z. Lane l is thread l % block of block l // block % grid on
    rank ranks[l // (grid * block)].
    """

    kernel: str
    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    grid: int
    block: int

    @property
    def threads(self) -> int:
        """Threads of one rank."""
        return self.grid * self.block

    @property
    def lanes(self) -> int:
        """Threads of all ranks."""
        return len(self.ranks) * self.grid * self.block

    def place(self, lane: int) -> tuple[int, int, int]:
        """Return rank, block and thread of a lane."""
        position, rest = divmod(lane, self.grid * self.block)
        return (self.ranks[position], *divmod(rest, self.block))

    def positions_of(self, lanes: Group) -> Ids:
        """Return each lane's position in ranks and numbers."""
        positions: Ids = ids_of(lanes) // (self.grid * self.block)
        return positions

    def ranks_of(self, lanes: Group) -> Ids:
        """Return each lane's rank."""
        return np.array(self.ranks, np.int64)[self.positions_of(lanes)]

    def numbers_of(self, lanes: Group) -> Ids:
        """Return the number of each lane's launch on its rank."""
        return np.array(self.numbers, np.int64)[self.positions_of(lanes)]

    def blocks_of(self, lanes: Group) -> Ids:
        """Return each lane's block, as its rank numbers them."""
        blocks: Ids = ids_of(lanes) // self.block % self.grid
        return blocks

    def threads_of(self, lanes: Group) -> Ids:
        """Return each lane's thread, as its block numbers them."""
        threads: Ids = ids_of(lanes) % self.block
        return threads
