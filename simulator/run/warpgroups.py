"""Warpgroups, of four warps, whose threads carry out wgmma and setmaxnreg together; and the wgmma that are under way.

A wgmma reads shared memory and gives its results in the step in which all of its warpgroup have come. What PTX leaves
undefined until wgmma.wait_group is kept beside: a register that is accessed while a wgmma still writes it is a fault,
and listeners hear of memory that is read until the wait, and of registers that lack wgmma.fence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.memory.space import LaneFault, Space, fault_where
from simulator.observe.events import ProductMoment, tell
from simulator.observe.lanes import WARPGROUP, Group, Ids, Launched, ids_of
from simulator.ptx.ir import Instruction
from simulator.run.decode import Exit


@dataclass(slots=True)
class Meeting:
    """A warpgroup of which some threads wait for the others."""

    way_out: Exit
    lanes: list[Ids]

    @property
    def count(self) -> int:
        return sum(map(len, self.lanes))


class Warpgroups:
    """The warpgroups of one launch, numbered by block. waiting: by number; registers: those that wgmma uses; tiles:
    what tensor copies left in shared memory."""

    def __init__(self, space: Space, launched: Launched, fragments: dict[int, str]) -> None:
        self.block = launched.block
        self.each = -(-self.block // WARPGROUP)  # of a block
        count = launched.lanes // self.block * self.each
        self.waiting: dict[int, Meeting] = {}
        self.has_ended = np.zeros(count, np.bool_)
        self.tiles = Tiles()
        self.registers = Registers(space, launched, list(fragments), list(fragments.values()), count)

    def numbers_of(self, lanes: Ids) -> Ids:
        """The number of each lane's warpgroup."""
        blocks, threads = np.divmod(lanes, self.block)
        found: Ids = blocks * self.each + threads // WARPGROUP
        return found

    def arrive(self, way_out: Exit, group: Group) -> Ids:
        """Lanes come; return those of warpgroups that are complete, ascending. Raises LaneFault for a part of one."""
        lanes = ids_of(group)
        numbers = self.numbers_of(lanes)
        assert way_out.instruction is not None
        self._check(lanes, numbers, way_out.instruction)
        names, counts = np.unique(numbers, return_counts=True)
        if not self.waiting and (counts == WARPGROUP).all():
            return lanes
        ready = []
        for number in names.tolist():
            mine = np.flatnonzero(numbers == number)
            meeting = self.waiting.setdefault(number, Meeting(way_out, []))
            if meeting.way_out is not way_out:
                other = meeting.way_out.instruction
                assert other is not None
                text = f"a part of a warpgroup, of which another part is at PTX line {other.line}: {other.mnemonic}"
                raise LaneFault(int(mine[0]), f"{text}; all of it come to the same instruction")
            meeting.lanes.append(lanes[mine])
            if meeting.count == WARPGROUP:
                ready += self.waiting.pop(number).lanes
        return np.sort(np.concatenate(ready)) if ready else lanes[:0]

    def _check(self, lanes: Ids, numbers: Ids, instruction: Instruction) -> None:
        rest = self.block % WARPGROUP
        wrong = lanes % self.block >= self.block - rest if rest else np.zeros(0, np.bool_)
        text = f"{instruction.opcode} by a part of a warpgroup:"
        last = f"the last one of a block of {self.block} threads has {rest} of {WARPGROUP}"
        fault_where(wrong, lambda _: f"{text} {last}")
        fault_where(self.has_ended[numbers], lambda _: f"{text} some of its threads have returned")

    def leave(self, group: Group) -> tuple[int, str, Instruction] | None:
        """Lanes return for good; return one whose warpgroup waits for it, what to say, and where it waits."""
        lanes = ids_of(group)
        numbers = self.numbers_of(lanes)
        self.has_ended[numbers] = True
        for number in np.unique(numbers).tolist() if self.waiting else ():
            if number in self.waiting:
                meeting = self.waiting[number]
                instruction = meeting.way_out.instruction
                assert instruction is not None
                text = f"{instruction.opcode} by a part of a warpgroup: {meeting.count} of {WARPGROUP} threads came"
                return int(meeting.lanes[0][0]), f"{text}, and some of the others have returned", instruction
        return None

    def report(self) -> list[tuple[Exit, int, int]]:
        """For a deadlock's report: where a part of a warpgroup waits, its first lane, and how many have come."""
        return [(one.way_out, int(one.lanes[0].min()), one.count) for _, one in sorted(self.waiting.items())]


