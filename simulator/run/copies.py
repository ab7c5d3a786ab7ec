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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.memory.space import LaneFault
from simulator.ptx.ir import Instruction
from simulator.run.groups import Group, ids_of, split
from simulator.run.mbarriers import MBarrier, MisusedBarrier

if TYPE_CHECKING:
    from simulator.run.machine import Batch

Bytes = npt.NDArray[np.uint8]

LAG_STEPS = 16
"""In fair order, steps from issue to read and from read to write: so many that some other block runs in between."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy of one thread. shared: where in the batch's shared memory; index: where in Space.memory; mbarrier: the
    key of the one that counts it, of a load only; due: the step of its next moment. held: its bytes, once read.
    """

    lane: int
    instruction: Instruction
    shared: int
    index: int
    size_bytes: int
    is_load: bool
    due: int
    mbarrier: int = -1
    held: Bytes | None = None
    is_done: bool = False


@dataclass(slots=True)
class Waiting:
    """Lanes at a wait_group: until all but their `allowed` latest groups are done (or read)."""

    following: int
    group: Group
    allowed: int
    reads_only: bool


@dataclass(slots=True)
class Copies:
    """The copies, groups and mbarriers of one batch. An mbarrier's key is its byte in the batch's shared memory."""

    batch: Batch
    under_way: list[Copy] = field(default_factory=list)
    groups: dict[int, list[list[Copy]]] = field(default_factory=dict)
    uncommitted: dict[int, list[Copy]] = field(default_factory=dict)
    mbarriers: dict[int, MBarrier] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    asked: int = -1  # the mbarrier that a lane asked last, for the report of a deadlock

    # What instructions do

    def issue(self, copy: Copy) -> None:
        self.under_way.append(copy)
        rank, _, _ = self.batch.place(copy.lane)
        self.batch.rank_alive[rank] += 1  # a kernel is not over while its copies are under way
        if not copy.is_load:
            self.uncommitted.setdefault(copy.lane, []).append(copy)

    def commit(self, lanes: list[int]) -> None:
        """Make a group of what the lanes have issued since their last one. Who never copied has nothing to wait for."""
        for lane in lanes:
            if lane in self.uncommitted or lane in self.groups:
                groups = self.groups.setdefault(lane, [])
                while groups and all(copy.is_done for copy in groups[0]):
                    groups.pop(0)
                groups.append(self.uncommitted.pop(lane, []))

    def wait(self, one: Waiting) -> None:
        """Send on the lanes whose groups are done; the others wait."""
        held = np.array([self._holds(lane, one.allowed, one.reads_only) for lane in ids_of(one.group).tolist()])
        stay, leave = split(one.group, [held])
        if leave is not None:
            self.batch.arrive(one.following, leave)
        if stay is not None:
            self.waiting.append(Waiting(one.following, stay, one.allowed, one.reads_only))

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
            return
        if not self.batch.shared_written.reshape(-1)[copy.shared : copy.shared + size].all():
            raise LaneFault(0, "bulk copy of shared memory that was never written (poison)")
        copy.held = self.batch.shared.reshape(-1)[copy.shared : copy.shared + size].copy()

    def _write(self, copy: Copy) -> None:
        assert copy.held is not None
        batch, end = self.batch, copy.shared + copy.size_bytes
        copy.is_done = True
        if copy.is_load:
            batch.shared.reshape(-1)[copy.shared : end] = copy.held
            batch.shared_written.reshape(-1)[copy.shared : end] = True
            batch.space.version += 1
            self.count(copy.mbarrier, lambda barrier: barrier.complete(copy.size_bytes))
        else:
            batch.space.write_bulk(copy.index, copy.held)
        rank, _, _ = batch.place(copy.lane)
        batch.rank_alive[rank] -= 1

    def count(self, key: int, change: Callable[[MBarrier], None]) -> None:
        """Change an mbarrier. Raises LaneFault (of lane 0) for none, or one that is misused."""
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
