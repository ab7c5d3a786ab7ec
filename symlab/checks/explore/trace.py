"""The interleaving of a run: what each turn of the schedule did to memory, in the order in which it took effect.

A Tracer listens to the events of a world and notes accesses with their values; blame.py looks for the access that went
wrong, rows() makes plain rows of it, and reading.py prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.isa.memory import element_type
from simulator.isa.registry import DTYPES
from simulator.memory.heaps import GRANULE_BYTES, Allocation
from simulator.memory.space import MULTICAST, Space
from simulator.observe.events import (
    Access,
    BarrierArrived,
    BarrierCompleted,
    CopyMoment,
    Fence,
    LaneCopyMoment,
    LaneEvent,
    LateAccess,
    Listener,
    MbarrierOperation,
    Stepped,
)
from simulator.observe.lanes import Ids, Launched, ids_of
from simulator.ptx.ir import Instruction
from simulator.run.machine import Batch

MAX_NOTED = 200_000
"""Maximum number of events to note; what comes later is counted only."""
WORD_BYTES = 4
"""Accesses that have a word of this size in common touch the same memory."""
SHOWN_VALUES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a tensor's elements lie in the allocation of its name: offset_bytes from its start, itemsize bytes each.

    dtype: the name of their type, as torch has it; "" if it is unknown, or not one that NumPy has (or bfloat16).
    """

    offset_bytes: int = 0
    itemsize: int = 0
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a trace: what some threads did by one instruction.

    step: the number of the world's step. is_switch: other warps ran in the turn before. kind: "load", "store",
    "atomic", "barrier", .. ranks, blocks: ascending; threads: the first and the last one; lanes: their number. line:
    of the PTX, 0 of none. tensor, owner and element are those of the first lane ("" and -1: none; owner -1: all ranks
    through the switch); elements: number of elements of the tensor that all lanes access. value: what the first lane
    reads or writes, "" if unknown. is_shared: others touch the same memory, and some access writes it. mark: what
    is wrong here, "" elsewhere. late: of weak memory, what is newer than what was read, or comes after what was stored.
    kernel: its name.
    """

    step: int
    is_switch: bool
    kind: str
    launch: int
    ranks: tuple[int, ...]
    blocks: tuple[int, ...]
    threads: tuple[int, int]
    lanes: int
    line: int
    source: str
    text: str
    tensor: str = ""
    owner: int = -1
    element: int = -1
    elements: int = 0
    value: str = ""
    is_shared: bool = False
    mark: str = ""
    late: str = ""
    kernel: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class LateBytes:
    """What a lane (by its place) of a late access read or stored, from a byte of memory on, and what is there when all
    is visible."""

    lane: int
    index: int
    seen: npt.NDArray[np.uint8]
    newest: npt.NDArray[np.uint8]

    def has(self, word: int) -> bool:
        """Return whether a word is among those that differ."""
        at = np.flatnonzero(self.seen != self.newest) + self.index
        return bool((at // WORD_BYTES == word).any())


@dataclass(slots=True, eq=False)
class Noted:
    """One event as it was noted.

    words: what it touches, a row a lane, by numbers that are the same for the same memory; () of none. raw: the bytes
    that each lane reads or writes, a row a lane; None if unknown.
    """

    step: int
    turn: int
    kind: str
    launched: Launched
    lanes: Ids
    instruction: Instruction | None
    words: npt.NDArray[np.int64]
    space: str = ""
    index: Ids | None = None
    width_bytes: int = 0
    raw: npt.NDArray[np.uint8] | None = None
    what: str = ""
    marks: list[str] = field(default_factory=list)
    late: list[LateBytes] = field(default_factory=list)

    @property
    def writes(self) -> bool:
        return self.kind not in ("load", "reduce") and bool(self.words.size)

    @property
    def reads(self) -> bool:
        return self.kind in ("load", "atomic", "reduce") and bool(self.words.size)


class Turns(Listener):
    """Counts switches: turns none of whose warps ran in the turn before. Notes how many threads each launch has on a
    rank and in a block, and the highest launch number of each turn's lanes."""

    def __init__(self) -> None:
        self.count = -1
        self.switches = 0
        self.is_switch = False
        self.shapes: set[tuple[int, int, int]] = set()
        self.launches: list[int] = []
        self._before: tuple[Launched, Ids] | None = None

    def stepped(self, event: Stepped) -> None:
        launched, lanes = event.launched, ids_of(event.lanes)
        warps = np.unique(lanes // launched.block * -(-launched.block // 32) + lanes % launched.block // 32)
        before, self._before = self._before, (launched, warps)
        same = before is not None and before[0] is launched and np.intersect1d(before[1], warps).size > 0
        self.is_switch = before is not None and not same
        self.switches += self.is_switch
        self.count += 1
        self.launches.append(max(launched.numbers))
        self.shapes |= {(number, launched.threads, launched.block) for number in launched.numbers}


class Tracer(Turns):
    """Notes what happens. layouts: of tensors, by the names of their allocations. batches: those under way now."""

    def __init__(
        self, space: Space, layouts: Mapping[str, Layout], batches: Callable[[], Sequence[Batch]] = lambda: ()
    ) -> None:
        super().__init__()
        self.space = space
        self.layouts = layouts
        self.noted: list[Noted] = []
        self.left_out = 0
        self._batches = batches
        self._launches: dict[int, int] = {}
        self._kept: list[Launched] = []  # so that no two have the same id
        self._pending: Noted | None = None
        self._late_copies: list[LateAccess] = []
        self._switched: set[int] = set()

    def stepped(self, event: Stepped) -> None:
        super().stepped(event)
        if self.is_switch:
            self._switched.add(self.count)

    # What happens

    def access(self, event: Access) -> None:
        base = np.array([self.space.base(int(rank)) for rank in np.unique(event.viewer)], np.int64)
        bases = base[np.searchsorted(np.unique(event.viewer), np.broadcast_to(event.viewer, event.count))]
        index = np.asarray(event.addresses).astype(np.int64) - bases
        if event.space == "multicast":
            index = index - MULTICAST * self.space.capacity
        self._note(event, event.action, event.instruction, event.space, index, event.width_bytes)

    def shared_access(self, event: Access) -> None:
        index = np.array(event.addresses, np.int64)
        self._note(event, event.action, event.instruction, "shared", index, event.width_bytes, event.target_blocks)

    def fence(self, event: Fence) -> None:
        self._note(event, "fence", event.instruction)

    def barrier_arrived(self, event: BarrierArrived) -> None:
        self._note(event, "barrier", event.instruction, what=f"arrive at a barrier of the {event.unit}")

    def barrier_completed(self, event: BarrierCompleted) -> None:
        self._note(event, "barrier", None, what=f"go on from a barrier of the {event.unit}")

    def mbarrier(self, event: MbarrierOperation) -> None:
        self._note(event, "mbarrier", event.instruction, what=event.operation)

    def copy(self, event: CopyMoment) -> None:
        is_global = event.global_address >= 0 and event.stretches is None
        writes = event.moment == "written" and event.destination[0] == "global"
        reads = event.moment == "read" and event.source[0] == "global"
        kind = "store" if writes else "load" if reads else "copy"
        if not is_global or kind == "copy":
            self._note(event, "copy", event.instruction, what=f"bulk copy {event.number} {event.moment}")
            self._late_copies = []
            return
        index = np.array([event.global_address - self.space.base(int(event.ranks[0]))], np.int64)
        space = "global"
        if event.target < 0:
            index, space = index - MULTICAST * self.space.capacity, "multicast"
        what = f"bulk copy {event.number} {event.moment}"
        self._note(event, kind, event.instruction, space, index, event.size_bytes, what=what)
        mine, self._late_copies = [one for one in self._late_copies if one.copy == event.number], []
        for one in mine if kind == "load" else ():
            self._note_late(one)

    def late(self, event: LateAccess) -> None:
        if event.copy >= 0:
            self._late_copies.append(event)
        elif self.noted and not self.left_out:
            self._note_late(event)

    def _note_late(self, event: LateAccess) -> None:
        """Keep with the access noted last what was not the newest of it, and what one lane saw in place of that."""
        self.settle()  # a store is over by now
        one, lane = self.noted[-1], int(event.lanes[0])
        at = np.flatnonzero(one.lanes == lane)
        if one.launched is not event.launched or not len(at):
            return
        place = int(at[0])
        one.late.append(LateBytes(place, event.index, event.seen, event.newest))
        first = event.index - int(one.index[place]) if one.index is not None else -1
        if one.raw is not None and one.kind != "atomic" and 0 <= first <= one.width_bytes - len(event.seen):
            one.raw[place, first : first + len(event.seen)] = event.seen

    def lane_copy(self, event: LaneCopyMoment) -> None:
        self._note(event, "copy", event.instruction, what=f"copies of lanes {event.number} {event.moment}")

    def _note(
        self,
        event: LaneEvent,
        kind: str,
        instruction: Instruction | None,
        space: str = "",
        index: Ids | None = None,
        width_bytes: int = 0,
        target_blocks: Ids | None = None,
        what: str = "",
    ) -> None:
        self.settle()
        if len(self.noted) >= MAX_NOTED:
            self.left_out += 1
            return
        lanes = np.array(ids_of(event.lanes))
        words = np.zeros((len(lanes), 0), np.int64)
        if index is not None:
            first = event.launched.owners_of(lanes, target_blocks) if space == "shared" else index
            words = self._words(event.launched, first, index, width_bytes, space)
        one = Noted(
            event.step,
            self.count,
            kind,
            event.launched,
            lanes,
            instruction,
            words,
            space,
            index,
            width_bytes,
            what=what,
        )
        self.noted.append(one)
        if one.kind == "load":
            one.raw = self._bytes(one)
        elif one.writes:
            self._pending = one

    def settle(self) -> None:
        """Look at what the last store wrote: an event comes before the effect of its access."""
        one, self._pending = self._pending, None
        if one is not None:
            one.raw = self._bytes(one)

    def _words(self, launched: Launched, first: Ids, index: Ids, width_bytes: int, space: str) -> Ids:
        """The words that each lane touches, a row a lane."""
        steps = np.arange(-(-width_bytes // WORD_BYTES))
        words = index[:, None] // WORD_BYTES + steps
        if space == "multicast":
            replicas = np.arange(self.space.world_size) * (self.space.capacity // WORD_BYTES)
            words = (words[:, :, None] + replicas).reshape(len(index), -1)
        elif space == "shared":
            words = -1 - ((self._number(launched) << 44) + (first[:, None] << 22) + words)
        found: Ids = words
        return found

    def _number(self, launched: Launched) -> int:
        if id(launched) not in self._launches:
            self._launches[id(launched)] = len(self._launches)
            self._kept.append(launched)
        return self._launches[id(launched)]

    def _bytes(self, one: Noted) -> npt.NDArray[np.uint8] | None:
        """What memory holds where an event reads or wrote."""
        assert one.index is not None
        found: npt.NDArray[np.uint8]
        memory = self.space.memory
        places = one.index[:, None] + np.arange(one.width_bytes)
        if one.space == "shared":
            batch = next((batch for batch in self._batches() if batch.launched is one.launched), None)
            if batch is None:
                return None
            rows = one.launched.owners_of(one.lanes, None)
            if places.max() >= batch.shared.shape[1]:
                return None
            found = batch.shared[rows[:, None], places]
            return found
        if not len(memory) or places.max() >= len(memory):
            return None
        found = memory[places]
        return found

    # What it is called

    def allocation_at(self, index: int) -> Allocation | None:
        """The tensor, also a freed one, that a byte of memory lies in."""
        number = index // GRANULE_BYTES
        if not 0 <= number < len(self.space.granules):
            return None
        return self.space.allocations[abs(int(self.space.granules[number]))]

    def place(self, one: Noted, lane: int = 0) -> tuple[str, int, int]:
        """Tensor, rank that owns it, and element that the lane (by its place) accesses; "", -1 and -1 of none."""
        if one.index is None or one.instruction is None:
            return "", -1, -1
        index = int(one.index[lane])
        if one.space == "shared":
            return "shared memory", -1, index // self._itemsize(one, "")
        found = self.allocation_at(index)
        if found is None:
            return "", -1, -1
        name = found.name
        layout = self.layouts.get(name, Layout())
        offset = index - found.start - layout.offset_bytes
        owner = -1 if one.space == "multicast" else found.rank
        return name, owner, offset // self._itemsize(one, name)

    def _itemsize(self, one: Noted, name: str) -> int:
        known = self.layouts.get(name, Layout()).itemsize
        return known or item_of(one)[1]

    def address_of(self, tensor: str, rank: int, offset_bytes: int) -> int | None:
        """Where in memory a byte of a rank's tensor is; None of an unknown one."""
        found = [one for one in self.space.allocations if one is not None and (one.name, one.rank) == (tensor, rank)]
        if not found:
            return None
        return found[-1].start + self.layouts.get(tensor, Layout()).offset_bytes + offset_bytes

    # What comes of it

    def rows(self) -> tuple[Row, ...]:
        """All that was noted, a row for each event."""
        self.settle()
        shared = self._shared_words()
        found = []
        turn = -1
        for one in self.noted:
            is_switch = one.turn != turn and any(number in self._switched for number in range(turn + 1, one.turn + 1))
            turn = one.turn
            found.append(self._row(one, is_switch, shared))
        return tuple(found)

    def _row(self, one: Noted, is_switch: bool, shared: Ids) -> Row:
        launched = one.launched
        tensor, owner, element = self.place(one)
        source = one.instruction.source if one.instruction is not None else None
        threads = launched.threads_of(one.lanes)
        kind, text = one.kind, one.what or (one.instruction.text if one.instruction is not None else "")
        if one.what and one.instruction is not None:
            text = f"{one.instruction.text} ({one.what})"
        return Row(
            step=one.step,
            is_switch=is_switch,
            kind=kind,
            launch=int(launched.numbers_of(one.lanes)[0]),
            ranks=tuple(np.unique(launched.ranks_of(one.lanes)).tolist()),
            blocks=tuple(np.unique(launched.blocks_of(one.lanes)).tolist()),
            threads=(int(threads.min()), int(threads.max())),
            lanes=len(one.lanes),
            line=one.instruction.line if one.instruction is not None else 0,
            source=source.nearest if source is not None else "",
            text=" ".join(text.split()),
            tensor=tensor,
            owner=owner,
            element=element,
            elements=self._elements(one, tensor) if tensor else 0,
            value=self.value(one, 0),
            is_shared=bool(one.words.size) and bool(np.isin(one.words, shared).any()),
            mark="; ".join(one.marks),
            late=self._late(one),
            kernel=launched.kernel,
        )

    def _late(self, one: Noted) -> str:
        """What is newer than what an access read, or comes after what it stored; "" of one that is not late."""
        if not one.late:
            return ""
        first = one.late[0]
        newest, seen = (self._shown(one, first.lane, raw) for raw in (first.newest, first.seen))
        lanes = len({each.lane for each in one.late})
        thread = int(one.launched.threads_of(one.lanes[first.lane : first.lane + 1])[0])
        is_alone = lanes == 1 and first.lane == 0
        which = "" if is_alone else f" of {lanes} threads: thread {thread}" if lanes > 1 else f" of thread {thread}:"
        if one.writes and one.kind != "atomic":
            return f"a late store{which or ':'} {seen} comes before {newest}, which was stored earlier"
        return f"an older value, the newest is {newest}" if is_alone else f"older values{which} {seen}, newest {newest}"

    def _elements(self, one: Noted, tensor: str) -> int:
        assert one.index is not None
        return len(np.unique(one.index)) * max(one.width_bytes // self._itemsize(one, tensor), 1)

    def value(self, one: Noted, lane: int) -> str:
        """What a lane (by its place) reads or writes, for people; "" if unknown."""
        if one.raw is None or one.instruction is None:
            return ""
        return self._shown(one, lane, one.raw[lane].copy())

    def _shown(self, one: Noted, lane: int, raw: npt.NDArray[np.uint8]) -> str:
        """Bytes that a lane accesses, for people."""
        dtype = item_of(one)[0]
        layout = self.layouts.get(self.place(one, lane)[0], Layout())
        if layout.dtype and len(raw) % layout.itemsize == 0:
            dtype = layout.dtype
        if dtype == "bfloat16":
            values = (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            values = raw.view(dtype)
        shown = [_number(value) for value in values[:SHOWN_VALUES].tolist()]
        more = ", .." if len(values) > SHOWN_VALUES else ""
        return shown[0] if len(values) == 1 else "{" + ", ".join(shown) + more + "}"

    def _shared_words(self) -> Ids:
        """Words that several warps touch, and at least one of them writes. Those of one turn count as one."""
        touched, written = [], []
        for one in self.noted:
            if not one.words.size:
                continue
            block = one.launched.block
            warps = one.lanes // block * -(-block // 32) + one.lanes % block // 32
            actor = (self._number(one.launched) << 32) + warps
            pairs = np.stack([one.words, np.broadcast_to(actor[:, None], one.words.shape)], axis=-1).reshape(-1, 2)
            touched.append(np.unique(pairs, axis=0))
            if one.writes:
                written.append(np.unique(one.words))
        if not touched or not written:
            return np.zeros(0, np.int64)
        every = np.unique(np.concatenate(touched), axis=0)
        words, counts = np.unique(every[:, 0], return_counts=True)
        return np.intersect1d(words[counts > 1], np.concatenate(written))


def item_of(one: Noted) -> tuple[str, int]:
    """NumPy's type and the bytes of what an access reads or writes, an element of a vector."""
    assert one.instruction is not None
    try:
        dtype = DTYPES[element_type(one.instruction)]
    except (KeyError, ValueError, IndexError, StopIteration):
        dtype = "u4"
    size = np.dtype(dtype).itemsize
    return (dtype, size) if one.width_bytes % size == 0 else ("u1", 1)


def dtype_of(name: str) -> str:
    """Return a type of torch as Layout has it."""
    try:
        return name if name == "bfloat16" else np.dtype(name).name
    except TypeError:
        return ""


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.8g}"
    return str(value) if isinstance(value, int) and abs(value) < 1 << 20 else f"{value:#x}"
