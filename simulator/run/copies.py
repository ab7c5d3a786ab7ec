"""Copies that are under way: what cp.async and its relatives began, and what happens to it later than its own step.

A bulk copy takes place in two moments of its own: it reads all its source, then it writes all its destination. Both
come at steps that the schedule chooses, never at the step that issued it. So a kernel that uses a destination before it
waited finds old bytes or poison there, and one that overwrites a source too early has copied the new bytes. A reduction
(cp.reduce.async.bulk) combines what it read with its destination when it writes, all elements in one step.

A copy into shared memory ends by counting its bytes on an mbarrier; one into global memory belongs to a group of its
thread, which the thread can wait for (cp.async.bulk.wait_group): until it has been written, or (.read) only read. The
small copies of single lanes (cp.async) are in simulator/run/lane_copies.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from simulator.memory.space import LaneFault
from simulator.memory.tensor_map import stretches
from simulator.memory.transfer import Transfer
from simulator.observe.events import (
    MULTICAST_TARGET,
    CopiesAwaited,
    CopyMoment,
    MbarrierOperation,
    tell,
)
from simulator.observe.lanes import Group, ids_of
from simulator.ptx.ir import Immediate, Instruction
from simulator.run.groups import compact, split
from simulator.run.lane_copies import Arrival, LaneCopies, LaneCopy
from simulator.run.mbarriers import Mbarriers
from simulator.run.owner import LAG_STEPS, Owner

if TYPE_CHECKING:
    from simulator.run.tensor_cores import Work

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Copy:
    """One bulk copy of one thread. group: the number of its group among the lane's, -1 if an mbarrier counts it; due:
    the step of its next moment. held: its bytes, once read; left: the first and the end of the bytes that the moment
    which has begun still has to read or write, None if it has not begun.
    """

    number: int
    lane: int
    instruction: Instruction
    transfer: Transfer
    due: int
    group: int
    held: Bytes | None = None
    is_done: bool = False
    left: tuple[int, int] | None = None
    read_first: Bytes | None = None

    @property
    def is_load(self) -> bool:
        """Whether it goes into shared memory."""
        return self.transfer.target_space == "shared"

    def blocks(self, row_bytes: int) -> set[int]:
        """The blocks whose shared memory it still needs, each of row_bytes."""
        space, start = self.transfer.source
        places = [start] if space == "shared" and self.held is None else []
        return {place // row_bytes for place in (*places, *(self.transfer.targets if self.is_load else ()))}


UnderWay = Union[Copy, LaneCopy, Arrival, "Work"]
TORN_BYTES = 16
"""Where a bulk copy may be torn: at multiples of this, which is a multiple of each element's size."""


@dataclass(slots=True)
class Waiting:
    """Lanes at a wait_group: until all but their `allowed` latest groups are done (or read); -1: all their copies."""

    following: int
    group: Group
    instruction: Instruction

    @property
    def allowed(self) -> int:
        if "wait_all" in self.instruction.qualifiers:
            return -1
        operand = self.instruction.operands[0]
        assert isinstance(operand, Immediate)
        return operand.bits

    @property
    def reads_only(self) -> bool:
        return "read" in self.instruction.qualifiers


