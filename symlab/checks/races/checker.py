"""The race checker: listens to a world's kernels and hosts, and finds accesses that nothing orders."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cases.finding import Finding
from simulator.happens_before.clocks import (
    BLOCK_MASK,
    BLOCK_SHIFT,
    CODE_MASK,
    COPY_CODE,
    HOST_CODE,
    LOW_MASK,
    RANK_SHIFT,
    STAMP_SHIFT,
    Room,
    changes_of,
    distinct,
    pairs_of,
)
from simulator.happens_before.extras import ALIAS, ALL, ASYNC, GENERIC, Numbers
from simulator.happens_before.order import CLUSTER, CTA, GPU, SCOPES, SYS, Arrived, Mbarrier, Order, Phases
from simulator.happens_before.running import (
    COLUMNS,
    PREVIOUS,
    ROW,
    SCOPE,
    STAMP,
    WARP,
    Held,
    Lanes,
    Many,
    Released,
    Running,
)
from simulator.happens_before.shadow import READ, ROW_BYTES, WRITE, Kept, Shadow, Tiles, piece_of, put, taken
from simulator.happens_before.spare import Spare
from simulator.happens_before.streams import RankStreams
from simulator.memory.heaps import Allocation
from simulator.memory.space import MULTICAST, Space
from simulator.memory.tensor_map import READ_BYTES
from simulator.observe.events import (
    MULTICAST_TARGET,
    TENSOR_COLUMNS,
    TENSOR_LANES,
    Access,
    BarrierArrived,
    BarrierCompleted,
    CopiesAwaited,
    CopyMoment,
    Fence,
    HostAccess,
    HostEvent,
    LaneCopyMoment,
    LaunchBegan,
    LaunchEnded,
    MbarrierOperation,
    ProductMoment,
    Stored,
    TensorMoment,
    meetings_of,
)
from simulator.observe.lanes import WARPGROUP, Group, Launched
from simulator.observe.race_checker import RaceChecker
from simulator.ptx.dataflow import deciding_loads, unawaited_loads
from simulator.ptx.ir import Instruction, Kernel
from simulator.run.nvshmem import STATE
from symlab.checks.races import promised
from symlab.checks.races.accesses import Accesses
from symlab.checks.races.report import (
    ALIAS_PROXY,
    ASYNC_PROXY,
    GENERIC_PROXY,
    HOST,
    SHARED_MEMORY,
    Findings,
    Info,
    Pair,
    Watched,
)

_PROXY_WORDS = ("multimem", "bulk", "async", "fence.proxy", "tcgen05")
"""What is in the PTX of kernels that use other proxies than the generic one."""
_LINE_BYTES = 128
_COPY_UNIT = 16
_CELL_BYTES = 4
_FIRST_QUEUE = -1024
"""Places of what no mbarrier is: of each thread's work for tensor cores, below those of wgmma."""
_BLOCKS = (1 << STAMP_SHIFT - BLOCK_SHIFT) - 1
_FEW_LANES = 512
"""Accesses to replicas in a row by more lanes are checked replica by replica, as a slice each."""
_NOTHING = Held(*(np.zeros(0, np.int64) for _ in range(5)))
_ACQUIRES = frozenset({"acquire", "acq_rel", "sc"})
_RELEASES = frozenset({"release", "acq_rel", "sc"})


@dataclass(slots=True, eq=False)
class UnderWay:
    """A copy that no lane has waited for. lanes: who issued it; held: what they knew then; groups: of each lane;
    entered: what its entries are about, in which shadow, at which units, bytes of a unit then, and by which of its
    lanes. counts_on: keys of the mbarriers that count its bytes. map_at: where its tensor map begins."""

    run: Running
    lanes: Numbers
    held: Held
    groups: Numbers
    number: int
    info: dict[str, Info]
    entered: list[tuple[Kept, Shadow, Any, int, Numbers]] = field(default_factory=list)
    is_done: bool = False
    is_read: bool = False
    stamps: list[int] = field(default_factory=list)
    counts_on: list[tuple[int, int, int]] = field(default_factory=list)
    map_at: tuple[Shadow, int] | None = None

    @property
    def first(self) -> int:
        """The first lane, of a bulk copy the only one."""
        return int(self.lanes[0])

    @property
    def group(self) -> int:
        """The group of a bulk copy."""
        return int(self.groups[0])


@dataclass(slots=True, eq=False)
class Overwriting:
    """Strong stores that release and take effect before the next event. index: bytes of Space.memory, one an element;
    before: what was there; links: what the write released that was there. Of no other lanes at the same place."""

    index: Numbers
    width: int
    before: Any
    links: Numbers
    actors: Numbers
    stamp: int


@dataclass(slots=True, eq=False)
class Moment:
    """A copy reads or writes size_bytes from a byte of a shadow on."""

    one: UnderWay
    info: Info
    stamp: int
    shadow: Shadow
    start: int
    size_bytes: int


Entered = dict[tuple[int, Kept, int], list[tuple[Shadow, Any, int, Numbers]]]
"""What copies entered, by shadow, kind and instruction: places, how many units each has become, and who stands for it
now, one for all of them or one a unit."""


