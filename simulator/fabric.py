"""SimulatorFabric: one rank's Fabric in a SimulatedWorld (simulator/world.py)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from memory.fabric import Disagreement, Executable, NoMulticast, Region, Traits
from simulator.memory.heaps import Allocation

if TYPE_CHECKING:
    from simulator.world import SimulatedWorld

MAX_THREADS_PER_BLOCK = 1024


class SimulatorFabric:
    """One rank's Fabric in a SimulatedWorld (see memory.fabric.Fabric for what each method promises)."""

    def __init__(self, world: SimulatedWorld, rank: int) -> None:
        self._world = world
        self._rank = rank

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world.world_size

    @property
    def traits(self) -> Traits:
        options = self._world.options
        return Traits(
            name="simulator",
            arch=options.arch,
            world_size=self.world_size,
            heap_bytes=options.heap_bytes,
            multicast=options.multicast,
            multicast_reason=""
            if options.multicast
            else "the simulated switch was made without multicast (fabric.multicast=false)",
            simulated=True,
            description=f"PTX interpreter, multimem {options.multimem}, {options.schedule} order, seed {options.seed}",
        )

    def exchange(self, note: str) -> tuple[str, ...]:
        answer = self._world.wait(self._rank, "exchange", note)
        assert answer is not None
        return answer

    def _together(self, note: str) -> None:
        notes = self.exchange(note)
        if any(one != notes[0] for one in notes):
            by_note: dict[str, list[int]] = {}
            for rank, one in enumerate(notes):
                by_note.setdefault(one, []).append(rank)
            wants = "; ".join(f"{named(ranks)}: {one}" for one, ranks in by_note.items())
            raise Disagreement(f"the ranks called different things: {wants}")

    def barrier(self) -> None:
        self._together("barrier")

    def allocate(self, size_bytes: int, alignment_bytes: int, name: str) -> Region:
        if size_bytes < 1 or alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
            raise ValueError(
                f"{name}: {size_bytes} bytes aligned to {alignment_bytes}; sizes are positive, alignments powers of two"
            )
        self._together(f"allocate {name}: {size_bytes} bytes aligned to {alignment_bytes}")
        with self._world.turn:
            made = self._world.space.allocate(self._rank, size_bytes, alignment_bytes, name)
            address = self._world.space.address(self._rank, made)
            self._world.regions[self._rank][address] = made
        region = Region(name, address, size_bytes)
        try:
            self._together(f"mapped {name}")
        except BaseException:
            # The caller never gets to hold it, so it would stay.
            self.drop(region)
            raise
        return region

    def _allocation(self, region: Region) -> Allocation:
        found = self._world.regions[self._rank].get(region.address)
        if found is None:
            raise ValueError(
                f"rank {self._rank}: {region.name} is not allocated here (freed already, or another rank's)"
            )
        return found

    def free(self, region: Region) -> None:
        found = self._allocation(region)
        self.synchronize()
        self._together(f"free {region.name}: {region.size_bytes} bytes")
        self._release(region, found)
        if any(view() is not None for view in found.views):
            raise ValueError(
                f'rank {self._rank}: a view of "{region.name}" outlives it: '
                "del what was made from its memory (slices of .local) before its release"
            )

    def drop(self, region: Region) -> None:
        found = self._world.regions[self._rank].get(region.address)
        if found is not None:
            self._release(region, found)

    def _release(self, region: Region, found: Allocation) -> None:
        with self._world.turn:
            del self._world.regions[self._rank][region.address]
            self._world.space.free(found)

    def peer_address(self, region: Region, peer: int) -> int:
        if not 0 <= peer < self.world_size:
            raise ValueError(
                f"{region.name}: rank {peer} does not exist; the world has ranks 0 to {self.world_size - 1}"
            )
        space = self._world.space
        return region.address + (peer - self._rank) * space.capacity if self._allocation(region) else 0

    def multicast_address(self, region: Region) -> int:
        if not self._world.options.multicast:
            raise NoMulticast(self.traits.multicast_reason)
        return self._world.space.multicast_address(self._rank, self._allocation(region))

    def view(self, region: Region) -> torch.Tensor:
        found = self._allocation(region)
        space = self._world.space
        space.written[found.start : found.end] = 1
        found.unwritten = False
        lent = space.memory[found.start : found.end]
        found.views.append(weakref.ref(lent))
        return torch.from_numpy(lent)

    def write(self, region: Region, offset_bytes: int, data: torch.Tensor) -> None:
        if data.dtype != torch.uint8 or data.dim() != 1:
            raise ValueError(f"{region.name}: write takes a flat uint8 tensor, not {tuple(data.shape)} of {data.dtype}")
        found = self._inside(region, offset_bytes, data.numel())
        self.synchronize()
        self._world.space.host_write(found, offset_bytes, data.numpy())

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        found = self._inside(region, offset_bytes, size_bytes)
        self.synchronize()
        return torch.from_numpy(self._world.space.host_read(found, offset_bytes, size_bytes))

    def inspect(self, region: Region) -> torch.Tensor:
        return self.read(region, 0, region.size_bytes)

    def _inside(self, region: Region, offset_bytes: int, size_bytes: int) -> Allocation:
        found = self._allocation(region)
        if offset_bytes < 0 or offset_bytes + size_bytes > region.size_bytes:
            raise ValueError(
                f"{region.name}: bytes {offset_bytes} to {offset_bytes + size_bytes} of {region.size_bytes}"
            )
        return found

    def launch(self, executable: Executable, grid: int, block: int, arguments: Sequence[int]) -> None:
        if grid < 1 or not 1 <= block <= MAX_THREADS_PER_BLOCK:
            raise ValueError(
                f"{executable.name}: {grid} blocks of {block} threads; blocks have 1 to {MAX_THREADS_PER_BLOCK} threads"
            )
        arch = self._world.options.arch
        if executable.arch not in (arch, arch.rstrip("a")):
            raise ValueError(f"{executable.name} was compiled for {executable.arch}, this world simulates {arch}")
        self._world.enqueue(self._rank, executable, grid, block, tuple(int(one) for one in arguments))

    def synchronize(self) -> None:
        world = self._world
        with world.turn:
            world.check(self._rank)
            if not world.queues[self._rank] and not any(batch.rank_alive.get(self._rank) for batch in world.batches):
                world.report_synchronized(self._rank)
                return
        world.wait(self._rank, "synchronize", "synchronize")


def named(ranks: list[int]) -> str:
    """ "rank 3", "ranks 0, 2"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