@dataclass(slots=True)
class Copies:
    """The copies of one batch. under_way: bulk copies, and those of single lanes (lane_copies). grouped: by lane, its
    bulk copies that belong to groups and may not be done; committed: how many groups it has made."""

    batch: Owner
    mbarriers: Mbarriers
    issued: int = 0
    under_way: list[UnderWay] = field(default_factory=list)
    grouped: dict[int, list[Copy]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    lane_copies: LaneCopies = field(init=False)

    def __post_init__(self) -> None:
        self.lane_copies = LaneCopies(self.batch, self.mbarriers)

    # What instructions do

    def issue(self, lane: int, instruction: Instruction, transfer: Transfer, held: Bytes | None = None) -> None:
        """Begin a bulk copy; held: its bytes, of one whose source is registers."""
        is_grouped = transfer.mbarrier < 0
        group = self.committed.get(lane, 0) if is_grouped else -1
        copy = Copy(self.issued, lane, instruction, transfer, self.batch.steps + LAG_STEPS, group, held)
        self.issued += 1
        self.under_way.append(copy)
        rank, _, _ = self.batch.place(lane)
        self.batch.rank_alive[rank] += 1  # a kernel is not over while its copies are under way
        if is_grouped:
            self.grouped.setdefault(lane, []).append(copy)
        self._report(copy, "issued")
        if held is not None:
            self._report(copy, "read")

    def issue_lanes(self, lanes: Group, instruction: Instruction, *how: Any) -> None:
        """Begin copies of single lanes; how: the further arguments of LaneCopies.issue."""
        self.under_way.append(self.lane_copies.issue(lanes, instruction, *how))

    def arrive_later(self, lanes: Group, instruction: Instruction, keys: list[int], adds: bool) -> None:
        """Let lanes arrive at mbarriers when their copies are done, see LaneCopies."""
        self.under_way.append(self.lane_copies.arrive_later(lanes, instruction, keys, adds))

    def commit(self, lanes: Group, instruction: Instruction) -> None:
        """Make a group of what the lanes have issued since their last one. A lane that never issued a bulk copy has
        nothing to wait for."""
        if "bulk" not in instruction.qualifiers:
            self.lane_copies.commit(lanes)
            return
        for lane in ids_of(lanes).tolist():
            if lane in self.grouped:
                self.grouped[lane] = [copy for copy in self.grouped[lane] if not copy.is_done]
                self.committed[lane] = self.committed.get(lane, 0) + 1

    def wait(self, one: Waiting) -> None:
        """Send on the lanes whose groups are done; the others wait."""
        lanes = ids_of(one.group)
        if "bulk" in one.instruction.qualifiers:
            ends = [self.committed.get(lane, 0) - one.allowed for lane in lanes.tolist()]
            pairs = zip(lanes.tolist(), ends, strict=True)
            held, over = np.array([self._holds(*pair, one.reads_only) for pair in pairs]), np.array(ends, np.int64)
        else:
            held, over = self.lane_copies.awaited(lanes, one.allowed)
        stay, leave = split(one.group, [held])
        if leave is not None:
            events = self.batch.space.events
            if events.copies_awaited:
                who = (self.batch.launched, leave, events.step)
                tell(events.copies_awaited, CopiesAwaited(*who, one.instruction, over[~held], one.reads_only))
            self.batch.arrive(one.following, leave)
        if stay is not None:
            self.waiting.append(Waiting(one.following, stay, one.instruction))

    def _holds(self, lane: int, over: int, reads_only: bool) -> bool:
        """Whether some copy of a lane's groups below a number is not done, or has not read."""
        return any(
            copy.group < over and not (copy.is_done or (reads_only and copy.held is not None))
            for copy in self.grouped.get(lane, ())
        )

    def ended(self, lanes: Group) -> None:
        """Some lanes are over, perhaps their blocks. Raises DeviceFault if a bulk copy still uses the shared memory
        of one."""
        blocks = set(self.batch.blocks_of(lanes).tolist())
        for copy in self.under_way:
            if not isinstance(copy, Copy):
                continue
            for block in copy.blocks(self.batch.shared.shape[1]) & blocks:
                if self.batch.alive[block] == 0:
                    own = block == copy.lane // self.batch.block
                    who = "the block" if own else f"block {block % self.batch.launched.grid}"
                    what = "writes" if copy.is_load else "reads"
                    text = f"{who} ended while a bulk copy still {what} its shared memory"
                    raise self.batch.fault(copy.lane, text, copy.instruction)

    # What happens by itself

    def advance(self, chosen: list[UnderWay], tear: int = 0) -> None:
        """Let these copies read, or write if they have read. tear: let bulk copies that have not begun to do so do a
        part of it, which depends on the number; 0: all."""
        for one in chosen:
            if isinstance(one, Copy):
                self._advance(one, tear)
            elif isinstance(one, LaneCopy | Arrival):
                self.lane_copies.advance(one)
            else:
                self.batch.tensor_cores.advance(one)
        if chosen:
            self.under_way = [one for one in self.under_way if not one.is_done]
            waiting, self.waiting = self.waiting, []
            for group in waiting:
                self.wait(group)

    def part(self, one: UnderWay, lane: int, width: int) -> UnderWay:
        """Return a piece of lanes' copies that can move on alone: of the `width` lanes of a block around this one. Bulk
        copies are in one piece."""
        if not isinstance(one, LaneCopy):
            return one
        low = lane - lane % self.batch.block % width
        found = self.lane_copies.part(one, low, low + width)
        if found is None:
            return one
        self.under_way.append(found)
        return found

    def _advance(self, copy: Copy, tear: int) -> None:
        self.batch.space.copying = (self.batch.launched, copy.number)
        size = copy.transfer.size_bytes
        low, high = copy.left or (0, size)
        if copy.left is None and tear and size > TORN_BYTES:
            cut = (1 + tear // 2 % (size // TORN_BYTES)) * TORN_BYTES
            cut = min(cut, size - TORN_BYTES)
            first, copy.left = ((0, cut), (cut, size)) if tear % 2 else ((cut, size), (0, cut))
            low, high = first
        else:
            copy.left = None
        try:
            with self.batch.blaming(range(copy.lane, copy.lane + 1), copy.instruction):
                if copy.held is None:
                    self._read(copy, low, high)
                else:
                    self._write(copy, copy.held, low, high)
        finally:
            self.batch.space.copying = None
        copy.due = self.batch.steps + LAG_STEPS

    def _read(self, copy: Copy, low: int, high: int) -> None:
        """Read bytes of a copy; once all are there, it has read."""
        transfer = copy.transfer
        space, start = transfer.source
        if space == "global":
            found = self._global_bytes(start, transfer, low, high)
        else:
            found = self._shared_bytes(start, transfer, low, high)
        if (low, high) != (0, transfer.size_bytes):
            if copy.read_first is None:
                copy.read_first = np.zeros(transfer.size_bytes, np.uint8)
            copy.read_first[low:high] = found
            found = copy.read_first
        if copy.left is not None:
            return
        copy.held = found
        self._report(copy, "read")
        if transfer.mbarriers:
            self._divide(copy)

    def _divide(self, copy: Copy) -> None:
        """Make a copy to several blocks one for each of them, which are written at moments of their own."""
        transfer = copy.transfer
        each = [
            replace(transfer, targets=(target,), mbarrier=key, mbarriers=())
            for target, key in zip(transfer.targets, transfer.mbarriers, strict=True)
        ]
        copy.transfer = each[0]
        self.under_way += [replace(copy, transfer=one, due=self.batch.steps + LAG_STEPS) for one in each[1:]]
        self.batch.rank_alive[self.batch.place(copy.lane)[0]] += len(each) - 1

    def _global_bytes(self, start: int, transfer: Transfer, low: int, high: int) -> Bytes:
        """The bytes from low to high of a copy, from global memory; of a tensor copy, with what is out of bounds."""
        space, tile = self.batch.space, transfer.tile
        if tile is None:
            return space.read_bulk(start + low, high - low)
        found: Bytes = np.tile(tile.fill, (high - low) // len(tile.fill))
        parts, places = tile.part(low, high)
        if parts:
            data = np.concatenate([space.read_bulk(start + at, size) for at, size in parts])
            found.reshape(-1, tile.unit_bytes)[(places - low) // tile.unit_bytes] = data.reshape(-1, tile.unit_bytes)
        return found

    def _shared_bytes(self, start: int, transfer: Transfer, low: int, high: int) -> Bytes:
        """The bytes from low to high of shared memory that a copy reads. Raises LaneFault for poison among those that
        it wants."""
        good = self.batch.shared_written.reshape(-1)[start + low : start + high]
        if not (good if transfer.chosen is None else good[transfer.chosen[low:high]]).all():
            raise LaneFault(0, "bulk copy of shared memory that was never written (poison)")
        batch = self.batch
        found = batch.shared.reshape(-1)[start + low : start + high]
        return batch.space.read_shared(batch.shared_start, start + low, found)

    def _write(self, copy: Copy, held: Bytes, low: int, high: int) -> None:
        """Write bytes of a copy; once all are there, it is done."""
        batch, transfer = self.batch, copy.transfer
        for start in transfer.targets:
            if transfer.target_space == "shared" and self.mbarriers.objects:
                self.mbarriers.check_write(np.array([start]), transfer.size_bytes)
            part = held[low:high]
            data = part if transfer.combine is None else self._combined(start, transfer, part, low, high)
            if transfer.target_space == "shared":
                batch.shared.reshape(-1)[start + low : start + high] = data
                batch.shared_written.reshape(-1)[start + low : start + high] = True
                batch.space.version += 1
                if batch.shared_start >= 0:
                    batch.space.settle_at(np.array([batch.shared_start + start]), transfer.size_bytes)
            else:
                self._to_global(start, transfer, data, low, high)
        if copy.left is not None:
            return
        copy.is_done = True
        if batch.warpgroups is not None and transfer.tile is not None and copy.is_load:
            place = divmod(transfer.targets[0], batch.shared.shape[1])
            batch.warpgroups.tiles.note(*place, held, transfer.tile.swizzle_bytes, copy.instruction)
        self._report(copy, "written")
        if transfer.mbarrier >= 0:
            self._complete(copy)
        batch.finish(batch.place(copy.lane)[0], 1)

    def _to_global(self, start: int, transfer: Transfer, data: Bytes, low: int, high: int) -> None:
        """Write the bytes from low to high of a copy to global memory."""
        space, tile = self.batch.space, transfer.tile
        if tile is None:
            space.write_bulk(start + low, data, None if transfer.chosen is None else transfer.chosen[low:high])
            return
        parts, places = tile.part(low, high)
        rows = data.reshape(-1, tile.unit_bytes)[(places - low) // tile.unit_bytes].reshape(-1)
        at = 0
        for offset, size in parts:
            space.write_bulk(start + offset, rows[at : at + size])
            at += size

    def _combined(self, start: int, transfer: Transfer, held: Bytes, low: int, high: int) -> Bytes:
        """What the bytes from low to high of a reduction's target hold afterwards."""
        assert transfer.combine is not None
        self.batch.space.copying = None  # a reduction changes what is there when all is visible
        if transfer.target_space == "shared":
            before = self._shared_bytes(start, transfer, low, high)
        else:
            before = self._global_bytes(start, transfer, low, high)
        made = transfer.combine(before.view(transfer.element), held.view(transfer.element))
        out: Bytes = np.ascontiguousarray(made).view(np.uint8)
        return out

    def _report(self, copy: Copy, moment: str) -> None:
        """Tell the listeners how far a copy is."""
        batch, events, transfer = self.batch, self.batch.space.events, copy.transfer
        if not events.copy:
            return
        row = batch.shared.shape[1]
        is_within = transfer.global_address < 0
        blocks: tuple[int, ...] = ()
        if copy.is_load:
            blocks = tuple(target // row % batch.launched.grid for target in transfer.targets)
        if is_within:
            target, shared = batch.place(copy.lane)[0], transfer.source[1]
        else:
            index = transfer.source[1] if copy.is_load else transfer.targets[0]
            target = index // batch.space.capacity if copy.is_load or len(transfer.targets) == 1 else MULTICAST_TARGET
            shared = transfer.targets[0] if copy.is_load else transfer.source[1]
        first, stretched, shared_stretched = transfer.global_address, None, None
        if (tile := transfer.tile) is not None:
            stretched = [(first + at, size) for at, size in tile.stretches]
            first = stretched[0][0] if stretched else first
            if not copy.is_load and len(tile.places) * tile.unit_bytes < transfer.size_bytes:
                shared_stretched = [
                    (shared % row + at, size) for at, size in stretches(np.sort(tile.places), tile.unit_bytes)
                ]
        event = CopyMoment(
            batch.launched, compact(np.array([copy.lane])), events.step, copy.instruction, moment, copy.number,
            copy.is_load, first, target, shared % row if shared >= 0 else -1, transfer.size_bytes,
            transfer.mbarrier % row if transfer.mbarrier >= 0 else -1, copy.group,
            transfer.targets[0] % row if is_within else -1, blocks, stretched, shared_stretched,
        )  # fmt: skip
        tell(events.copy, event)

    def _complete(self, copy: Copy) -> None:
        """Count the bytes of a copy that was written."""
        key, size = copy.transfer.mbarrier, copy.transfer.size_bytes
        phase = self.mbarriers.phase(key)
        self.mbarriers.at(key).complete(size)
        events = self.batch.space.events
        if events.mbarrier:
            lane = compact(np.array([copy.lane]))
            row = self.batch.shared.shape[1]
            place, phases, counts, owner = (
                np.array([one], np.int64) for one in (key % row, phase, size, key // row % self.batch.launched.grid)
            )
            who = (self.batch.launched, lane, events.step)
            event = MbarrierOperation(*who, copy.instruction, "complete_tx", place, phases, counts, None, owner)
            tell(events.mbarrier, event)
