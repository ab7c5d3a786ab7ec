"""Runs a litmus program on the simulated GPUs, once for each seed, and counts the final states."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memory.fabric import Executable, Launch
from simulator.memory.heaps import Allocation
from simulator.memory.order import Order
from simulator.memory.space import Space
from simulator.memory.weak import WeakSpace
from simulator.observe.events import LaunchBegan, tell
from simulator.options import Granularity, Interleaving, MultimemModel, Schedule
from simulator.run.machine import Batch, Scratch
from simulator.run.queued import Queued
from simulator.run.schedule import Scheduler
from symlab.checks.litmus.compile import ENTRY, LOCATION_BYTES, SLOT_BYTES, Kernel, NotCompiled, kernel_of
from symlab.checks.litmus.outcomes import final_names
from symlab.checks.litmus.program import Program, Seen

HEAP_BYTES = 1 << 16
STEP_BUDGET = 5_000
_ALIGNMENT = 128

State = tuple[tuple[int | None, ...], tuple[str, ...]]
"""A final state as the judge has it: values (None: never written, because its thread waits for ever), and the threads
that wait at a barrier for ever."""


@dataclass(slots=True)
class Machine:
    """A program, ready to run."""

    program: Program
    kernel: Kernel
    space: WeakSpace
    order: Order
    tensors: list[list[Allocation]]
    seen: list[Allocation]
    executable: Executable

    def states(self, seeds: Iterable[int]) -> Counter[State]:
        """Return how often each final state came, one run for each seed."""
        return Counter(self.run(seed) for seed in seeds)

    def run(self, seed: int) -> State:
        """Return the final state of one run. Raises NotCompiled or a FabricError for a loop that does not end."""
        self._restart(seed)
        kernel = self.kernel
        ranks = list(range(kernel.world_size))
        launch = Launch(kernel.grid, kernel.block, cluster=(kernel.cluster, 1, 1))
        queued = [Queued(self.executable, launch, self._arguments(rank), 0, 0) for rank in ranks]
        scheduler = Scheduler(self.space, Interleaving(Schedule.random, Granularity.block, seed), STEP_BUDGET)
        batch = Batch(self.space, Scratch(), ranks, queued, MultimemModel.exact)
        tell(self.space.events.launch_began, LaunchBegan(batch.launched, 0))
        while not scheduler.run([batch]):
            pass
        if batch.asleep:
            raise NotCompiled("a loop did not end, because nothing could change any more what it waits for")
        return self._state()

    def _restart(self, seed: int) -> None:
        space = self.space
        space.seed = seed
        self.order.restart()
        for allocations, tensor in zip(self.tensors, self.kernel.tensors, strict=True):
            for one, raw in zip(allocations, tensor.initial, strict=True):
                _put(space, one, raw)
        for one in self.seen:
            _put(space, one, bytes(one.end - one.start))

    def _arguments(self, rank: int) -> tuple[bytes, ...]:
        space = self.space
        ways = {"own": space.address, "alias": space.alias_address, "multicast": space.multicast_address}
        found = [space.address(rank, self.seen[rank])]
        found += [ways[one.kind](rank, self.tensors[one.tensor][one.rank]) for one in self.kernel.pointers]
        return (rank.to_bytes(4, "little"), *(one.to_bytes(8, "little") for one in found))

    def _state(self) -> State:
        blocked = tuple(one.name for one in self.program.threads if not self._slot(one.name, ""))
        values: list[int | None] = []
        for one in final_names(self.program):
            if not one.thread:
                values.append(self._word(one))
            elif one.thread in blocked and not self._is_written(one):
                values.append(None)
            else:
                values.append(self._slot(one.thread, one.name))
        return tuple(values), blocked

    def _is_written(self, one: Seen) -> bool:
        return bool(self._slot(one.thread, f"{one.name}!"))

    def _slot(self, thread: str, name: str) -> int:
        place = self.kernel.slots.get((thread, name))
        if place is None:
            return 0
        rank, offset = place
        return _number(self.space, self.seen[rank], offset, SLOT_BYTES)

    def _word(self, one: Seen) -> int:
        tensor, rank = self.kernel.locations[one.name]
        return _number(self.space, self.tensors[tensor][rank], 4 * one.word, 4)


def machine_of(program: Program) -> Machine:
    """Return the machine of a program. Raises NotCompiled for a program that no kernel can be."""
    kernel = kernel_of(program)
    for one in final_names(program):
        if not one.thread and one.name in kernel.shared:
            raise NotCompiled(
                f"{one.name} lies in shared memory, and is over with its block: no condition can be about it"
            )
    observers = kernel.world_size * kernel.grid * kernel.block
    has_aliases = any(one.kind == "alias" for one in kernel.pointers)
    space = WeakSpace(kernel.world_size, HEAP_BYTES, True, 0, has_aliases, observers, False)
    order = Order(space)
    space.events.add(order)
    ranks = range(kernel.world_size)
    tensors = [[space.allocate(rank, LOCATION_BYTES, _ALIGNMENT, one.name) for rank in ranks] for one in kernel.tensors]
    seen = [space.allocate(rank, kernel.seen_bytes, _ALIGNMENT, "registers") for rank in ranks]
    return Machine(program, kernel, space, order, tensors, seen, executable_of(program, kernel))


def executable_of(program: Program, kernel: Kernel) -> Executable:
    """Return a program's kernel, ready to be launched."""
    digest = hashlib.sha256(kernel.ptx.encode()).hexdigest()
    return Executable(f"litmus/{program.name}", ENTRY, "sm_90a", kernel.ptx, f"sha256:{digest}")


def _put(space: Space, one: Allocation, raw: bytes) -> None:
    space.host_write(one, 0, np.frombuffer(raw, np.uint8))


def _number(space: Space, one: Allocation, offset: int, size: int) -> int:
    return int.from_bytes(space.host_read(one, offset, size).tobytes(), "little")
