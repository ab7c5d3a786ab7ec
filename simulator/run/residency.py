"""Which blocks of a launch have a place on their GPU, and which wait until others exit."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memory.fabric import Dimensions, Executable, Launch
from simulator.gpu import Fit, Gpu, Need, check_fit, limited
from simulator.observe.lanes import Ids
from simulator.run.decode import decode, shared_bytes_of

if TYPE_CHECKING:
    from simulator.ptx.assembler import Usage


@dataclass(frozen=True, slots=True)
class Resident:
    """How a kernel's blocks share a GPU: what ptxas counts (None: unknown), how many fit at once, and their cluster."""

    gpu: Gpu
    usage: Usage | None
    fit: Fit
    cluster: Dimensions

    def document(self) -> dict[str, int | str | None]:
        """Return it as plain values, for a record."""
        return {
            "registers": self.usage.registers if self.usage is not None else None,
            "blocks_at_once": self.fit.blocks,
            "limits": limited(self.gpu, self.fit),
        }


def resident(gpu: Gpu, executable: Executable, launch: Launch, arch: str) -> Resident:
    """Return how many blocks of a launch fit on a GPU at once. ValueError for what can never run there."""
    from simulator.ptx.assembler import usage_of

    kernel = decode(executable.ptx, executable.entry).kernel
    usage = usage_of(executable.ptx, executable.entry, arch)
    registers, barriers = (usage.registers, usage.barriers) if usage is not None else (None, None)
    need = Need(launch.threads, shared_bytes_of(kernel, launch), registers, barriers)
    cluster = kernel.required_cluster or launch.cluster
    found = check_fit(executable.name, gpu, need, launch.blocks, cluster, launch.cooperative)
    return Resident(gpu, usage, found, cluster)


@dataclass(slots=True)
class Places:
    """The places that the blocks of one launch have on the GPUs of its ranks.

    Blocks become resident in the order of their numbers, as seen on an H200 (of 528 blocks of 1,024 threads the first
    264 ran at once, then the others, nearly in order), or in an order that random draws, for CUDA promises none; those
    of a cluster together. Blocks are numbered through all ranks, as a Batch does (rank position * grid + block).
    `multiprocessors` has the number of each block's multiprocessor, 0 until it has a place.
    """

    resident: Resident
    grid: Dimensions
    ranks: int
    random: np.random.Generator | None = None
    multiprocessors: Ids = field(init=False)
    waiting: list[list[Ids]] = field(init=False)
    free: list[list[tuple[int, int]]] = field(init=False)
    held: dict[int, tuple[int, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        gpu, found = self.resident.gpu, self.resident.fit
        self.multiprocessors = np.zeros(self.ranks * math.prod(self.grid), np.int64)
        clusters = _clusters(self.grid, self.resident.cluster)
        self.waiting = [[rank * math.prod(self.grid) + one for one in clusters] for rank in range(self.ranks)]
        if self.random is not None and found.blocks < math.prod(self.grid):
            for each in self.waiting:
                each[:] = [each[int(one)] for one in self.random.permutation(len(each))]
        for each in self.waiting:
            each.reverse()  # the next one is the last
        # One block on each multiprocessor, then a second one on each, and so on.
        places = [(turn, one) for turn in range(found.per_multiprocessor) for one in range(gpu.multiprocessors)]
        self.free = [list(places) for _ in range(self.ranks)]

    @property
    def all_fit(self) -> bool:
        return self.resident.fit.blocks >= math.prod(self.grid)

    def begin(self) -> Ids:
        """Give places to the first blocks; return them, ascending."""
        return np.sort(np.concatenate([self._fill(rank) for rank in range(self.ranks)]))

    def leave(self, blocks: Ids) -> Ids:
        """Blocks have exited; return those that get their places."""
        grid = math.prod(self.grid)
        for block in blocks.tolist():
            heapq.heappush(self.free[block // grid], self.held.pop(block))
        came = [np.empty(0, np.int64), *(self._fill(rank) for rank in np.unique(blocks // grid).tolist())]
        return np.sort(np.concatenate(came))

    def _fill(self, rank: int) -> Ids:
        """Give the free places of a rank to waiting clusters, as long as a whole one fits."""
        came: list[Ids] = [np.empty(0, np.int64)]
        free, waiting = self.free[rank], self.waiting[rank]
        while waiting and len(free) >= len(waiting[-1]):
            cluster = waiting.pop()
            for block in cluster.tolist():
                place = self.held[block] = heapq.heappop(free)
                self.multiprocessors[block] = place[1]
            came.append(cluster)
        return np.concatenate(came)

    def report(self, ranks: list[int]) -> list[str]:
        """A line for each rank whose blocks wait for a place: which, and how many fit."""
        grid = math.prod(self.grid)
        lines = []
        for position, (rank, waiting) in enumerate(zip(ranks, self.waiting, strict=True)):
            if waiting:
                numbers = np.sort(np.concatenate(waiting)) - position * grid
                found = self.resident
                lines.append(
                    f"rank {rank}: {_numbers(numbers)} of {grid} {'waits' if len(numbers) == 1 else 'wait'} for a "
                    f"place: {found.gpu.name} holds {found.fit.blocks} at once ({limited(found.gpu, found.fit)})"
                )
        return lines


def _clusters(grid: Dimensions, cluster: Dimensions) -> list[Ids]:
    """The numbers of the blocks of each cluster, ascending, in the order of the clusters' numbers."""
    numbers = np.arange(math.prod(grid)).reshape(grid[::-1])
    in_z, in_y, in_x = (blocks // size for blocks, size in zip(grid[::-1], cluster[::-1], strict=True))
    tiled = numbers.reshape(in_z, cluster[2], in_y, cluster[1], in_x, cluster[0]).transpose(0, 2, 4, 1, 3, 5)
    return list(tiled.reshape(in_z * in_y * in_x, math.prod(cluster)))


def _numbers(blocks: Ids) -> str:
    """Blocks in words: "block 7", "blocks 264 to 511", or the first few where there are gaps."""
    if len(blocks) == 1:
        return f"block {blocks[0]}"
    if int(blocks[-1] - blocks[0]) == len(blocks) - 1:
        return f"blocks {blocks[0]} to {blocks[-1]}"
    some = ", ".join(map(str, blocks[:8].tolist()))
    return f"blocks {some}{f' and {len(blocks) - 8} more' if len(blocks) > 8 else ''}"