class Races(RaceChecker):
    """Finds races in the one run that it listens to. findings() gives them."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.order = Order(space.world_size)
        self.found = Findings()
        self.spare = Spare()
        self.every_lane: Numbers = np.zeros(0, np.int64)
        self.last_run: Running | None = None
        self.live: list[tuple[Shadow, list[Allocation]]] = []
        self.accesses = Accesses(self.order, self.found)
        self.running: dict[Launched, Running] = {}
        self.infos: dict[tuple[int, int, str], Info] = {}
        self.kept_alive: list[object] = []
        self.copy_infos: dict[tuple[Running, int], dict[str, Info]] = {}  # of bulk copies, by launch and instruction
        self.shadows: list[Shadow] = []
        self.shadow_of: Numbers = np.zeros(64, np.int64)  # by number of an allocation, its shadow's place, from 1 on
        self.shift_of: Numbers = np.zeros(64, np.int64)  # likewise, see _place
        self.are_awaited = [True] * space.world_size  # whether each rank's host has waited for all its launches
        self.copies: dict[tuple[int, int], UnderWay] = {}
        self.begun: dict[tuple[str, int, int], tuple[Held, list[Held | None]]] = {}
        """What threads knew when they gave tensor cores something to do; of tensor memory, at their last fence."""
        self.lane_copies: dict[tuple[int, int], UnderWay] = {}
        self.issued: list[tuple[tuple[int, int], UnderWay, int]] = []
        self.moments: list[Moment] = []
        self.maps: dict[tuple[int, int], tuple[Shadow, int]] = {}  # of lanes that issue a copy now, see UnderWay.map_at
        self.overwriting: Overwriting | None = None
        self.written: list[int] = []
        self.last_store: tuple[Running, Numbers, Info, str] | None = None
        self.last_lanes: Lanes | None = None
        self.fresh: list[tuple[Running, Mbarrier]] = []  # mbarriers whose makers have not fenced since
        self.has_proxies = False
        self.shared_bytes = 0  # of a block of the launch that begins next
        self.calls_nvshmem = False  # likewise
        self.deciding: frozenset[tuple[int, str]] = frozenset()  # likewise: loads that decide where threads go on
        self.unawaited: dict[tuple[int, str], tuple[Instruction, str]] = {}  # likewise, see unawaited_loads
        self.too_early: dict[int, dict[tuple[int, str], tuple[Instruction, str]]] = {}  # the same, by launch
        self.restart()

    def findings(self) -> tuple[Finding, ...]:
        """Return what was found so far, in the order of the run."""
        self.settle_copies()
        self.accesses.settle_alike()
        return tuple(self.found.found.values())

    def forget(self) -> None:
        """Drop the findings."""
        self.settle_copies()
        self.accesses.settle_alike()
        self.found.alike.clear()
        self.found.found.clear()

    def expect(self, ptx: str, shared_bytes: int, kernel: Kernel) -> None:
        """Prepare for a kernel, before its launch begins. shared_bytes: shared memory of a block."""
        self.deciding, self.unawaited = deciding_loads(kernel), unawaited_loads(kernel)
        self.shared_bytes = shared_bytes
        self.has_proxies |= any(word in ptx for word in _PROXY_WORDS)
        self.calls_nvshmem = STATE in ptx

    def restart(self) -> None:
        """All that happened so far happens before all that follows: the ranks of a new program come in."""
        stamp = self.accesses.tick()
        for row in self.order.hosts:
            self.order.clocks.rows[row] = stamp
            self.order.clocks.extras.of_row[row] = 0
        self.order.clocks.seal(np.array(self.order.hosts))
        self.order.ranks = [RankStreams() for _ in self.order.hosts]
        self.accesses.ends.restart()
        self._forget_links()
        self.are_awaited = [True] * len(self.order.hosts)

    def _ids(self, lanes: Group) -> Numbers:
        """Return lanes' numbers; of neighbours as a part of one array of all."""
        if not isinstance(lanes, range):
            return lanes
        if lanes.stop > len(self.every_lane):
            self.every_lane = np.arange(2 * lanes.stop)
        return self.every_lane[lanes.start : lanes.stop]

    def _forget_links(self) -> None:
        """Drop what was released so far: everybody knows it."""
        if self.running:
            return
        self.order.links.count = 1
        for shadow in self.shadows:
            if shadow.links is not None:
                shadow.links.fill(0)

    # Infos and shadows

    def _info(self, run: Running, instruction: Instruction, event: Access | None, how: str = "") -> Info:
        """The facts about an instruction; how: "read" or "write" of copies."""
        key = (id(run), id(instruction), how or (event.action if event is not None else ""))
        found = self.infos.get(key)
        if found is None:
            self.kept_alive.append((run, instruction))
            found = self._made_info(run, instruction, event, how)
            self.accesses.note(found)
            self.infos[key] = found
        return found

    def _made_info(self, run: Running, instruction: Instruction, event: Access | None, how: str) -> Info:
        number, text = len(self.accesses.infos), instruction.text
        if event is None:
            is_bulk = "bulk" in instruction.qualifiers or instruction.opcode in (
                "st",
                "red",
                "wgmma",
                "clusterlaunchcontrol",
            )
            is_bulk |= instruction.opcode == "tcgen05" and how == "read"
            width = _CELL_BYTES if instruction.opcode == "tcgen05" and how != "read" else _COPY_UNIT
            proxy = ASYNC_PROXY if is_bulk else GENERIC_PROXY
            is_reduction = how == "write" and ("reduce" in instruction.qualifiers or instruction.opcode == "red")
            write = how == "write"
            return Info(
                number, run, instruction, write, is_reduction, is_reduction, False, False, GPU, proxy, width, text
            )
        order = event.order
        if run.calls_nvshmem:
            order = promised.order(event, self.space)
        is_atomic = event.kind in ("atomic", "red", "multimem_red")
        proxy = ALIAS_PROXY if event.space == "multicast" else GENERIC_PROXY
        return Info(
            number, run, instruction, event.action not in ("load", "reduce"), is_atomic, order != "weak",
            order in _RELEASES, order in _ACQUIRES and event.kind not in ("red", "multimem_red"),
            SCOPES[event.scope] if event.scope else SYS, proxy, event.width_bytes, text,
            event.action == "reduce" or order != "weak", _element(instruction, event.width_bytes),
            event.action != "load" or (instruction.line, instruction.text) in run.deciding,
        )  # fmt: skip

    def _place(self, number: int) -> tuple[Shadow, int]:
        """Return the shadow of an allocation, and its shift: an index minus the shift is a byte of the shadow."""
        if len(self.space.allocations) > len(self.shift_of):
            more = np.zeros(len(self.space.allocations), np.int64)
            self.shift_of, self.shadow_of = (np.concatenate([one, more]) for one in (self.shift_of, self.shadow_of))
        if not self.shadow_of[number]:
            allocation = self.space.allocations[number]
            assert allocation is not None
            self._add_shadow(self._peers(allocation))
        return self.shadows[int(self.shadow_of[number]) - 1], int(self.shift_of[number])

    def _add_shadow(self, allocations: list[Allocation]) -> None:
        """Make one shadow of tensors of all ranks, or of one allocation."""
        gone = [shadow for shadow, former in self.live if not any(one.live for one in former)]
        if gone:
            settled = self.order.settled()
            for shadow in gone:
                shadow.close(settled)
            self.live = [pair for pair in self.live if any(one.live for one in pair[1])]
        first = allocations[0]
        size, count = first.end - first.start, len(allocations)
        row_bytes = 1 << max(size - 1, 15).bit_length() if count > 1 else 0
        made = Shadow(first.name, 0, row_bytes * count or size, row_bytes=row_bytes, ranks=count, spare=self.spare)
        self.shadows.append(made)
        self.live.append((made, allocations))
        for row, one in enumerate(allocations):
            self.shadow_of[one.number] = len(self.shadows)
            self.shift_of[one.number] = one.start - row * row_bytes

    def _peers(self, one: Allocation) -> list[Allocation]:
        """Return all ranks' tensors at the place of one, if they are alike and none has a shadow; else the one."""
        space = self.space
        if not one.live or space.variable_ranks[one.number] >= 0 or space.world_size == 1:
            return [one]
        found = []
        for rank in range(space.world_size):
            shift = (rank - one.rank) * space.capacity
            number = int(space.granules[(one.start + shift) // space.granule_bytes])
            other = space.allocations[number] if number > 0 else None
            if other is None or not other.live or self.shadow_of[number] or other.name != one.name:
                return [one]
            if (other.start, other.end) != (one.start + shift, one.end + shift):
                return [one]
            found.append(other)
        return found

    def _shared(self, run: Running) -> Shadow:
        if run.shared is None:
            size_bytes = run.blocks * run.row_bytes
            run.shared = Shadow(SHARED_MEMORY, 0, size_bytes, row_bytes=run.row_bytes, spare=self.spare)
        return run.shared

    # Accesses

    def access(self, event: Access) -> None:
        self.settle_copies()
        run = self.running[event.launched]
        info = self._info(run, event.instruction, event)
        stamp = self.accesses.tick(info)
        lanes, index = self._ids(event.lanes), event.index
        assert index is not None
        if info.is_write:
            self.accesses.take_turn(run, lanes, info)
            self.last_store = None if event.is_affine and len(lanes) > 1 else (run, lanes, info, "")
        if run.launched.has_whole_lines:
            pairs = pairs_of(run.warps_of(lanes), index // _LINE_BYTES)[1]
            if (np.bincount(pairs) * info.width != _LINE_BYTES).any():
                self.found.of_parts.add(info.number)
        by = lanes
        if run.calls_nvshmem and event.space == "global" and promised.is_meeting(event, self.space):
            by = lanes - lanes % run.launched.block  # by the first thread of each one's block
        entries = self._released(run, by, info) if info.is_strong and info.is_write else None
        if entries is not None and (entries[:, ROW] >= 0).any():
            self._note_values(run, lanes, index, event, entries)
        if event.space == "multicast":
            self._access_replicas(run, lanes, index, event, info, entries)
        else:
            self._access_at(run, lanes, index, event.is_affine, info, entries)
        if event.instruction.opcode == "cp" and "tensor" in event.instruction.qualifiers:
            for shadow, at, units in self._shadows_of(index):  # lanes of several blocks may read several maps
                places = units * shadow.unit
                self.accesses.read_maps(shadow, run, lanes[at], places, info)
                if "prefetch" not in event.instruction.qualifiers:
                    for lane, place in zip(lanes[at].tolist(), places.tolist(), strict=True):
                        self.maps.setdefault((id(run), lane), (shadow, place))
        run.note_access(event.lanes, stamp)

    def _note_values(self, run: Running, lanes: Numbers, index: Numbers, event: Access, entries: Numbers) -> None:
        """Keep what strong stores are about to overwrite."""
        some = np.flatnonzero(entries[:, ROW] >= 0)
        lanes, index = lanes[some], index[some]
        if event.space == "multicast":
            shifts = np.arange(self.space.world_size) * self.space.capacity
            lanes, index = np.tile(lanes, len(shifts)), (shifts[:, None] + index).ravel()
        index, first, counts = np.unique(index, return_index=True, return_counts=True)
        index, lanes = index[counts == 1], lanes[first[counts == 1]]
        each = index[:, None] + np.arange(event.width_bytes)
        known = (self.space.written[each] != 0).all(axis=1)
        index, lanes, each = index[known], lanes[known], each[known]
        if not len(index):
            return
        links = np.zeros(len(index), np.int64)
        for shadow, at, units in self._shadows_of(index):
            if shadow.links is not None:
                links[at] = shadow.links[units]
        what = (index, event.width_bytes, self.space.memory[each], links, run.actors[lanes])
        self.overwriting = Overwriting(*what, self.accesses.stamp)

    def _shadows_of(self, index: Numbers) -> list[tuple[Shadow, Numbers, Numbers]]:
        """Return the shadows of bytes of memory: of each the positions in index that are there, and their units."""
        numbers = self.space.granules.take(index // self.space.granule_bytes)
        found = []
        for number in distinct(numbers).tolist():
            shadow, shift = self._place(number)
            at = np.flatnonzero(numbers == number)
            found.append((shadow, at, (index[at] - shift) // shadow.unit))
        return found

    def _settle_values(self) -> None:
        """A store of the value that was there releases nothing: who waits for the value goes on without it, too."""
        one, self.overwriting = self.overwriting, None
        assert one is not None
        now = self.space.memory[one.index[:, None] + np.arange(one.width)]
        same = np.flatnonzero((now == one.before).all(axis=1))
        if not len(same):
            return
        self.found.alike[one.stamp] = one.actors[same]
        for shadow, at, units in self._shadows_of(one.index[same]):
            if shadow.links is not None:
                each = max(one.width // shadow.unit, 1)
                places = (units[:, None] + np.arange(each)).ravel()
                shadow.links[places] = np.repeat(one.links[same[at]], each)

    def _access_replicas(
        self, run: Running, lanes: Numbers, index: Numbers, event: Access, info: Info, entries: Numbers | None
    ) -> None:
        """An access to a multicast address, in all replicas."""
        shifts = np.arange(self.space.world_size) * self.space.capacity
        if event.is_affine and len(lanes) > _FEW_LANES:
            for shift in shifts.tolist():
                self._access_at(run, lanes, index + shift, True, info, entries)
            return
        index = (shifts[:, None] + index).ravel()
        entries = None if entries is None else np.tile(entries, (len(shifts), 1))
        self._access_at(run, np.tile(lanes, len(shifts)), index, False, info, entries, len(lanes))

    def _access_at(
        self, run: Running, lanes: Numbers, index: Numbers, is_affine: bool, info: Info, entries: Numbers | None,
        each_lanes: int = 0,
    ) -> None:  # fmt: skip
        granules = self.space.granules
        granule_bytes = self.space.granule_bytes
        first = int(granules[int(index[0]) // granule_bytes])
        last = int(granules[int(index[-1]) // granule_bytes])
        if first == last and is_affine:
            shadow, shift = self._place(first)
            self._touch(shadow, self._who(run, lanes), index - shift, is_affine, info, entries)
            return
        piece = piece_of(index, info.width)  # accesses that follow each other have their places by pieces
        firsts = index[:: piece or 1]
        numbers = granules.take(firsts // granule_bytes)
        if piece and (numbers != granules.take((firsts + (piece - 1) * info.width) // granule_bytes)).any():
            piece, numbers = 0, granules.take(index // granule_bytes)
        shadow, shift = self._place(int(numbers[0]))
        which: Any = numbers
        each = piece or 1
        if not (numbers == numbers[0]).all():
            for number in distinct(numbers).tolist():
                self._place(number)
            which, shifts = self.shadow_of[numbers], self.shift_of[numbers]
        offsets = index - shift if which is numbers else (index.reshape(-1, each) - shifts[:, None]).ravel()
        if (which == which[0]).all():
            self._touch(shadow, self._who(run, lanes), offsets, False, info, entries, each_lanes, piece)
            return
        which, numbers = np.repeat(which, each), np.repeat(numbers, each)
        if each_lanes:  # a lane may be there more than once
            which = which * self.space.world_size + np.arange(len(which)) // each_lanes
        for one in distinct(which).tolist():
            at = np.flatnonzero(which == one)
            some = None if entries is None else entries[at]
            shadow, _ = self._place(int(numbers[at[0]]))
            self._touch(shadow, self._who(run, lanes[at]), offsets[at], False, info, some)

    def _who(self, run: Running, lanes: Numbers) -> Lanes:
        """Return who accesses: the same object as for the last event, if it is by the same lanes."""
        if self.last_lanes is None or self.last_lanes.run is not run or self.last_lanes.ids is not lanes:
            self.last_lanes = Lanes(run, lanes)
        return self.last_lanes

    def _touch(
        self, shadow: Shadow, who: Lanes, offsets: Numbers, is_affine: bool, info: Info, entries: Numbers | None,
        each_lanes: int = 0, piece: int = 0,
    ) -> None:  # fmt: skip
        """each_lanes: after how many the lanes come again, for the next replica; 0: never. piece: how many accesses
        each follow each other; 0: unknown."""
        run, lanes = who.run, who.ids
        places = shadow.places(offsets, info.width, is_affine, piece)
        observed = None
        if info.is_strong and (not info.is_write or info.is_atomic):
            observed = self._observe(shadow, run, lanes, offsets, info, places)
        each = info.width // shadow.unit
        if observed is not None and info.is_write and info.acquires:
            self._exchange(shadow, run, lanes, places, each, info, entries, observed)
        else:
            if entries is not None:
                observed = self._link(shadow, places, each, entries, observed)
            elif info.is_write and shadow.links is not None:
                put(shadow.links, places, 0)
            if observed is not None:
                step = each_lanes or len(lanes)
                for low in range(0, len(lanes), step):
                    self._acquire(run, lanes[low : low + step], info, observed[low : low + step])
        mine = self.accesses.stamp << STAMP_SHIFT | run.actors_of(lanes)
        self.accesses.enter(shadow, who, places, mine, each, info, is_affine)

    def _exchange(
        self, shadow: Shadow, run: Running, lanes: Numbers, places: Any, each: int, info: Info,
        entries: Numbers | None, seen: Numbers,
    ) -> None:  # fmt: skip
        """Lanes of a read-modify-write that acquires and perhaps releases. Those at one place take turns, in their
        order: each releases what it has acquired as well."""
        places = _in_units(places, 1).reshape(-1, each)
        turns, former = _turns(places[:, 0])
        for turn in range(int(turns.max()) + 1):
            at = np.flatnonzero(turns == turn)
            some, here, links = lanes[at], places[at], seen[at]
            if turn:
                links = shadow.link_array()[here[:, 0]].astype(np.int64)
                epochs = self.accesses.stamp << STAMP_SHIFT | run.actors[lanes[former[at]]]
                links = np.where(self._follows(run, some, info, epochs), links, 0)
            self._acquire(run, some, info, links)
            mine = self.order.entries(run, some, info.scope, self.accesses.stamp) if info.releases else None
            if mine is None and entries is not None:
                mine = entries[at]
            if mine is not None:
                self._link(shadow, here.ravel(), each, mine, links)

    def _observe(
        self, shadow: Shadow, run: Running, lanes: Numbers, offsets: Numbers, info: Info, places: Any
    ) -> Numbers:
        """The links of the strong writes that lanes read, of their first unit; 0 of those they are not morally strong
        with."""
        units = places if info.width == shadow.unit else offsets // shadow.unit
        kept = shadow.kept.get(Kept(WRITE, True))
        links: Numbers = np.broadcast_to(np.int64(0), len(lanes))
        if shadow.links is not None:
            links = taken(shadow.links, units).astype(np.int64)
        epochs = np.array(taken(kept, units)) if kept is not None else links  # a copy: the write to come is not seen
        if not epochs.any():
            return np.zeros(len(lanes), np.int64)
        how = (links, links, self.accesses.stamp)
        if shadow.links is not None:
            table = self.order.links.table
            how = (table[links, SCOPE], table[links, STAMP], self.accesses.stamp)
        seen = Watched(info, run.actors[lanes], epochs, links, *how, run, lanes)
        self.found.watched[(info.number, int(lanes[0]), int(lanes.sum()))] = seen
        return np.where(self._follows(run, lanes, info, epochs), links, 0) if links.any() else links

    def _released(self, run: Running, lanes: Numbers, info: Info) -> Numbers | None:
        """What a strong write of lanes releases, a row of Links each (ROW -1: nothing), by itself or a fence before."""
        if info.releases:
            return self.order.entries(run, lanes, info.scope, self.accesses.stamp)
        found: Numbers | None = None
        for scope in sorted(run.released):
            mine = run.released[scope].entries[lanes]
            mine = mine.copy()
            mine[:, 1] = np.minimum(mine[:, 1], info.scope)
            some = mine[:, 0] >= 0
            found = mine if found is None else np.where(some[:, None], mine, found)
        if found is None and info.is_atomic:
            found = np.zeros((len(lanes), COLUMNS), np.int64)
            found[:, 0] = -1
        return found

    def _link(self, shadow: Shadow, places: Any, each: int, entries: Numbers, before: Numbers | None) -> Numbers | None:
        """Note what a strong write releases at its units. A read-modify-write keeps what the write before it did, by
        the links `before`; returns the links that its lanes see, where lanes at one place follow each other."""
        has_own = entries[:, 0] >= 0
        if not has_own.any() and (before is None or not before.any()):
            if shadow.links is not None:
                put(shadow.links, places, 0)
            return before
        links = np.zeros(len(entries), np.int64)
        links[has_own] = self.order.links.add(entries[has_own])
        array, places = shadow.link_array(), _in_units(places, 1)
        if before is None:
            array[places] = np.repeat(links, each)
            return None
        return self._chain(array, places.reshape(-1, each), links, before)

    def _chain(self, array: Any, places: Numbers, links: Numbers, before: Numbers) -> Numbers:
        """Lanes of one read-modify-write at one place follow each other in lane order. Returns what each sees."""
        table = self.order.links.table
        units = places[:, 0]
        order = np.argsort(units, kind="stable")
        seen = before.copy()
        current = 0
        previous = -1
        for at in order.tolist():
            if units[at] != previous:
                current, previous = int(before[at]), int(units[at])
            seen[at] = current
            if links[at]:
                table[links[at], PREVIOUS] = current
                current = int(links[at])
            array[places[at]] = current
        return seen

    def _follows(self, run: Running, lanes: Numbers, info: Info, epochs: Numbers) -> Any:
        """Whether strong reads are morally strong with the writes that they see."""
        actors = epochs & LOW_MASK
        numbers = self.accesses.info_of[epochs >> STAMP_SHIFT]
        return self.accesses.morally_strong(numbers, actors, run.actors[lanes], info) & (epochs > 0)

    def _acquire(self, run: Running, lanes: Numbers, info: Info, links: Numbers) -> None:
        """Lanes saw links: they acquire them now, or at a fence to come."""
        if not links.any():
            return
        if info.acquires:
            self.order.acquire(run, lanes, links, info.scope)
            return
        some = links > 0
        if run.pending and len(run.pending[-1][0]) == int(some.sum()):
            last = run.pending[-1]
            if np.array_equal(last[0], lanes[some]) and np.array_equal(last[1], links[some]):
                return
        run.pending.append((lanes[some], links[some], info.scope))

    def shared_access(self, event: Access) -> None:
        self.settle_copies()
        run = self.running[event.launched]
        info = self._info(run, event.instruction, event)
        stamp = self.accesses.tick(info)
        lanes = self._ids(event.lanes)
        blocks = run.launched.owners_of(lanes, event.target_blocks)
        offsets = blocks * run.row_bytes + event.addresses.astype(np.int64)
        if info.is_write:
            self.accesses.take_turn(run, lanes, info)
            self.last_store = (run, lanes, info, SHARED_MEMORY)
        entries = self._released(run, lanes, info) if info.is_strong and info.is_write else None
        is_affine = len(offsets) > 1 and bool((np.diff(offsets) == info.width).all())
        self._touch(self._shared(run), self._who(run, lanes), offsets, is_affine, info, entries)
        run.note_access(event.lanes, stamp)

    def stored(self, event: Stored) -> None:
        """Lanes of one warp that stored different values to one address in one instruction."""
        if self.last_store is None or len(self.last_store[1]) != len(event.places):
            return
        run, lanes, info, name = self.last_store
        if self.accesses.unsure and event.memory is not None:
            rows = np.ascontiguousarray(event.rows).view(np.uint8).reshape(len(lanes), -1)
            there = event.memory[event.places[:, None] + np.arange(rows.shape[1])]
            self.accesses.settle_alike(run.actors[lanes], (rows == there).all(axis=1))
        if info.is_atomic or info.is_strong:
            return
        if (event.places[1:] > event.places[:-1]).all() or self._are_apart(event.places, info.width):
            return
        order = np.argsort(event.places, kind="stable")
        same = event.places[order][1:] == event.places[order][:-1]
        if not same.any():
            return
        rows = np.ascontiguousarray(event.rows).view(np.uint8).reshape(len(lanes), -1)[order]
        warps = run.warps_of(lanes[order])
        differ = same & (rows[1:] != rows[:-1]).any(axis=1) & (warps[1:] == warps[:-1])
        at = np.flatnonzero(differ)
        if len(at):
            one, two = int(lanes[order][at[0]]), int(lanes[order][at[0] + 1])
            byte = int(event.places[order][at[0]])
            if not name:
                allocation = self.space.allocations[int(self.space.granules[byte // self.space.granule_bytes])]
                assert allocation is not None
                name, byte = allocation.name, byte - allocation.start
            stamp = self.accesses.stamp << STAMP_SHIFT
            pair = Pair(
                stamp | int(run.actors[one]), info, int(run.actors[two]), info, name, byte, GENERIC, False, False
            )
            self.found.add(pair, len(at))

    def _are_apart(self, places: Numbers, width: int) -> bool:
        """Return whether addresses that follow each other in pieces differ."""
        piece = piece_of(places, width)
        if not piece:
            return False
        firsts = np.sort(places[::piece])
        return not (firsts[1:] - firsts[:-1] < piece * width).any()

    # Order

    def fence(self, event: Fence) -> None:
        self.settle_copies()
        run = self.running[event.launched]
        stamp, lanes = self.accesses.tick(), self._ids(event.lanes)
        if event.kind == "mbarrier_init" or event.proxy.startswith("async"):
            self._announce_mbarriers(run, lanes)
        if event.proxy.startswith("tensormap"):
            self._fence_maps(run, lanes, event)
            return
        if event.kind == "proxy":
            part = ALIAS if event.proxy == "alias" else ASYNC
            self.order.fence_proxy(run, lanes, part, stamp)
            return
        if event.kind != "thread":
            return
        order, scope = event.order, SCOPES[event.scope]
        if run.calls_nvshmem and promised.is_fence_of_all(event.instruction):
            scope = SYS
        if order in _ACQUIRES:
            self._acquire_pending(run, lanes, scope)
            run.note_acquire(lanes, stamp, scope)
        if order in _RELEASES:
            if scope not in run.released:
                run.released[scope] = Released.none(run.launched.lanes)
            run.released[scope].entries[lanes] = self.order.entries(run, lanes, scope, stamp)

    def _fence_maps(self, run: Running, lanes: Numbers, event: Fence) -> None:
        """Of an acquire the maps; a release has none: the thread that acquires has to know the stores."""
        if event.addresses is None:
            return
        self.order.settle(run, lanes)
        bases = np.array([self.space.base(rank) for rank in event.ranks.tolist()])
        for at in range(0, READ_BYTES, _COPY_UNIT):
            index = event.addresses.astype(np.int64) - bases + at
            for shadow, some, units in self._shadows_of(index):
                self.accesses.fence_maps(shadow, run, lanes[some], units * shadow.unit, _COPY_UNIT)

    def _announce_mbarriers(self, run: Running, lanes: Numbers) -> None:
        """Copies may count on the mbarriers that these lanes have made, for they fence after it."""
        if not self.fresh:
            return
        actors = run.actors[lanes]
        announced = [one for maker, one in self.fresh if maker is run and one.made & LOW_MASK in actors]
        for one in announced:
            one.made = 0
        self.fresh = [pair for pair in self.fresh if pair[1].made]
        who, every = Lanes(run, lanes), np.arange(len(lanes))
        for one in (barrier for maker, barrier in self.fresh if maker is run):  # copies by these lanes may, too
            known = ~self.order.unknown(who, every, np.full(len(lanes), one.made), GENERIC)
            one.counts.update(actors[known].tolist())

    def _acquire_pending(self, run: Running, lanes: Numbers, scope: int) -> None:
        """What lanes read without an acquire before their fence, they acquire now."""
        if not run.pending and not run.waited:
            return
        mask = np.zeros(run.launched.lanes, np.bool_)
        mask[lanes] = True
        self.order.acquire_waited(run, mask, scope)
        left = []
        for some, links, of_read in run.pending:
            at = mask[some]
            if at.any():
                self.order.acquire(run, some[at], links[at], min(scope, of_read))
            if scope < SYS:
                left.append((some, links, of_read))
            elif not at.all():
                left.append((some[~at], links[~at], of_read))
        run.pending = left

    def barrier_arrived(self, event: BarrierArrived) -> None:
        self.settle_copies()
        run = self.running[event.launched]
        words = event.instruction.qualifiers
        if event.numbers is None:
            return
        stamp = self.accesses.tick()
        for key, some in meetings_of(event) if event.unit == "cluster" or "arrive" in words else ():
            rows = run.arrived.setdefault(key, [])
            if "relaxed" in words:
                rows += self.order.gather_released(run, some, CLUSTER)
            else:
                rows.append(self.order.gather(run, some, stamp))

    def barrier_completed(self, event: BarrierCompleted) -> None:
        self.settle_copies()
        run, order = self.running[event.launched], self.order
        stamp = self.accesses.tick()
        if event.unit == "warp":
            order.meet_warps(run, self._ids(event.lanes), stamp)
        elif event.numbers is None:
            order.meet_blocks(run, event.lanes, stamp)
        else:
            for key, some in meetings_of(event):
                if event.unit == "cluster":
                    run.arrived.pop((*key[:2], key[2] - 1), None)  # all have waited for that
                    order.merge(run, some, run.arrived.get(key, []))
                else:
                    order.meet(run, some, stamp, run.arrived.pop(key, []))

    def mbarrier(self, event: MbarrierOperation) -> None:
        run = self.running[event.launched]
        lanes, operation = self._ids(event.lanes), event.operation
        stamp = self.accesses.tick()
        if operation == "inval" or operation == "expect_tx" or (operation == "complete_tx" and not self.written):
            return
        blocks = run.launched.owners_of(lanes, event.target_blocks)
        if operation == "complete_tx":
            one = self.order.mbarrier(run, int(blocks[0]), int(event.addresses[0]))
            self.order.note_copies(self.written, one, int(event.phases[0]))
            self.written = []
            return
        words = event.instruction.qualifiers
        # Without a scope PTX says .cta, but kernels release buffers to other blocks so, and the hardware orders it.
        is_relaxed, scope = "relaxed" in words, CTA if "cta" in words else CLUSTER
        self.settle_copies()
        if operation in ("arrive", "arrive_drop") and event.instruction.opcode == "cp":
            self._arrive_with_copies(run, lanes)
            stamp = self.accesses.tick()  # after the copies that the lanes stand for now
        keys = blocks * (1 << 20) + event.addresses
        names, first, owners = np.unique(keys, return_index=True, return_inverse=True)
        objects = [self.order.mbarrier(run, key >> 20, key & (1 << 20) - 1) for key in names.tolist()]
        if operation == "init":
            info = self._info(run, event.instruction, None, "write")
            made = self.accesses.tick(info) << STAMP_SHIFT | run.actors[lanes[first]]
            for one, maker in zip(objects, made.tolist(), strict=True):
                one.near, one.far, one.copies, one.over = Phases(-1), Phases(-1), [], []
                one.made, one.counts = maker, set()
                self.fresh.append((run, one))
            return
        owners = owners.reshape(-1)
        if operation.startswith("arrive"):
            arrived = Arrived(lanes, owners, run.blocks_of(lanes) != keys >> 20, event.phases[first].tolist())
            self.order.arrive(run, objects, arrived, scope, is_relaxed, stamp)
        elif event.passed is not None and event.passed.any():
            passed = np.flatnonzero(event.passed)
            chosen, owners = np.unique(owners[passed], return_inverse=True)
            phases = event.phases[first[chosen]].tolist()
            ends = [(objects[at], phase) for at, phase in zip(chosen.tolist(), phases, strict=True)]
            self.order.pass_waits(run, ends, lanes[passed], owners.reshape(-1), scope, is_relaxed, stamp)

    # Copies

    def copy(self, event: CopyMoment) -> None:
        """Moments that follow each other wait for each other, see settle_copies."""
        run = self.running[event.launched]
        key = (id(run), event.number)
        if event.moment == "issued":
            infos = self.copy_infos.get((run, id(event.instruction)))
            if infos is None:
                infos = {how: self._info(run, event.instruction, None, how) for how in ("read", "write")}
                infos["map"] = replace(infos["read"], proxy=GENERIC_PROXY)  # read_maps tells what its proxy lacks
                self.copy_infos[run, id(event.instruction)] = infos
            one = UnderWay(run, self._ids(event.lanes), _NOTHING, np.array([event.group]), event.number, infos)
            if event.mbarrier >= 0 and "bulk" in event.instruction.qualifiers:
                one.counts_on = [(id(run), block, event.mbarrier) for block in _target_blocks(one, event)]
            one.map_at = self.maps.pop((id(run), one.first), None)
            self.copies[key] = one
            self.issued.append((key, one, self.accesses.tick()))
            return
        one = self.copies[key]
        is_read = event.moment == "read"
        space, _ = event.source if is_read else event.destination
        if space == "register":
            one.is_read = True
            return
        info = one.info["read" if is_read else "write"]
        stamp = self.accesses.tick(info)
        touched = event.touched(is_read)
        if event.stretches is not None:
            touched = [piece for begin, size in touched for piece in _aligned(begin, size)]
        for address, size in touched:
            if space == "shared":
                for target in _target_blocks(one, event, is_read):
                    place = (self._shared(run), target * run.row_bytes + address)
                    self.moments.append(Moment(one, info, stamp, *place, size))
                continue
            index = address - self.space.base(int(event.ranks[0]))
            starts = [index]
            if event.target == MULTICAST_TARGET:
                start = index - MULTICAST * self.space.capacity
                starts = [start + rank * self.space.capacity for rank in range(self.space.world_size)]
            for start in starts:
                shadow, shift = self._place(int(self.space.granules[start // self.space.granule_bytes]))
                self.moments.append(Moment(one, info, stamp, shadow, start - shift, size))
        one.stamps.append(stamp)
        if is_read and one.map_at is not None:
            self.moments.append(Moment(one, one.info["map"], stamp, *one.map_at, READ_BYTES))
        if event.mbarrier >= 0 and not is_read:  # a copy to several blocks counts on an mbarrier of each
            self.written, one.stamps = one.stamps, []
        one.is_read |= is_read
        one.is_done |= not is_read

    def settle_copies(self) -> None:
        """Check the copies whose moments came since the last other event: nothing orders them with each other. What
        the last event stored is there now."""
        if self.overwriting is not None:
            self._settle_values()
        if self.issued:
            for run in dict.fromkeys(one.run for _, one, _ in self.issued):
                some = [found for found in self.issued if found[1].run is run]
                lanes = np.concatenate([one.lanes for _, one, _ in some])
                self.order.settle(run, lanes)
                held = Held.of(run, lanes, np.array([stamp for _, _, stamp in some]))
                for at, (key, one, _) in enumerate(some):
                    one.held = held.some(slice(at, at + 1))
                    self.order.held[key] = one.held.row
                    if one.counts_on:
                        self._check_mbarriers(one)
            self.issued = []
        if self.moments:
            moments, self.moments = self.moments, []
            groups: dict[tuple[int, int, int], list[Moment]] = {}
            for moment in moments:
                width = min(_COPY_UNIT, moment.size_bytes)
                groups.setdefault((id(moment.shadow), id(moment.info), width), []).append(moment)
            for is_write in (False, True):
                for (_, _, width), alike in groups.items():
                    if alike[0].info.is_write == is_write:
                        self._copies_at(alike, width)

    def _check_mbarriers(self, one: UnderWay) -> None:
        """A bulk copy counts its bytes in the async proxy: it has to know that the mbarrier was made."""
        actor = int(one.held.actor[0])
        for key in one.counts_on:
            barrier = self.order.mbarriers.get(key)
            if barrier is None or not barrier.made or actor in barrier.counts:
                continue
            barrier.counts.add(actor)
            epochs, first = np.array([barrier.made]), np.zeros(1, np.int64)
            if self.order.unknown(Many(one.held, first), first, epochs, ASYNC)[0]:
                is_race = bool(self.order.unknown(Many(one.held, first), first, epochs, GENERIC)[0])
                made = self.accesses.infos[int(self.accesses.info_of[barrier.made >> STAMP_SHIFT])]
                byte = key[1] * ROW_BYTES + key[2]
                what = (barrier.made, made, actor, one.info["write"], SHARED_MEMORY, byte, ASYNC)
                self.found.add(Pair(*what, not is_race, False), 1)

    def _copies_at(self, moments: list[Moment], width: int) -> None:
        """Copies of one instruction access bytes of a shadow."""
        shadow, info = moments[0].shadow, moments[0].info
        shadow.refine(_COPY_UNIT)
        moments = sorted(moments, key=lambda one: one.start)
        starts, sizes = (np.array([getattr(one, name) for one in moments]) for name in ("start", "size_bytes"))
        held = Held.all_of([one.one.held for one in moments])
        actors = held.actor & ~CODE_MASK | COPY_CODE
        stamps = np.array([one.stamp for one in moments])
        size = int(sizes[0])
        if (sizes == size).all() and self.accesses.touch_pieces(shadow, held, starts, size, info, actors, stamps):
            each = size // shadow.unit
            for moment, actor in zip(moments, actors.tolist(), strict=True):
                first = moment.start // shadow.unit
                _enter(moment.one, info, shadow, slice(first, first + each), actor, first, moment.one.lanes)
            return
        counts = np.maximum(sizes // _COPY_UNIT, 1)
        index = np.repeat(np.arange(len(moments)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(index)) - np.repeat(ends - counts, counts)
        offsets = starts[index] + within * _COPY_UNIT
        is_affine = len(moments) == 1 or bool((starts[1:] == starts[:-1] + counts[:-1] * width).all())
        places, _, each = self.accesses.touch(
            shadow, Many(held, index), offsets, width, is_affine, info, actors[index], stamps[index]
        )
        for at, moment in enumerate(moments):
            low, high = int(ends[at] - counts[at]) * each, int(ends[at]) * each
            is_slice = isinstance(places, slice)
            mine = slice(places.start + low, places.start + high) if is_slice else places[low:high]
            first = moment.start // shadow.unit
            _enter(moment.one, info, shadow, mine, int(actors[at]), first, moment.one.lanes)

    def lane_copy(self, event: LaneCopyMoment) -> None:
        self.settle_copies()
        run = self.running[event.launched]
        key = (id(run), event.number)
        lanes = self._ids(event.lanes)
        if event.moment == "issued":
            self.order.settle(run, lanes)
            held = Held.of(run, lanes, self.accesses.tick())
            infos = {how: self._info(run, event.instruction, None, how) for how in ("read", "write")}
            self.lane_copies[key] = UnderWay(run, lanes, held, event.groups.copy(), event.number, infos)
            self.order.held[("lanes", *key)] = held.row
            return
        one = self.lane_copies[key]
        at = np.searchsorted(one.lanes, lanes)
        held = one.held.some(at)
        if event.moment == "written":
            self.accesses.tick(one.info["write"])
            offsets = run.blocks_of(lanes) * run.row_bytes + event.shared_addresses
            self._lanes_at(one, self._shared(run), held, lanes, offsets, event.size_bytes, "write")
            return
        self.accesses.tick(one.info["read"])
        index = event.global_addresses.astype(np.int64) - np.array([self.space.base(int(rank)) for rank in event.ranks])
        for size in np.unique(event.taken[event.taken > 0]).tolist():
            some = np.flatnonzero(event.taken == size)
            numbers = self.space.granules.take(index[some] // self.space.granule_bytes)
            for number in distinct(numbers).tolist():
                mine = some[numbers == number]
                shadow, shift = self._place(number)
                width = size & -size
                for part in range(0, size, width):
                    offsets = index[mine] - shift + part
                    self._lanes_at(one, shadow, held.some(mine), lanes[mine], offsets, width, "read")

    def _lanes_at(
        self, one: UnderWay, shadow: Shadow, held: Held, lanes: Numbers, offsets: Numbers, width: int, how: str
    ) -> None:
        actors = held.actor & ~CODE_MASK | COPY_CODE
        who, info = Many(held, np.arange(len(lanes))), one.info[how]
        places, _, _ = self.accesses.touch(shadow, who, offsets, width, False, info, actors)
        _enter(one, info, shadow, places, int(actors[0]), int(offsets[0]) // shadow.unit, lanes)

    def copies_awaited(self, event: CopiesAwaited) -> None:
        """Lanes that waited for copies now stand for them."""
        self.settle_copies()
        run = self.running[event.launched]
        lanes = self._ids(event.lanes)
        if "bulk" in event.instruction.qualifiers:
            ends = dict(zip(lanes.tolist(), event.groups.tolist(), strict=True))
            copies = (one for one in self.copies.values() if one.run is run)
            over = [one for one in copies if 0 <= one.group < ends.get(one.first, 0)]
            if event.reads_only:
                self.found.read_alone.update(one.info["write"].number for one in over)
            self._stand_for_bulk(over, event.reads_only)
            if not event.reads_only:
                for one in over:
                    if one.is_done:
                        del self.copies[id(run), one.number]
                        self.order.held.pop((id(run), one.number), None)
            return
        for one in self.lane_copies.values():
            mine = np.flatnonzero(np.isin(one.lanes, lanes)) if one.run is run else np.zeros(0, np.int64)
            late = one.groups[mine] >= event.groups[np.searchsorted(lanes, one.lanes[mine])]
            done = (one.groups[mine] >= 0) & ~late
            if done.any():
                if not event.reads_only:
                    one.groups[mine[done]] = -1
                self._stand_for_lanes(one, one.lanes[mine[done]], event.reads_only)

    def _stand_for_bulk(self, over: list[UnderWay], reads_only: bool) -> None:
        """Give what bulk copies, each of one lane, entered to the lanes that waited for them."""
        groups: Entered = {}
        for one in over:
            actor = one.run.actors[one.lanes]
            for kept, shadow, places, unit, _ in one.entered:
                if not (reads_only and kept.kind == WRITE):
                    key = (id(shadow), kept, one.info["write" if kept.kind == WRITE else "read"].number)
                    groups.setdefault(key, []).append((shadow, places, unit // shadow.unit, actor))
        self._hand_over(groups)
        for one in over:
            one.run.last[one.first // one.run.launched.block] = self.accesses.stamp

    def _stand_for_lanes(self, one: UnderWay, lanes: Numbers, reads_only: bool) -> None:
        """Give what lanes' copies entered to those of the lanes that waited for them."""
        groups: Entered = {}
        for kept, shadow, places, unit, entered in one.entered:
            units = _in_units(places, unit // shadow.unit).reshape(len(entered), -1)  # as many of each lane
            waited = np.isin(entered, lanes)
            if waited.any() and not (reads_only and kept.kind == WRITE):
                key = (id(shadow), kept, one.info["write" if kept.kind == WRITE else "read"].number)
                actors = np.repeat(one.run.actors[entered[waited]], units.shape[1])
                groups.setdefault(key, []).append((shadow, units[waited].ravel(), 1, actors))
        self._hand_over(groups)
        one.run.last[one.run.blocks_of(lanes)] = self.accesses.stamp

    def _hand_over(self, groups: Entered) -> None:
        """Let actors stand for what copies entered."""
        for (_, kept, number), entered in groups.items():
            stamp = self.accesses.tick(self.accesses.infos[number])
            shadow = entered[0][0]
            epochs = shadow.kept.get(kept)
            if epochs is None:
                continue
            shadow.note(kept, stamp)
            tiles = _tiles([(places, factor) for _, places, factor, _ in entered], shadow.units)
            if shadow.hidden or (shadow.others and kept.kind == READ):
                for _, places, factor, actors in entered:
                    self._restamp_beside(shadow, kept, _in_units(places, factor), actors, number, stamp)
            if tiles is not None and tiles.are_apart:
                matrix, actors = tiles.matrix(epochs), np.concatenate([one for _, _, _, one in entered])
                matrix[tiles.numbers] = self._restamped(matrix[tiles.numbers], actors[:, None], number, stamp)
                continue
            pieces = [_in_units(places, factor) for _, places, factor, _ in entered]
            units = np.concatenate(pieces)  # of copies to one place one is there: the others leave it alone
            actors = np.concatenate([np.broadcast_to(one[3], len(at)) for one, at in zip(entered, pieces, strict=True)])
            restamped = self._restamped(epochs[units], actors, number, stamp)
            mine = restamped != epochs[units]
            epochs[units[mine]] = restamped[mine]

    def _restamp_beside(
        self, shadow: Shadow, kept: Kept, units: Numbers, actors: Numbers, number: int, stamp: int
    ) -> None:
        """Likewise what is kept of copies' reads and additions whose places others took. actors: one, or by unit."""
        order = np.argsort(units, kind="stable")
        for one, some, epochs in (*shadow.others, *shadow.hidden):
            if one == kept and (epochs & CODE_MASK == COPY_CODE).any():
                found = order[np.minimum(np.searchsorted(units[order], some), len(units) - 1)]
                mine = np.broadcast_to(actors, len(units))[found]
                epochs[:] = np.where(units[found] == some, self._restamped(epochs, mine, number, stamp), epochs)

    def _restamped(self, some: Numbers, actors: Numbers, number: int, stamp: int) -> Numbers:
        """Return epochs of which copies' by one instruction are their waiting threads' now."""
        ours = (some & CODE_MASK == COPY_CODE) & (self.accesses.info_of[some >> STAMP_SHIFT] == number)
        ours &= some >> BLOCK_SHIFT & _BLOCKS == actors >> BLOCK_SHIFT
        found: Numbers = np.where(ours, stamp << STAMP_SHIFT | actors, some)
        return found

    def _arrive_with_copies(self, run: Running, lanes: Numbers) -> None:
        """cp.async.mbarrier.arrive: the lanes stand for their copies that are done."""
        for one in self.lane_copies.values():
            if one.run is run:
                mine = one.lanes[np.isin(one.lanes, lanes)]
                if len(mine):
                    self._stand_for_lanes(one, mine, False)

    # wgmma

    def product(self, event: ProductMoment) -> None:
        """Each warp of a warpgroup reads its rows of A, and B, by the async proxy until it waits for the group."""
        self.settle_copies()
        run, lanes = self.running[event.launched], self._ids(event.lanes)
        if event.moment == "unfenced":
            self._tell_unfenced(run, int(lanes[0]), event)
            return
        block, thread = divmod(int(lanes[0]), run.launched.block)
        barrier = self.order.mbarrier(run, block, -1 - thread // WARPGROUP)
        if event.moment == "awaited":
            stamp, every = self.accesses.tick(), np.zeros(len(lanes), np.int64)
            self.order.pass_waits(run, [(barrier, event.group)], lanes, every, CTA, False, stamp)
            return
        assert event.matrices is not None
        a, b = (one.reshape(-1) for one in event.matrices)
        firsts = lanes[::WARP]
        self.order.settle(run, firsts)
        info = self._info(run, event.instruction, None, "read")
        stamp = self.accesses.tick(info)
        held = Held.of(run, firsts, stamp)
        every = np.arange(len(firsts))
        warps = np.concatenate([np.repeat(every, len(a) // len(firsts)), np.repeat(every, len(b))])
        offsets = block * run.row_bytes + np.concatenate([a, np.tile(b, len(firsts))])
        shadow = self._shared(run)
        shadow.refine(_COPY_UNIT)
        actors = held.actor & ~CODE_MASK | COPY_CODE
        self.accesses.touch(shadow, Many(held, warps), offsets, _COPY_UNIT, False, info, actors[warps])
        self.order.note_copies([stamp], barrier, event.group)

    def _tell_unfenced(self, run: Running, lane: int, event: ProductMoment) -> None:
        """Registers that a wgmma takes or gives were accessed before it, and nothing ordered these."""
        assert event.earlier is not None
        first, second = (self._info(run, one, None, "read") for one in (event.earlier, event.instruction))
        self.found.add_unfenced(first, second, int(run.actors[lane]), f"register {event.register}", "wgmma.fence")

    def tensor(self, event: TensorMoment) -> None:
        """A warp accesses tensor memory in its step. What a thread begins knows what the thread did then, and all that
        its tensor cores did before; who waits for the mbarrier of a commit knows the latter."""
        self.settle_copies()
        run, lanes = self.running[event.launched], self._ids(event.lanes)
        block, thread = divmod(int(lanes[0]), run.launched.block)
        queue = self.order.mbarrier(run, block, _FIRST_QUEUE - thread)
        key = ("tensor", id(run), event.number)
        if event.moment == "committed":
            row = self.order.after(queue, [], self.accesses.tick())
            for owner, address, phase in event.mbarriers:
                self.order.mbarrier(run, owner, address).near.rows.setdefault(phase, []).append(row)
        elif event.moment == "multiplied":
            held, _ = self.begun[key]
            row = self.order.after(queue, held.row.tolist(), self.accesses.tick())
            self._multiplied(run, event, replace(held, row=np.array([row])), queue)
        else:
            self.order.settle(run, lanes)
            held = Held.of(run, lanes, self.accesses.tick())
            if event.moment == "issued":
                self.begun[key] = held, self.accesses.fences.fenced(run, lanes)
                self.order.held[key] = held.row
                return
            if event.moment == "fenced":
                self.accesses.fences.fence(run, lanes, held)
                return
            if event.moment == "awaited":
                self.accesses.fences.wait(held, self.accesses.stamp)
                return
            info = self._info(run, event.instruction, None, "taken" if event.moment == "loaded" else "write")
            if use := self.too_early[id(run)].get((event.instruction.line, event.instruction.text)):
                second = self._info(run, use[0], None, "read")
                self.found.add_unfenced(info, second, int(held.actor[0]), f"register {use[1]}", "tcgen05.wait::ld")
            self._touch_cells(run, event, held, info, (event.cells, event.columns), held.actor)

    def _multiplied(self, run: Running, event: TensorMoment, held: Held, queue: Mbarrier) -> None:
        """A product reads A and B, from shared memory by the async proxy, and writes D."""
        assert event.rows is not None
        actor = held.actor & ~CODE_MASK | COPY_CODE
        info = self._info(run, event.instruction, None, "read")
        stamps = [self.accesses.tick(info)]
        shadow, places = self._shared(run), event.block * run.row_bytes + event.rows
        shadow.refine(_COPY_UNIT)
        one = np.zeros(len(places), np.int64)
        self.accesses.touch(shadow, Many(held, one), places, _COPY_UNIT, False, info, actor[one])
        if event.taken is not None:
            info = self._info(run, event.instruction, None, "taken")
            stamps.append(self._touch_cells(run, event, held, info, event.taken, actor))
        info = self._info(run, event.instruction, None, "write")
        stamps.append(self._touch_cells(run, event, held, info, (event.cells, event.columns), actor))
        self.order.note_copies(stamps, queue, 0)

    def _touch_cells(self, run: Running, event: TensorMoment, held: Held, info: Info, cells: Any, actors: Any) -> int:
        """Cells of tensor memory are accessed, as many each by the actors. Return the stamp."""
        stamp = self.accesses.tick(info)
        if run.tensor is None:
            size_bytes = TENSOR_LANES * TENSOR_COLUMNS * _CELL_BYTES
            run.tensor = Shadow("tensor memory", 0, run.blocks * size_bytes, row_bytes=size_bytes, spare=self.spare)
            run.tensor.refine(_CELL_BYTES)
        lanes, columns = (np.ravel(one) for one in np.broadcast_arrays(*cells))
        who: Any = np.repeat(np.arange(len(actors)), len(lanes) // len(actors))
        places = (event.block * TENSOR_LANES + lanes) * TENSOR_COLUMNS + columns
        key, now = ("tensor", id(run), event.number), Many(held, who)
        fences, by_cores = self.accesses.fences, event.number >= 0
        fenced = self.begun[key][1] if by_cores else fences.fenced(run, self._ids(event.lanes))
        fences.check(run.tensor, now, by_cores, fenced, places * _CELL_BYTES, info)
        self.accesses.touch(run.tensor, now, places * _CELL_BYTES, _CELL_BYTES, False, info, actors[who])
        return stamp

    # Launches and hosts

    def launch_began(self, event: LaunchBegan) -> None:
        self.settle_copies()
        launched, order = event.launched, self.order
        firsts = [self._room(rank, launched).first for rank in launched.ranks]
        stamp = self.accesses.tick()
        self.found.forget(order.settled())
        run = Running(launched, order.clocks.parts, stamp, self.shared_bytes, firsts, self.spare, self.last_run)
        for other in order.running:
            other.forget_floors()
        for position, rank in enumerate(launched.ranks):
            rows = order.ranks[rank].begin(launched.numbers[position], launched.stream)
            row = self._boundary(rows, rank, launched.stream, stamp)
            run.set_rows(slice(position * launched.threads, (position + 1) * launched.threads), row)
        run.calls_nvshmem, run.deciding = self.calls_nvshmem, self.deciding
        self.too_early[id(run)] = self.unawaited
        self.accesses.ends.began(launched)
        self.running[launched] = run
        order.running.append(run)

    def _room(self, rank: int, launched: Launched) -> Room:
        """Return the room for a rank's blocks of a launch."""
        clocks = self.order.clocks
        number = self.order.ranks[rank].take_room(launched.stream, launched.grid, clocks.rooms)
        clocks.fit(launched.grid, self.has_proxies, number)
        return clocks.rooms[number]

    def _boundary(
        self, rows: list[int], rank: int, stream: int | None, stamp: int, entries: Numbers | None = None
    ) -> int:
        """A new row at an end or a beginning of a launch: all of the rank is known but what other streams have launched
        since its host waited, and all proxies have met.

        entries: of links that were acquired and are not in rows."""
        clocks = self.order.clocks
        row = clocks.joined(rows)
        one = np.array([row])
        if entries is not None:
            self.order.join_entries(np.full(len(entries), row), entries)
        clocks.extras.derive(one, np.zeros(1, np.int64), clocks.extras.of_row[one], ALL)
        clocks.know(row, rank, stamp, [at for at, one in self.order.ranks[rank].rooms.items() if one != stream])
        clocks.rows[row, 1:] = clocks.rows[row, GENERIC]
        clocks.seal(one)
        self.order.flatten(row, rank)
        return row

    def launch_ended(self, event: LaunchEnded) -> None:
        self.settle_copies()
        run, order = self.running[event.launched], self.order
        stamp = self.accesses.tick()
        position = event.launched.ranks.index(event.rank)
        threads = event.launched.threads
        low, high = position * threads, (position + 1) * threads
        _, links = order.take_owed(run, low, high)
        entries = order.links.table[links]
        rows = distinct(np.concatenate([changes_of(run.rows[low:high]), entries[:, ROW]])).tolist()
        stream = event.launched.stream
        row = self._boundary(rows, event.rank, stream, stamp, entries)
        order.ranks[event.rank].end(event.number, stream, row)
        seen = self.found.watched.values()
        self.accesses.ends.ended(event.launched, event.rank, event.number, seen, self.accesses.info)
        run.ranks_left -= 1
        if run.ranks_left:
            return
        del self.running[event.launched]
        order.running.remove(run)
        self.fresh = [pair for pair in self.fresh if pair[0] is not run]
        self.copy_infos = {key: infos for key, infos in self.copy_infos.items() if key[0] is not run}
        for copies in (self.copies, self.lane_copies):
            for key in [key for key, one in copies.items() if one.run is run]:
                del copies[key]
        self.begun = {key: one for key, one in self.begun.items() if id(run) not in key}
        self.accesses.fences.forget(run)
        order.held = {key: rows for key, rows in order.held.items() if id(run) not in key}  # type: ignore[operator]
        order.mbarriers = {key: one for key, one in order.mbarriers.items() if key[0] != id(run)}
        self.last_run = run
        run.close()

    def host(self, event: HostEvent) -> None:
        self.settle_copies()
        order, clocks = self.order, self.order.clocks
        stamp = self.accesses.tick()
        last = clocks.stride - 1
        if event.action == "enqueued":
            (rank,) = event.ranks
            row = clocks.joined([order.hosts[rank]])
            clocks.rows[row, :, rank * clocks.stride + last] = stamp
            clocks.seal(np.array([row]))
            order.ranks[rank].enqueued[event.launch] = (row, event.after)
            self.are_awaited[rank] = False
        elif event.action == "synchronized":
            (rank,) = event.ranks
            self.are_awaited[rank] = True
            ends = [row for _, row in order.ranks[rank].ends.values()]
            order.ranks[rank].forget()
            if ends:
                row = clocks.joined([order.hosts[rank], *ends])
                clocks.seal(np.array([row]))
                order.hosts[rank] = row
        elif event.action == "ordered":
            (rank,) = event.ranks
            order.ranks[rank].order(event.launch)
        else:
            row = clocks.joined(order.hosts)
            for rank in event.ranks:
                low = rank * clocks.stride + (0 if self.are_awaited[rank] else last)
                clocks.rows[row, :, low : (rank + 1) * clocks.stride] = stamp
            clocks.seal(np.array([row]))
            order.hosts = [row] * len(order.hosts)

    def host_access(self, event: HostAccess) -> None:
        self.settle_copies()
        actor = event.rank << RANK_SHIFT | BLOCK_MASK << BLOCK_SHIFT | HOST_CODE
        key = (-1, 0, event.action)
        if key not in self.infos:
            number, write = len(self.accesses.infos), event.action == "write"
            text = f"the host's {event.action}"
            made = Info(number, None, None, write, False, False, False, False, SYS, HOST, 1, text)
            self.accesses.note(made)
            self.infos[key] = made
        info = self.infos[key]
        self.accesses.tick(info)
        shadow, shift = self._place(int(self.space.granules[event.index // self.space.granule_bytes]))
        start = event.index - shift
        shadow.refine((start | event.size_bytes | 16) & -(start | event.size_bytes | 16))
        count = event.size_bytes // shadow.unit
        if not count:
            return
        row = np.array([self.order.hosts[event.rank]])
        zeros = np.zeros((self.order.clocks.parts, 1), np.int64)
        held = Held(row, np.array([actor]), zeros, zeros[0], np.full_like(zeros, self.accesses.stamp))
        offsets = start + np.arange(count) * shadow.unit
        who, actors = Many(held, np.zeros(count, np.int64)), np.broadcast_to(np.int64(actor), count)
        self.accesses.touch(shadow, who, offsets, shadow.unit, True, info, actors)


def _enter(one: UnderWay, info: Info, shadow: Shadow, places: Any, actor: int, unit: int, lanes: Numbers) -> None:
    """Note what a copy entered at places; actor, unit: the first ones."""
    kept = Kept(WRITE, info.is_strong)
    if not info.is_write:
        kept = Kept(READ, False, shadow.readers(actor >> RANK_SHIFT, unit))
    one.entered.append((kept, shadow, places, shadow.unit, lanes))


def _target_blocks(one: UnderWay, event: CopyMoment, is_read: bool = False) -> list[int]:
    """Return the numbers within its launch of the blocks whose shared memory a copy reads, or writes."""
    block, grid = int(one.lanes[0]) // one.run.launched.block, one.run.launched.grid
    if is_read or not event.target_blocks:
        return [block]
    return [block // grid * grid + other for other in event.target_blocks]


def _aligned(begin: int, size: int) -> list[tuple[int, int]]:
    """Return the parts of a stretch of bytes: whole units of bulk copies in one, the ends by powers of two."""
    parts, end = [], begin + size
    while begin < end:
        width = min(begin & -begin if begin else _COPY_UNIT, _COPY_UNIT, 1 << (end - begin).bit_length() - 1)
        if width == _COPY_UNIT:
            width = (end - begin) // width * width
        parts.append((begin, width))
        begin += width
    return parts


def _element(instruction: Instruction, width: int) -> int:
    """Return the bytes of an element of a vector, of width bytes in all, or in a part of it."""
    return width // (instruction.elements // 2 if instruction.part else instruction.elements)


def _tiles(entered: list[tuple[Any, int]], units: int) -> Tiles | None:
    """Return what copies entered, slices of units that have become a number of units each, if all are of one size."""
    if not all(isinstance(places, slice) for places, _ in entered):
        return None
    firsts = np.array([places.start * factor for places, factor in entered])
    sizes = {(places.stop - places.start) * factor for places, factor in entered}
    return Tiles.of(firsts, sizes.pop(), units) if len(sizes) == 1 else None


def _in_units(places: Any, factor: int) -> Numbers:
    """Return the numbers of units that have become `factor` each."""
    if isinstance(places, Tiles):
        places = places.units(np.arange(len(places.firsts) * places.each))
    units: Numbers = np.arange(places.start, places.stop) if isinstance(places, slice) else places
    return (units[:, None] * factor + np.arange(factor)).ravel() if factor > 1 else units


def _turns(units: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each unit how many equal ones come before it, and the position of the last of these (else its own)."""
    order = np.argsort(units, kind="stable")
    ordered, positions = units[order], np.arange(len(units))
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    turns, former = np.empty(len(units), np.int64), np.empty(len(units), np.int64)
    turns[order] = positions - np.maximum.accumulate(np.where(starts, positions, 0))
    former[order] = np.where(starts, order, order[positions - 1])
    return turns, former
