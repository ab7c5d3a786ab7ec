"""Bulk copies that are under way: what cp.async.bulk began, and what happens to it later than its own step.

A copy takes place in two moments of its own: it reads all its source, then it writes all its destination. Both come at
steps that the schedule chooses, never at the step that issued it. So a kernel that uses a destination before it waited
finds old bytes or poison there, and one that overwrites a source too early has copied the new bytes.

A copy into shared memory ends by counting its bytes on an mbarrier; one into global memory belongs to a group of its
thread, which the thread can wait for (cp.async.bulk.wait_group): until it has been written, or (.read) only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memory.fabric import DeviceFault
from simulator.memory.space import LaneFault, Space
from simulator.observe.events import (
    CopiesAwaited,
    CopiesCommitted,
    CopyMoment,
    MbarrierOperation,
    tell,
)
from simulator.observe.lanes import Group, Ids, Launched, ids_of
from simulator.ptx.ir import Immediate, Instruction
from simulator.run.groups import compact, split
from simulator.run.mbarriers import MAX_COUNT, MBarrier, MisusedBarrier

Bytes = npt.NDArray[np.uint8]

LAG_STEPS = 16
"""Steps from issue to read and from read to write, in fair order: enough for another block to run in between."""


class Owner(Protocol):
    """The batch that copies belong to, as far as they need it."""

    space: Space
    launched: Launched
    block: int
    shared: Any
    shared_written: Any
    rank_alive: dict[int, int]
    steps: int

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

    def arrive(self, index: int, group: Group) -> None:
        """Send lanes to a basic block."""
        ...

    def finish(self, rank: int, count: int) -> None:
        """Count threads or copies of a rank as over."""
        ...

    def fault(self, lane: int, message: str, instruction: Instruction) -> DeviceFault:
        """The error that names a lane and what it did wrong in which instruction."""
        ...


@dataclass(slots=True, eq=False)
class Copy:
    """One copy of one thread. shared: where in the batch's shared memory; index: where in Space.memory; mbarrier: the
    key of the one that counts it, of a load only; group: the number of its group among the lane's, of a store only;
    due: the step of its next moment. held: its bytes, once read.
    """

    number: int
    lane: int
    instruction: Instruction
    shared: int
    index: int
    size_bytes: int
    is_load: bool
    due: int
    mbarrier: int
    group: int
    held: Bytes | None = None
    is_done: bool = False


@dataclass(slots=True)
class Waiting:
    """Lanes at a wait_group: until all but their `allowed` latest groups are done (or read)."""

    following: int
    group: Group
    instruction: Instruction

    @property
    def allowed(self) -> int:
        operand = self.instruction.operands[0]
        assert isinstance(operand, Immediate)
        return operand.bits

    @property
    def reads_only(self) -> bool:
        return "read" in self.instruction.qualifiers


@dataclass(slots=True)
class Copies:
    """The copies, groups and mbarriers of one batch. An mbarrier's key is its byte in the batch's shared memory."""

    batch: Owner
    issued: int = 0
    under_way: list[Copy] = field(default_factory=list)
    groups: dict[int, list[list[Copy]]] = field(default_factory=dict)
    uncommitted: dict[int, list[Copy]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)  # how many groups a lane has made
    mbarriers: dict[int, MBarrier] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    asked: int = -1  # the mbarrier that a lane asked last, for the report of a deadlock

    # What instructions do

    def issue(
        self,
        lane: int,
        instruction: Instruction,
        shared: int,
        index: int,
        size_bytes: int,
        is_load: bool,
        mbarrier: int,
    ) -> None:
        """Begin a copy: the arguments are those of Copy."""
        group = -1 if is_load else self.committed.get(lane, 0)
        due = self.batch.steps + LAG_STEPS
        copy = Copy(self.issued, lane, instruction, shared, index, size_bytes, is_load, due, mbarrier, group)
        self.issued += 1
        self.under_way.append(copy)
        rank, _, _ = self.batch.place(lane)
        self.batch.rank_alive[rank] += 1  # a kernel is not over while its copies are under way
        if not is_load:
            self.uncommitted.setdefault(lane, []).append(copy)
        self._report(copy, "issued")

    def commit(self, lanes: Group, instruction: Instruction) -> None:
        """Make a group of what the lanes have issued since their last one. Who never copied has nothing to wait for."""
        made = []
        for lane in ids_of(lanes).tolist():
            made.append(-1)
            if lane in self.uncommitted or lane in self.groups:
                groups = self.groups.setdefault(lane, [])
                while groups and all(copy.is_done for copy in groups[0]):
                    groups.pop(0)
                groups.append(self.uncommitted.pop(lane, []))
                made[-1] = self.committed.get(lane, 0)
                self.committed[lane] = made[-1] + 1
        events = self.batch.space.events
        if events.copies_committed:
            event = CopiesCommitted(self.batch.launched, lanes, events.step, instruction, np.array(made, np.int64))
            tell(events.copies_committed, event)

    def wait(self, one: Waiting) -> None:
        """Send on the lanes whose groups are done; the others wait."""
        allowed, reads_only = one.allowed, one.reads_only
        held = np.array([self._holds(lane, allowed, reads_only) for lane in ids_of(one.group).tolist()])
        stay, leave = split(one.group, [held])
        if leave is not None:
            events = self.batch.space.events
            if events.copies_awaited:
                who = (self.batch.launched, leave, events.step)
                tell(events.copies_awaited, CopiesAwaited(*who, one.instruction, allowed, reads_only))
            self.batch.arrive(one.following, leave)
        if stay is not None:
            self.waiting.append(Waiting(one.following, stay, one.instruction))

    def _holds(self, lane: int, allowed: int, reads_only: bool) -> bool:
        groups = self.groups.get(lane, ())
        return any(
            not (copy.is_done or (reads_only and copy.held is not None))
            for group in groups[: max(len(groups) - allowed, 0)]
            for copy in group
        )

    def ended(self, lanes: Group) -> None:
        """Some lanes are over, perhaps their blocks. Raises DeviceFault if a copy still uses one's shared memory."""
        blocks = set(self.batch.blocks_of(lanes).tolist())
        for copy in self.under_way:
            block = copy.lane // self.batch.block
            if block in blocks and self.batch.alive[block] == 0 and (copy.is_load or copy.held is None):
                what = "writes" if copy.is_load else "reads"
                text = f"the block ended while a bulk copy still {what} its shared memory"
                raise self.batch.fault(copy.lane, text, copy.instruction)

    # What happens by itself

    def advance(self, chosen: list[Copy]) -> None:
        """Let these copies read, or write if they have read."""
        for copy in chosen:
            try:
                if copy.held is None:
                    self._read(copy)
                    copy.due = self.batch.steps + LAG_STEPS
                else:
                    self._write(copy)
            except LaneFault as fault:
                raise self.batch.fault(copy.lane, fault.message, copy.instruction) from None
        if chosen:
            self.under_way = [copy for copy in self.under_way if not copy.is_done]
            waiting, self.waiting = self.waiting, []
            for one in waiting:
                self.wait(one)

    def _read(self, copy: Copy) -> None:
        size = copy.size_bytes
        if copy.is_load:
            copy.held = self.batch.space.read_bulk(copy.index, size)
        elif not self.batch.shared_written.reshape(-1)[copy.shared : copy.shared + size].all():
            raise LaneFault(0, "bulk copy of shared memory that was never written (poison)")
        else:
            copy.held = self.batch.shared.reshape(-1)[copy.shared : copy.shared + size].copy()
        self._report(copy, "read")

    def _write(self, copy: Copy) -> None:
        assert copy.held is not None
        batch, end = self.batch, copy.shared + copy.size_bytes
        copy.is_done = True
        if copy.is_load:
            batch.shared.reshape(-1)[copy.shared : end] = copy.held
            batch.shared_written.reshape(-1)[copy.shared : end] = True
            batch.space.version += 1
            self._report(copy, "written")
            self._complete(copy)
        else:
            batch.space.write_bulk(copy.index, copy.held)
            self._report(copy, "written")
        batch.finish(batch.place(copy.lane)[0], 1)

    def _report(self, copy: Copy, moment: str) -> None:
        """Tell the listeners how far a copy is."""
        batch, events = self.batch, self.batch.space.events
        if events.copy:
            rank, row = batch.place(copy.lane)[0], batch.shared.shape[1]
            target = copy.index // batch.space.capacity
            address = batch.space.base(rank) + copy.index
            mbarrier = copy.mbarrier % row if copy.is_load else -1
            event = CopyMoment(
                batch.launched, compact(np.array([copy.lane])), events.step, copy.instruction, moment, copy.number,
                copy.is_load, address, target, copy.shared % row, copy.size_bytes, mbarrier, copy.group,
            )  # fmt: skip
            tell(events.copy, event)

    # mbarriers; all raise LaneFault (of lane 0)

    def init(self, key: int, count: int) -> None:
        """Make an mbarrier; each of its phases expects the given number of arrivals."""
        if not 1 <= count <= MAX_COUNT:
            raise LaneFault(0, f"an mbarrier for {count} arrivals; it takes 1 to {MAX_COUNT:,}")
        if key in self.mbarriers:
            raise LaneFault(0, f"{self.place(key)} holds {self.mbarriers[key]} already")
        self.mbarriers[key] = MBarrier(count)

    def invalidate(self, key: int) -> None:
        """Make an mbarrier's place ordinary memory again."""
        if self.mbarriers.pop(key, None) is None:
            raise LaneFault(0, f"{self.place(key)} holds no mbarrier")

    def expect(self, key: int, size_bytes: int) -> None:
        """Announce bytes that will be copied."""
        self._change(key, lambda barrier: barrier.expect(size_bytes))

    def arrive(self, key: int, count: int) -> None:
        """Count arrivals."""
        self._change(key, lambda barrier: barrier.arrive(count))

    def phase(self, key: int) -> int:
        """The number of an mbarrier's current phase; 0 where there is none."""
        return self.mbarriers[key].phase if key in self.mbarriers else 0

    def _complete(self, copy: Copy) -> None:
        """Count the bytes of a copy that was written."""
        phase, key = self.phase(copy.mbarrier), copy.mbarrier
        self._change(key, lambda barrier: barrier.complete(copy.size_bytes))
        events = self.batch.space.events
        if events.mbarrier:
            lane = compact(np.array([copy.lane]))
            place, phases, counts = (
                np.array([one], np.int64) for one in (key % self.batch.shared.shape[1], phase, copy.size_bytes)
            )
            who = (self.batch.launched, lane, events.step)
            event = MbarrierOperation(*who, copy.instruction, "complete_tx", place, phases, counts)
            tell(events.mbarrier, event)

    def _change(self, key: int, change: Callable[[MBarrier], None]) -> None:
        barrier = self.mbarriers.get(key)
        if barrier is None:
            raise LaneFault(0, f"{self.place(key)} holds no mbarrier")
        try:
            change(barrier)
        except MisusedBarrier as error:
            raise LaneFault(0, f"{self.place(key)}: {error}") from None

    def place(self, key: int) -> str:
        """ "byte 0x40 of shared memory"."""
        return f"byte {key % self.batch.shared.shape[1]:#x} of shared memory"

    def told(self, key: int) -> str:
        """ "an mbarrier in phase 0 (1 of 1 arrivals and 0 bytes to come) at byte 0x40 of shared memory"."""
        return f"{self.mbarriers[key]} at {self.place(key)}"
