"""SimulatorFabric: one rank's Fabric in a SimulatedWorld (simulator/world.py)."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from memory.fabric import (
    MAX_CLUSTER_BLOCKS,
    Argument,
    Disagreement,
    Executable,
    Launch,
    NoMulticast,
    Region,
    Traits,
    WrongCall,
    check_cluster_arch,
    check_dependent,
    check_shared_bytes,
    check_variable,
    packed,
)
from memory.ranks import attributed
from simulator.memory.heaps import Allocation
from simulator.memory.space import Space
from simulator.observe.events import HostAccess, tell
from simulator.ptx.ir import Kernel
from simulator.run.decode import decode
from simulator.run.nvshmem import check_version

if TYPE_CHECKING:
    from simulator.run.residency import Resident


class World(Protocol):
    """What a fabric needs of its world: simulator.world.SimulatedWorld has it."""

    world_size: int
    space: Space
    turn: threading.Condition
    regions: list[dict[int, Allocation]]

    @property
    def traits(self) -> Traits: ...
    def check(self, rank: int) -> None: ...
    def wait(self, rank: int, state: str, note: str) -> tuple[str, ...] | None: ...
    def has_work(self, rank: int) -> bool: ...
    def report_synchronized(self, rank: int) -> None: ...
    def resident(self, executable: Executable, launch: Launch) -> Resident | None: ...
    def enqueue(self, rank: int, executable: Executable, launch: Launch, arguments: tuple[bytes, ...]) -> None: ...
    def wait_stream(self, rank: int, stream: int | None, other: int | None) -> None: ...


class SimulatorFabric:
    """One rank's Fabric in a SimulatedWorld (see memory.fabric.Fabric for what each method promises)."""

    def __init__(self, world: World, rank: int) -> None:
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
        return self._world.traits

    def exchange(self, note: str) -> tuple[str, ...]:
        answer = self._world.wait(self._rank, "exchange", note)
        assert answer is not None
        return answer

    def _together(self, note: str) -> None:
        notes = self.exchange(note)
        if any(one != notes[0] for one in notes):
            raise Disagreement(f"the ranks called different things: {attributed(notes)}")

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
            raise WrongCall(
                f"rank {self._rank}: {region.name} is not allocated here (freed already, or another rank's)",
                rank=self._rank,
            )
        return found

    def declare_local(self, region: Region) -> None:
        self._world.space.make_local(self._allocation(region))

    def free(self, region: Region) -> None:
        found = self._allocation(region)
        self.synchronize()
        self._together(f"free {region.name}: {region.size_bytes} bytes")
        self._release(region, found)
        if any(view() is not None for view in found.views):
            raise WrongCall(
                f'rank {self._rank}: a view of "{region.name}" outlives it: '
                "del what was made from its memory (slices of .local) before its release",
                rank=self._rank,
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
        if not self._world.space.multicast:
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
        self._tell("write", found, offset_bytes, data.numel())
        self._world.space.host_write(found, offset_bytes, data.numpy())

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> torch.Tensor:
        found = self._inside(region, offset_bytes, size_bytes)
        self.synchronize()
        if not size_bytes:  # NumPy's empty arrays have strides that torch can't view as another type
            return torch.empty(0, dtype=torch.uint8)
        self._tell("read", found, offset_bytes, size_bytes)
        return torch.from_numpy(self._world.space.host_read(found, offset_bytes, size_bytes))

    def _tell(self, action: str, found: Allocation, offset_bytes: int, size_bytes: int) -> None:
        """Tell the listeners of an access by this rank's host."""
        events = self._world.space.events
        if events.host_access and size_bytes:
            with self._world.turn:
                event = HostAccess(self._rank, action, found.start + offset_bytes, size_bytes)
                tell(events.host_access, event)

    def inspect(self, region: Region, offset_bytes: int = 0, size_bytes: int | None = None) -> torch.Tensor:
        return self.read(region, offset_bytes, region.size_bytes - offset_bytes if size_bytes is None else size_bytes)

    def never_written(self, region: Region) -> torch.Tensor:
        found = self._allocation(region)
        self.synchronize()
        return torch.from_numpy(self._world.space.written[found.start : found.end] == 0)

    def _inside(self, region: Region, offset_bytes: int, size_bytes: int) -> Allocation:
        found = self._allocation(region)
        if offset_bytes < 0 or offset_bytes + size_bytes > region.size_bytes:
            raise ValueError(
                f"{region.name}: bytes {offset_bytes} to {offset_bytes + size_bytes} of {region.size_bytes}"
            )
        return found

    def load(self, executable: Executable) -> None:
        self._kernel(executable)

    def launch(self, executable: Executable, launch: Launch, arguments: Sequence[Argument]) -> None:
        name, arch = executable.name, self.traits.arch
        if executable.arch not in (arch, arch.rstrip("a")):
            raise ValueError(f"{name} was compiled for {executable.arch}, this world simulates {arch}")
        kernel = self._kernel(executable)
        _check_cluster(name, arch, kernel, launch)
        check_dependent(launch, executable)
        if unfit := kernel.refuses_block(name, launch.block):
            raise ValueError(unfit)
        check_shared_bytes(name, launch, kernel.dynamic_offset_bytes, self.traits.block_shared_bytes, kernel.target)
        with self._world.turn:  # so that one rank asks ptxas, and the others find its answer
            self._world.resident(executable, launch)
        sizes = [parameter.size_bytes for parameter in kernel.parameters]
        self._world.enqueue(self._rank, executable, launch, packed(name, sizes, arguments))

    def wait_stream(self, stream: int | None, other: int | None) -> None:
        self._world.wait_stream(self._rank, stream, other)

    def _kernel(self, executable: Executable) -> Kernel:
        with self._world.turn:  # so that one rank decodes a kernel, and the others find it decoded
            self._world.check(self._rank)
            kernel = decode(executable.ptx, executable.entry).kernel
        check_version(executable, kernel)
        return kernel

    def set_variable(self, executable: Executable, name: str, offset_bytes: int, content: bytes) -> None:
        kernel = self._kernel(executable)
        sizes = {one.name: one.size_bytes for one in kernel.variables if one.linkage != "extern"}
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise ValueError(f"{executable.name} uses no variable {name} (variables), those that it uses: {known}")
        check_variable(executable.name, name, sizes[name], offset_bytes, content)
        from simulator.run.variables import variable_of

        self.synchronize()
        with self._world.turn:
            space = self._world.space
            variable = variable_of(space, executable, kernel, self._rank, name)
            space.host_write(variable, offset_bytes, np.frombuffer(content, np.uint8))

    def synchronize(self) -> None:
        world = self._world
        with world.turn:
            world.check(self._rank)
            if not world.has_work(self._rank):
                world.report_synchronized(self._rank)
                return
        world.wait(self._rank, "synchronize", "synchronize")

    def pause(self, seconds: float) -> None:
        """The rank's host goes on when nothing else can happen: when the other ranks are as far as they get alone."""
        self._world.wait(self._rank, "pause", "pause")


def _check_cluster(name: str, arch: str, kernel: Kernel, launch: Launch) -> None:
    """Raise ValueError for clusters that the kernel or the simulated GPU can't have."""
    wanted, given = kernel.required_cluster, launch.cluster
    if wanted is None and kernel.is_explicit_cluster and given == (1, 1, 1):
        raise ValueError(f"{name} is compiled for launches with clusters (.explicitcluster): give a cluster")
    if wanted is not None and given not in ((1, 1, 1), wanted):
        raise ValueError(f"{name} is compiled for clusters of {wanted} blocks, not {given} (.reqnctapercluster)")
    shape = wanted or given
    size, most = math.prod(shape), kernel.most_cluster_blocks
    if size > MAX_CLUSTER_BLOCKS:
        raise ValueError(
            f"{name} is compiled for clusters of {size} blocks (.reqnctapercluster); "
            f"the simulator has at most {MAX_CLUSTER_BLOCKS}, which every GPU with clusters has"
        )
    if most is not None and size > most:
        raise ValueError(f"{name} takes clusters of at most {most} blocks, not {size} (.maxclusterrank)")
    if any(blocks % blocks_in_cluster for blocks, blocks_in_cluster in zip(launch.grid, shape, strict=True)):
        raise ValueError(f"{name}: grid is {launch.grid}, not a multiple of the kernel's cluster {shape} in x, y and z")
    check_cluster_arch(name, arch, size)