@dataclass(slots=True)
class Tiles:
    """What the latest tensor copies left in shared memory: by block, and by where it begins there, its bytes, swizzle
    and instruction."""

    of: dict[int, dict[int, tuple[Any, int, Instruction]]] = field(default_factory=dict)

    def note(self, block: int, start: int, content: Any, swizzle_bytes: int, instruction: Instruction) -> None:
        """A copy is done."""
        mine, end = self.of.setdefault(block, {}), start + len(content)
        for at in [at for at, (other, _, _) in mine.items() if at < end and start < at + len(other)]:
            del mine[at]
        mine[start] = (content, swizzle_bytes, instruction)

    def other_swizzle(self, block: int, places: Ids, swizzle_bytes: int, memory: Any) -> tuple[int, Instruction] | None:
        """Return the swizzle of a copy, and the copy, that left what is at places of a block (rows of 16 bytes), if it
        is another one. memory: the block's; who overwrote a tile since then may have used any swizzle."""
        for start, (content, swizzle, instruction) in self.of.get(block, {}).items():
            if swizzle != swizzle_bytes:
                inside = places[(places >= start) & (places < start + len(content))]
                rows = inside[:, None] + np.arange(16)
                if len(inside) and (memory[rows] == content[rows - start]).all():
                    return swizzle, instruction
        return None


