"""Lanes by number, and the rank, launch, block and thread behind each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

WARPGROUP = 128
"""Threads of four warps that carry out wgmma together, from a multiple of it on."""

Ids = npt.NDArray[np.int64]
Group = range | Ids
"""Lanes, ascending: a range where they are neighbours, else their numbers."""


def ids_of(group: Group) -> Ids:
    """Return the numbers of a group's lanes."""
    return np.arange(group.start, group.stop) if isinstance(group, range) else group


Extent = tuple[int, int, int]
"""Numbers in x, y and z."""


def coordinate(number: Any, extent: Extent, axis: int) -> Any:
    """Return x, y or z (axis 0, 1 or 2) of a linear number, x varying fastest, or of an array of them."""
    return number // math.prod(extent[:axis]) % extent[axis]


def linear(coordinates: list[Any], extent: Extent) -> Any:
    """Return the linear number of x, y and z, x varying fastest, or an array of them."""
    x, y, z = coordinates
    return (z * extent[1] + y) * extent[0] + x


@dataclass(frozen=True, slots=True)
class Clusters:
    """How the blocks of a grid form clusters. grid and shape: blocks of the grid and of a cluster in x, y and z.

    Blocks and clusters are numbered in order of x, then y, then z, those of a second rank behind those of the first. A
    block's rank is its number within its cluster. is_explicit: the launch or the kernel names the shape.
    """

    grid: Extent
    shape: Extent
    is_explicit: bool

    @property
    def size(self) -> int:
        """Number of blocks in a cluster."""
        return math.prod(self.shape)

    @property
    def extent(self) -> Extent:
        """Number of clusters in x, y and z."""
        x, y, z = (blocks // size for blocks, size in zip(self.grid, self.shape, strict=True))
        return x, y, z

    @property
    def count(self) -> int:
        """Number of clusters in the grid."""
        return math.prod(self.extent)

    def numbers_of(self, blocks: Any) -> Any:
        """Return the number of each block's cluster."""
        if self.size == 1:
            return blocks
        places = [coordinate(blocks, self.grid, axis) // self.shape[axis] for axis in range(3)]
        return blocks // math.prod(self.grid) * self.count + linear(places, self.extent)

    def ranks_of(self, blocks: Any) -> Any:
        """Return each block's rank in its cluster."""
        return linear([coordinate(blocks, self.grid, axis) % self.shape[axis] for axis in range(3)], self.shape)

    def blocks_of(self, clusters: Any, ranks: Any) -> Any:
        """Return the number of the block with each rank in each cluster."""
        places = [
            coordinate(clusters, self.extent, axis) * self.shape[axis] + coordinate(ranks, self.shape, axis)
            for axis in range(3)
        ]
        return clusters // self.count * math.prod(self.grid) + linear(places, self.grid)

    def pair_of(self, block: int) -> list[int]:
        """Return the blocks of a block's pair, the one with the even rank in the cluster first."""
        even, number = int(self.ranks_of(block)) & ~1, self.numbers_of(block)
        return [int(self.blocks_of(number, rank)) for rank in (even, even + 1) if rank < self.size]


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A kernel that the simulator runs on several ranks together: one launch of each of them.

    kernel: the executable's name. ranks: ascending. numbers[i]: the number of the launch on ranks[i]; a rank counts its
    launches from 0 since the ranks came into the world. grid: number of blocks of one rank; block: number of threads of
    one block; both are numbered in order of x, then y, then z. Lane l is thread l % block of block l // block % grid on
    rank ranks[l // (grid * block)]. clusters: which blocks form a cluster. stream: see memory.fabric.Launch.
    assumptions: see memory.fabric.Executable.
    """

    kernel: str
    ranks: tuple[int, ...]
    numbers: tuple[int, ...]
    grid: int
    block: int
    clusters: Clusters
    stream: int | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def has_whole_lines(self) -> bool:
        """Whether a warp's access to 128 aligned bytes is a single one: the kernel declares that it relies on that."""
        return "warp_128" in self.assumptions

    @property
    def has_system_atomics(self) -> bool:
        """Whether an atomic operation of .gpu scope is one for all GPUs, as the kernel declares."""
        return "gpu_atomics" in self.assumptions

    @property
    def has_complete_ends(self) -> bool:
        """Whether its accesses are complete for all GPUs before its stream's next kernel, as the kernel declares."""
        return "kernel_end" in self.assumptions

    @property
    def whole_bytes(self) -> int:
        """Up to how many bytes a vector access is a single one, as the kernel declares; 0: none."""
        return 16 if "vector_16" in self.assumptions else 8 if "vector_8" in self.assumptions else 0

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

    def number_on(self, rank: int) -> int:
        """Return the number of the launch on a rank; -1 for a rank that has no part in it."""
        return self.numbers[self.ranks.index(rank)] if rank in self.ranks else -1

    def numbers_of(self, lanes: Group) -> Ids:
        """Return the number of each lane's launch on its rank."""
        return np.array(self.numbers, np.int64)[self.positions_of(lanes)]

    def blocks_of(self, lanes: Group) -> Ids:
        """Return each lane's block, as its rank numbers them."""
        blocks: Ids = ids_of(lanes) // self.block % self.grid
        return blocks

    def owners_of(self, lanes: Group, others: Ids | None) -> Ids:
        """Return the number, within the launches of all ranks, of the block whose shared memory each lane reaches: its
        own, or that of its rank which others names."""
        own: Ids = ids_of(lanes) // self.block
        return own if others is None else own // self.grid * self.grid + others

    def clusters_of(self, lanes: Group) -> Ids:
        """Return the number of each lane's cluster within the launches of all ranks."""
        clusters: Ids = self.clusters.numbers_of(ids_of(lanes) // self.block)
        return clusters

    def threads_of(self, lanes: Group) -> Ids:
        """Return each lane's thread, as its block numbers them."""
        threads: Ids = ids_of(lanes) % self.block
        return threads
