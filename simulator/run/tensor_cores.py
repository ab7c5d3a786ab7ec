"""What tcgen05 began and what goes on later than its own step; and warps that wait for an allocation.

What one thread issues (mma, cp, commit) takes place in its order, each at a step that the schedule chooses, as bulk
copies do: an mma reads shared memory then and writes tensor memory then, and a commit arrives at its mbarriers when all
before it is over. Who reads a result before it waited for the mbarrier finds what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.memory.space import LaneFault
from simulator.memory.tensor_memory import TensorMemory
from simulator.observe.events import TensorMoment, tell
from simulator.observe.lanes import Group, Ids, ids_of
from simulator.ptx.ir import Instruction
from simulator.run.groups import compact
from simulator.run.owner import LAG_STEPS, Owner


@dataclass(slots=True, eq=False)
class Work:
    """An operation of one thread. act: does it; blocks: whose memory it needs; due: as of copies."""

    number: int
    lane: int
    instruction: Instruction
    act: Callable[[Work], None]
    blocks: tuple[int, ...]
    due: int
    is_done: bool = False
    is_load: bool = False


@dataclass(slots=True, eq=False)
class Request:
    """A warp that waits for columns. taken: where it goes on; store: writes the address where the warp asked for it."""

    lanes: Ids
    instruction: Instruction
    block: int
    columns: int
    is_pair: bool
    store: Callable[[int], None]
    taken: int = -1

    @property
    def told(self) -> str:
        pair = " in both blocks of its pair" if self.is_pair else ""
        return f"{self.columns} columns of tensor memory{pair}"


@dataclass(slots=True)
class TensorCores:
    """Of one batch. queues: what each thread has begun; asked: warps that wait for an allocation; given_up: blocks that
    allocate no more; by: the latest instruction that allocated in a block."""

    batch: Owner
    memory: TensorMemory = field(default_factory=TensorMemory)
    issued: int = 0
    queues: dict[int, list[Work]] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    given_up: set[int] = field(default_factory=set)
    by: dict[int, Instruction] = field(default_factory=dict)

    def blocks_of(self, block: int, is_pair: bool) -> tuple[int, ...]:
        """The block, or the blocks of its pair, the one with the even rank in the cluster first. Raises LaneFault for a
        block without another."""
        if not is_pair:
            return (block,)
        clusters = self.batch.launched.clusters
        if clusters.size % 2:
            raise LaneFault(0, f"cta_group::2 in a cluster of {clusters.size} blocks: pairs of blocks carry it out")
        return tuple(clusters.pair_of(block))

    # Allocations

    def ask(self, lanes: Ids, instruction: Instruction, *wanted: Any) -> None:
        """A warp comes to tcgen05.alloc; wanted: the rest of its Request. Raises LaneFault for one that can't be."""
        request = Request(lanes, instruction, *wanted)
        blocks = self.blocks_of(request.block, request.is_pair)
        if request.block in self.given_up:
            raise LaneFault(0, "tcgen05.alloc after the block's tcgen05.relinquish_alloc_permit")
        for other in self.asked:
            if request.is_pair and other.block in blocks and other.columns != request.columns:
                text = f"tcgen05.alloc of {request.columns} columns, where the other block of the pair asks for"
                raise LaneFault(0, f"{text} {other.columns} at PTX line {other.instruction.line}")
        self.asked.append(request)

    def free(self, block: int, address: int, columns: int) -> None:
        """A warp comes to tcgen05.dealloc."""
        self.memory.free(block, address, columns)

    def settle(self, taken: int, lanes: Ids) -> Ids:
        """Carry out what can be allocated now. Return which of the lanes that did something together go on, to taken;
        those of earlier requests that are met go on, too."""
        for one in self.asked:
            one.taken = taken if one.taken < 0 else one.taken
        progress = bool(self.asked)
        while progress:
            progress = False
            for request in self.asked:
                met = self._met(request)
                if met:
                    self.asked = [one for one in self.asked if one not in met]
                    for one in met:
                        if not np.isin(one.lanes[0], lanes):
                            self.batch.arrive(one.taken, compact(one.lanes))
                    progress = True
                    break
        held = [one.lanes for one in self.asked]
        return lanes[~np.isin(lanes, np.concatenate(held))] if held else lanes

    def _met(self, request: Request) -> list[Request]:
        """Allocate for a request, and that of the other block of its pair; return them."""
        blocks = self.blocks_of(request.block, request.is_pair)
        ours = [next((one for one in self.asked if one.block == block), None) for block in blocks]
        found = [one for one in ours if one is not None]
        if len(found) < len(blocks):
            return []
        start = self.memory.allocate(blocks, request.columns)
        for one in found if start >= 0 else ():
            one.store(start)
            self.by[one.block] = one.instruction
        return found if start >= 0 else []

    # Operations

    def issue(self, lane: int, instruction: Instruction, act: Callable[[Work], None], blocks: tuple[int, ...]) -> None:
        """Begin an operation of a thread."""
        batch: Any = self.batch
        work = Work(self.issued, lane, instruction, act, blocks, batch.steps + LAG_STEPS)
        self.issued += 1
        self.queues.setdefault(lane, []).append(work)
        batch.copies.under_way.append(work)
        batch.rank_alive[batch.place(lane)[0]] += 1
        self.report(work, "issued")

    def report(self, work: Work, moment: str, **what: Any) -> None:
        """Tell the listeners how far an operation is."""
        events = self.batch.space.events
        if events.tensor:
            who = (self.batch.launched, compact(np.array([work.lane])), events.step)
            tell(events.tensor, TensorMoment(*who, work.instruction, moment, work.number, **what))

    def advance(self, work: Work) -> None:
        """Carry out an operation, after all of its thread's before it."""
        queue = self.queues[work.lane]
        while not work.is_done:
            one = queue.pop(0)
            with self.batch.blaming(range(one.lane, one.lane + 1), one.instruction):
                one.act(one)
            one.is_done = True
            self.batch.space.version += 1
            self.batch.finish(self.batch.place(one.lane)[0], 1)

    def ended(self, lanes: Group) -> None:
        """Some threads are over, perhaps their blocks. Raises DeviceFault if something still uses the memory of one, or
        if columns are left."""
        over = [block for block in set(self.batch.blocks_of(lanes).tolist()) if self.batch.alive[block] == 0]
        for block in over:
            name = f"block {block % self.batch.launched.grid}"
            for work in (one for queue in self.queues.values() for one in queue if block in one.blocks):
                text = f"{name} ended while {work.instruction.mnemonic} was under way, which uses its memory"
                raise self.batch.fault(work.lane, text, work.instruction)
            if left := self.memory.owned.get(block):
                text = f"{name} ended with {sum(left.values())} columns of tensor memory: tcgen05.dealloc is missing"
                raise self.batch.fault(int(ids_of(lanes)[-1]), text, self.by[block])