@dataclass(slots=True)
class Registers:
    """The registers that wgmma takes or gives, by slot in rows of tables, of each warpgroup.

    writes, reads: the group of the latest wgmma that gives the register, or takes it as A, until a wait: 1 for a
    warpgroup's first group, 0 for none. by: the number of that wgmma. For listeners: touched, the number of the
    instruction that accessed the register since the warpgroup's last wgmma.fence; shapes: of the wgmma that gave it
    since then (shape_of). Other numbers are of `known`, from 1 on. groups: how many groups each warpgroup has made.
    """

    space: Space
    launched: Launched
    slots: list[int]
    names: list[str]
    count: int
    writes: Any = field(init=False)
    reads: Any = field(init=False)
    by: Any = field(init=False)
    touched: Any = field(init=False)
    shapes: Any = field(init=False)
    groups: Ids = field(init=False)
    is_busy: bool = False
    known: list[Instruction] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    row_of: dict[int, int] = field(init=False)
    shape_of: dict[tuple[str, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.slots), self.count)
        self.writes, self.reads, self.by, self.touched, self.shapes = (np.zeros(shape, np.int32) for _ in range(5))
        self.groups = np.zeros(self.count, np.int64)
        self.row_of = {slot: row for row, slot in enumerate(self.slots)}

    def rows(self, slots: list[int]) -> Ids:
        """The rows of slots."""
        return np.array([self.row_of[slot] for slot in slots], np.int64)

    def _number(self, instruction: Instruction) -> int:
        """The number of an instruction."""
        found = self.numbers.get(id(instruction))
        if found is None:
            self.known.append(instruction)
            found = self.numbers[id(instruction)] = len(self.known)
        return found

    # Other instructions

    def touch(self, groups: Ids, slots: list[int], targets: list[int], instruction: Instruction) -> None:
        """An instruction reads slots and gives targets, of each of its lanes' warpgroups. Raises LaneFault where a
        wgmma under way gives one of them, or takes a target."""
        listens = bool(self.space.events.product)
        if not (self.is_busy or listens):
            return
        names = np.unique(groups)
        rows = self.rows([*slots, *targets])
        if self.is_busy:
            self._check(groups, rows, self.writes, "writes")
            self._check(groups, self.rows(targets), self.reads, "reads")
        if listens:
            self.touched[rows[:, None], names] = self._number(instruction)

    def _check(self, groups: Ids, rows: Ids, table: Any, what: str) -> None:
        busy = table[rows[:, None], groups] > 0
        if not busy.any():
            return
        row, lane = (int(one[0]) for one in np.nonzero(busy))
        other = self.known[int(self.by[rows[row], groups[lane]]) - 1]
        text = f"{self.names[rows[row]].partition('@')[0]} before wgmma.wait_group: {other.mnemonic} at PTX line"
        raise LaneFault(lane, f"{text} {other.line} still {what} it")

    # wgmma

    def issue(self, lanes: Ids, groups: Ids, given: list[int], taken: list[int], instruction: Instruction) -> None:
        """A wgmma of warpgroups begins. given: slots of D; taken: of A."""
        number, d, a = self._number(instruction), self.rows(given)[:, None], self.rows(taken)[:, None]
        if self.is_busy:
            try:
                self._check(groups, a[:, 0], self.writes, "writes")
                self._check(groups, d[:, 0], self.reads, "reads")
            except LaneFault as fault:
                raise LaneFault(fault.lane * WARPGROUP, fault.message) from None
        if self.space.events.product:
            self._tell_unfenced(lanes, groups, np.concatenate([d, a]), instruction, number, len(d))
        self.writes[d, groups] = self.groups[groups] + 1
        self.by[d, groups] = number
        if len(a):
            self.reads[a, groups] = self.groups[groups] + 1
            self.by[a, groups] = number
        self.is_busy = True

    def _tell_unfenced(
        self, lanes: Ids, groups: Ids, rows: Ids, instruction: Instruction, number: int, given: int
    ) -> None:
        """Tell of registers that were accessed since the last fence, by others or by a wgmma of another shape."""
        shape = self.shape_of.setdefault(instruction.qualifiers, 1 + len(self.shape_of))
        touched, shapes = self.touched[rows, groups], self.shapes[rows, groups]
        other = shapes != shape
        other[given:] = True  # A is no accumulator
        found = np.where(touched > 0, touched, np.where((shapes > 0) & other, self.by[rows, groups], 0))
        for at in np.flatnonzero(found.any(axis=0)).tolist():
            row = int(np.argmax(found[:, at] > 0))
            some = lanes[at * WARPGROUP : (at + 1) * WARPGROUP]
            earlier, name = self.known[int(found[row, at]) - 1], self.names[int(rows[row, 0])].partition("@")[0]
            who = (self.launched, some, self.space.events.step)
            event = ProductMoment(*who, instruction, "unfenced", earlier=earlier, register=name)
            tell(self.space.events.product, event)
        self.touched[rows, groups] = 0
        self.shapes[rows[:given], groups] = shape

    def fence(self, groups: Ids) -> None:
        """Warpgroups come to wgmma.fence."""
        self.touched[:, groups] = self.shapes[:, groups] = 0

    def commit(self, groups: Ids) -> None:
        """Make a group of each warpgroup's wgmma since its last one."""
        self.groups[groups] += 1

    def wait(self, lanes: Ids, groups: Ids, allowed: int, instruction: Instruction) -> None:
        """All but the latest groups of warpgroups are over."""
        over = self.groups[groups] - allowed
        for table in (self.writes, self.reads):
            some = table[:, groups]
            table[:, groups] = np.where(some <= over, 0, some)
        self.is_busy = bool(self.writes.any() or self.reads.any())
        events = self.space.events
        for at, number in enumerate(over.tolist() if events.product else ()):
            some = lanes[at * WARPGROUP : (at + 1) * WARPGROUP]
            tell(events.product, ProductMoment(self.launched, some, events.step, instruction, "awaited", group=number))
