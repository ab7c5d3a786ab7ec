"""Copies of 4 to 16 bytes by each lane (cp.async) that are under way, and the arrivals that wait for them.

Like a bulk copy, each takes place in two moments of its own, of which the schedule chooses the steps: it reads its
source, then it writes its destination. Lanes that issued it together move on together in fair order; in random order a
warp may go ahead of the others. A lane's copies belong to the group that it commits next, and groups are waited for in
their order; a thread may return before its copies are done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.memory.space import blamed
from simulator.observe.events import LaneCopyMoment, MbarrierOperation, tell
from simulator.observe.lanes import Group, Ids, ids_of
from simulator.ptx.ir import Instruction
from simulator.run.groups import compact
from simulator.run.mbarriers import Mbarriers
from simulator.run.owner import LAG_STEPS, Owner


@dataclass(slots=True, eq=False)
class LaneCopy:
    """One cp.async of some lanes. places: bytes of the batch's shared memory; addresses and index: of the sources, as
    the lanes see them and in Space.memory; taken: how many of the size_bytes are read, the others become zeros; groups:
    which of its lane's groups each belongs to. One element a lane. due: the step of its next moment. held: a row a
    lane, once read.
    """

    number: int
    lanes: Ids
    instruction: Instruction
    places: Ids
    addresses: npt.NDArray[np.uint64]
    index: Ids
    size_bytes: int
    taken: Ids
    groups: Ids
    due: int
    held: npt.NDArray[np.uint8] | None = None
    is_done: bool = False

    @property
    def lane(self) -> int:
        """Return the first of its lanes."""
        return int(self.lanes[0])

    @property
    def is_load(self) -> bool:
        return True

    def some(self, at: Ids) -> LaneCopy:
        """Return the same copy by the lanes at these positions only."""
        return LaneCopy(
            self.number, self.lanes[at], self.instruction, self.places[at], self.addresses[at], self.index[at],
            self.size_bytes, self.taken[at], self.groups[at], self.due, None if self.held is None else self.held[at],
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Arrival:
    """An arrival of each lane at an mbarrier, once its copies with lower numbers are done."""

    number: int
    lanes: Ids
    instruction: Instruction
    keys: Ids
    due: int
    is_done: bool = False

    @property
    def lane(self) -> int:
        """Return the first of its lanes."""
        return int(self.lanes[0])

    @property
    def is_load(self) -> bool:
        return True


@dataclass(slots=True)
class LaneCopies:
    """The lanes' copies of one batch. committed: how many groups each lane has made."""

    batch: Owner
    mbarriers: Mbarriers
    issued: int = 0
    under_way: list[LaneCopy] = field(default_factory=list)
    committed: Ids = field(default_factory=lambda: np.zeros(0, np.int64))

    # What instructions do

    def issue(
        self,
        lanes: Group,
        instruction: Instruction,
        places: Ids,
        addresses: npt.NDArray[np.uint64],
        index: Ids,
        size_bytes: int,
        taken: Ids,
    ) -> LaneCopy:
        """Begin copies; the arguments are those of LaneCopy."""
        ids = ids_of(lanes)
        groups = self._committed()[ids]
        due = self.batch.steps + LAG_STEPS
        made = LaneCopy(self.issued, ids, instruction, places, addresses, index, size_bytes, taken, groups, due)
        self.issued += 1
        self.under_way.append(made)
        self._hold(ids, 1)
        self._report(made, "issued")
        return made

    def commit(self, lanes: Group) -> None:
        """Make a group of what each lane has issued since its last one."""
        self._committed()[ids_of(lanes)] += 1

    def arrive_later(self, lanes: Group, instruction: Instruction, keys: list[int], adds: bool) -> Arrival:
        """Let each lane arrive at an mbarrier once its copies so far are done; adds: the phase waits for it besides
        those that it expects."""
        for position, key in enumerate(keys):
            with blamed(position):
                barrier = self.mbarriers.at(key)
                if adds:
                    barrier.add_pending(1)
        ids = ids_of(lanes)
        due = self.batch.steps + 2 * LAG_STEPS + 1
        made = Arrival(self.issued, ids, instruction, np.array(keys, np.int64), due)
        self._hold(ids, 1)
        return made

    def awaited(self, lanes: Ids, allowed: int) -> tuple[npt.NDArray[np.bool_], Ids]:
        """Return which lanes have copies under way in other than their `allowed` latest groups, and the first of these
        of each lane."""
        over = self._committed() - allowed
        flags = np.zeros(len(over), np.bool_)
        for one in self.under_way:
            flags[one.lanes[one.groups < over[one.lanes]]] = True
        return flags[lanes], over[lanes]

    # What happens by itself

    def advance(self, one: LaneCopy | Arrival) -> None:
        """Let copies read, or write if they have read, or lanes arrive. Raises DeviceFault naming the lane."""
        with self.batch.blaming(one.lanes, one.instruction):
            if isinstance(one, Arrival):
                self._arrive(one)
            elif one.held is None:
                size = one.size_bytes
                one.held = self.batch.space.read_parts(one.addresses, one.index, one.taken, size)
                one.due = self.batch.steps + LAG_STEPS
                self._report(one, "read")
            else:
                self._write(one, one.held)

    def part(self, one: LaneCopy, low: int, high: int) -> LaneCopy | None:
        """Let the lanes in [low, high) go on alone; return their part, None if these are all or none."""
        mask = (one.lanes >= low) & (one.lanes < high)
        if mask.all() or not mask.any():
            return None
        first, rest = one.some(np.flatnonzero(mask)), one.some(np.flatnonzero(~mask))
        one.lanes, one.places, one.addresses = rest.lanes, rest.places, rest.addresses
        one.index, one.taken, one.groups, one.held = rest.index, rest.taken, rest.groups, rest.held
        self.under_way.append(first)
        return first

    def _write(self, one: LaneCopy, held: npt.NDArray[np.uint8]) -> None:
        batch = self.batch
        if self.mbarriers.objects:
            self.mbarriers.check_write(one.places, one.size_bytes)
        places = one.places[:, None] + np.arange(one.size_bytes)
        batch.shared.reshape(-1)[places] = held
        if batch.shared_start >= 0:
            batch.space.settle_at(batch.shared_start + places.reshape(-1), 1)
        batch.shared_written.reshape(-1)[places] = True
        batch.space.version += 1
        one.is_done = True
        self.under_way.remove(one)
        self._report(one, "written")
        self._hold(one.lanes, -1)

    def _arrive(self, one: Arrival) -> None:
        """Those lanes arrive whose copies are done; for the others it comes up again after their copies."""
        flags = np.zeros(len(self._committed()), np.bool_)
        before = [copy for copy in self.under_way if copy.number < one.number]
        for copy in before:
            flags[copy.lanes] = True
        blocked = flags[one.lanes]
        free = np.flatnonzero(~blocked)
        phases = []
        for position in free.tolist():
            key = int(one.keys[position])
            phases.append(self.mbarriers.phase(key))
            with blamed(position):
                self.mbarriers.at(key).arrive(1)
        if len(free):
            self.batch.space.version += 1
            self._report_arrivals(one, free, phases)
        gone = one.lanes[free]
        one.lanes, one.keys = one.lanes[blocked], one.keys[blocked]
        one.is_done = not len(one.lanes)
        if not one.is_done:
            one.due = max(self.batch.steps, *(copy.due for copy in before)) + 1
        self._hold(gone, -1)

    def _committed(self) -> Ids:
        if not len(self.committed):
            self.committed = np.zeros(self.batch.launched.lanes, np.int64)
        return self.committed

    def _hold(self, lanes: Ids, by: int) -> None:
        """Keep the lanes' ranks from ending their launch (by 1), or let them go on (by -1)."""
        batch = self.batch
        counts = np.bincount(batch.launched.positions_of(lanes), minlength=len(batch.launched.ranks))
        for rank, count in zip(batch.launched.ranks, counts.tolist(), strict=True):
            if by > 0:
                batch.rank_alive[rank] += count
            elif count:
                batch.finish(rank, count)

    # Events

    def _report(self, one: LaneCopy, moment: str) -> None:
        batch, events = self.batch, self.batch.space.events
        if events.lane_copy:
            event = LaneCopyMoment(
                batch.launched, compact(one.lanes), events.step, one.instruction, moment, one.number,
                one.addresses, batch.space.owners(one.index), one.places % batch.shared.shape[1], one.size_bytes,
                one.taken, one.groups,
            )  # fmt: skip
            tell(events.lane_copy, event)

    def _report_arrivals(self, one: Arrival, free: Ids, phases: list[int]) -> None:
        batch, events = self.batch, self.batch.space.events
        if events.mbarrier:
            who = (batch.launched, compact(one.lanes[free]), events.step)
            at, counts = one.keys[free] % batch.shared.shape[1], np.ones(len(free), np.int64)
            event = MbarrierOperation(*who, one.instruction, "arrive", at, np.array(phases, np.int64), counts)
            tell(events.mbarrier, event)
