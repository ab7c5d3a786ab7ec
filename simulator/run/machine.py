"""Runs basic blocks of one launch for groups of lanes, and keeps account of where every lane is.

A batch is one launch of the same kernel on several ranks at once; a lane is one thread of it, numbered by rank,
block and thread. Lanes wait at a block (ready), at a barrier, asleep in a spin that can't end until memory changes,
or are done.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from memory.fabric import DeviceFault, Dimensions, Launch, Place
from simulator.isa.registry import LaneFrame, Lanes
from simulator.memory.space import LaneFault, Space, View
from simulator.observe.events import BarrierArrived, BarrierCompleted, LaunchEnded, Stepped, tell
from simulator.observe.lanes import Clusters, Group, Ids, Launched, coordinate, ids_of
from simulator.ptx.ir import Instruction, Kernel
from simulator.run.barriers import Barrier
from simulator.run.calls import Calls, address_of
from simulator.run.decode import CHUNK_LANES, BlockStep, Exit, Program, decode, parameter_offsets, shared_bytes_of
from simulator.run.groups import compact, merge, split
from simulator.run.meetings import NumberedBarriers, Warps

if TYPE_CHECKING:
    from simulator.run.cluster_barriers import ClusterBarriers
    from simulator.run.copies import Copies
    from simulator.run.mbarriers import Mbarriers
    from simulator.run.queued import Queued
    from simulator.run.residency import Places
    from simulator.run.tensor_cores import TensorCores
    from simulator.run.warpgroups import Warpgroups

WORKSPACE_HALVES = {"%envreg1": 32, "%envreg2": 0}
"""The registers that hold the workspace of a cooperative launch, with the lowest bit that each has of its address."""
SPIN_PATIENCE = 12
"""How often a spin loop is run before its registers are watched: short data loops never pay for the watching."""
_INTERNAL = (ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError, ArithmeticError)
"""What an instruction raises only by a mistake of the simulator."""
MAX_WARPS = 64
"""Warps of a multiprocessor: what %nwarpid reads."""


@dataclass(slots=True)
class Spin:
    """What each lane's registers and the memory's version were when it last came back to a spin loop's start."""

    visits: int = 0
    version: Ids | None = None
    kept: dict[int, Lanes] = field(default_factory=dict)


class Scratch:
    """Arrays of one chunk of lanes for registers that live within a block. One set serves all kernels of a world."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[str, int], Lanes] = {}

    def array(self, dtype: str, number: int) -> Lanes:
        key = (dtype, number)
        if key not in self.arrays:
            self.arrays[key] = np.zeros(CHUNK_LANES, dtype)
        return self.arrays[key]


class _Nothing:
    """In place of both in a kernel that has neither mbarriers nor copies."""

    under_way: tuple[()] = ()
    objects: tuple[()] = ()
    asked = -1


def _asynchronous(batch: Batch) -> tuple[Mbarriers, Copies]:
    """Return the mbarriers of a batch, and the copies that go on while threads do."""
    steps = batch.program.steps
    instructions = (one for step in steps for one in (*step.instructions, step.exit.instruction) if one is not None)
    if not any(one.opcode in ("cp", "mbarrier", "tcgen05") or "async" in one.qualifiers for one in instructions):
        return cast("Mbarriers", _Nothing()), cast("Copies", _Nothing())
    from simulator.run.copies import Copies
    from simulator.run.mbarriers import Mbarriers

    mbarriers = Mbarriers(batch.shared.shape[1], batch.shared.shape[0])
    # A proxy: a cycle would keep the registers of all lanes until some later garbage collection.
    return mbarriers, Copies(weakref.proxy(batch), mbarriers)


class Batch:
    """One launch, on the ranks in `ranks` (ascending).

    queued[i] is the launch of ranks[i]; all are of one kind. Blocks and threads are numbered in order of x, then y,
    then z. places: those that its blocks have on the ranks' GPUs; None: all blocks are there at once, each on a
    multiprocessor of its own. is_by_block: see decode.
    """

    def __init__(
        self,
        space: Space,
        scratch: Scratch,
        ranks: list[int],
        queued: list[Queued],
        multimem: str,
        places: Places | None = None,
        is_by_block: bool = True,
    ) -> None:
        executable, launch = queued[0].executable, queued[0].launch
        arguments, numbers = [one.arguments for one in queued], [one.number for one in queued]
        self.space, self.scratch, self.executable, self.multimem = space, scratch, executable, multimem
        self.program: Program = decode(executable.ptx, executable.entry, is_by_block)
        self.launch = launch
        self.ranks, self.grid, self.block = ranks, launch.blocks, launch.threads
        self.threads = self.grid * self.block  # of one rank
        self.lanes = len(ranks) * self.threads
        clusters = clusters_of(self.program.kernel, launch)
        self.cluster = clusters.size  # blocks
        shape = (self.grid, self.block, clusters, launch.stream, executable.assumptions)
        self.launched = Launched(executable.name, tuple(ranks), tuple(numbers), *shape)
        self._arguments, self.places = arguments, places
        self._parameters: dict[tuple[int, int, str], Lanes] = {}
        self.shared_bytes = shared_bytes_of(self.program.kernel, launch)
        self.shared, self.shared_start = space.make_shared(len(ranks) * self.grid, max(self.shared_bytes, 1) + 15 & ~15)
        self.shared_written = np.zeros(self.shared.shape, np.bool_)
        self.parameter_rows = self._parameter_rows(arguments)
        self.warpgroups: Warpgroups | None = None
        self.mbarriers, self.copies = _asynchronous(self)
        self.kept: dict[int, Lanes] = {slot: np.zeros(self.lanes, dtype) for slot, dtype in self.program.kept.items()}
        self.constants = list(self.program.constants)
        self._specials()
        kernel = self.program.kernel
        by_address = {address_of(one.number): one for one in kernel.functions if one.first >= 0}
        self.calls = Calls(
            weakref.proxy(self), kernel.frame_bytes, self.program.sites, by_address, self.program.parameter_slots
        )
        self.ready: dict[int, list[Group]] = {kernel.first: [range(self.lanes)]}
        if places is not None:
            self.ready = {kernel.first: [self._placed(places.begin())]}
        self.asleep: list[tuple[int, Group, int]] = []
        units = {"block", *(step.exit.unit for step in self.program.steps if step.exit.unit)}
        self.barriers = {unit: Barrier(unit, self.block, self.lanes) for unit in sorted(units)}
        self.meets = any(step.exit.kind in ("collective", "numbered") for step in self.program.steps)
        self.warps = Warps(self.block, self.lanes if self.meets else 0)
        self.numbered = NumberedBarriers(self.warps, self.barriers["block"].alive)
        if any(step.exit.kind == "warpgroup" for step in self.program.steps):
            from simulator.run.warpgroups import Warpgroups

            self.warpgroups = Warpgroups(space, self.launched, self.program.fragments)
        self.tensor_cores: TensorCores | None = None
        if self.program.has_tensor_memory:
            from simulator.run.tensor_cores import TensorCores

            self.tensor_cores = TensorCores(weakref.proxy(self))
        self.in_clusters: ClusterBarriers | None = None
        if any(step.exit.kind == "cluster" for step in self.program.steps):
            from simulator.run.cluster_barriers import ClusterBarriers

            self.in_clusters = ClusterBarriers(self.launched)
        self.begun = np.zeros(len(self.alive), np.bool_) if self.cluster > 1 else None  # blocks, by number
        self.rank_alive = dict.fromkeys(ranks, self.threads)
        self.spins: dict[int, Spin] = {}
        self.last_run: dict[int, int] = {}
        self.steps = 0
        self._templates: dict[BlockStep, list[Any]] = {}
        # What orders by access need, see isa/tearing.py and run/adversary.py.
        self.tear = 1  # which elements of a vector access come first
        self.torn = np.zeros(0, np.uint8)  # for each lane those that have come, as bits
        self.held_until = np.zeros(0, np.int64)  # the turn until which the adversary holds each lane back
        self._rank_of = np.array(ranks, np.int64)
        self._base_of = np.array([space.base(rank) for rank in ranks], np.uint64)

    def parameter(self, position: int, offset_bytes: int, dtype: str) -> Lanes:
        """Return what of a parameter begins at an offset, as one value of dtype for each rank number."""
        key = (position, offset_bytes, dtype)
        found = self._parameters.get(key)
        if found is None:
            found = self._parameters[key] = np.zeros(max(self.ranks) + 1, dtype)
            for rank, contents in zip(self.ranks, self._arguments, strict=True):
                found[rank] = np.frombuffer(contents[position], dtype, 1, offset_bytes)[0]
        return found

    def _specials(self) -> None:
        clusters = self.launched.clusters
        uniform = {
            **{f"%nctaid.{axis}": count for axis, count in zip("xyz", self.launch.grid, strict=True)},
            **{f"%ntid.{axis}": count for axis, count in zip("xyz", self.launch.block, strict=True)},
            "%nwarpid": MAX_WARPS,
            "%nsmid": self.grid if self.places is None else self.places.resident.gpu.multiprocessors,
            "%dynamic_smem_size": self.launch.shared_bytes,
            **{f"%nclusterid.{axis}": count for axis, count in zip("xyz", clusters.extent, strict=True)},
            **{f"%cluster_nctaid.{axis}": count for axis, count in zip("xyz", clusters.shape, strict=True)},
            "%cluster_nctarank": clusters.size,
            "%is_explicit_cluster": clusters.is_explicit,
        }
        block, thread = np.divmod(np.arange(self.threads, dtype=np.uint32), np.uint32(self.block))
        for slot, name in self.program.specials.items():
            if name.startswith("&"):
                variable, _, offset = name[1:].rpartition("+")
                if variable[:1] == ".":
                    from simulator.isa.spaces import CLUSTER_SHIFT, FIRST_TAG

                    tags = clusters.ranks_of(block.astype(np.int64)) + FIRST_TAG
                    own = ((tags << CLUSTER_SHIFT) + int(offset)).astype(variable[1:])
                    self.kept[slot] = np.tile(own, len(self.ranks))
                    continue
                addresses = [self._variable_address(rank, variable) + int(offset) for rank in self.ranks]
                self.kept[slot] = np.repeat(np.array(addresses, np.uint64), self.threads)
            elif name in uniform:
                kind = np.bool_ if name == "%is_explicit_cluster" else np.uint32
                self.constants.append((slot, np.array([uniform[name]], kind)))
            elif name == "%gridid":
                self.kept[slot] = np.repeat(np.array(self.launched.numbers, np.uint64) + np.uint64(1), self.threads)
            elif name in WORKSPACE_HALVES:
                halves = [self._workspace_address(rank) >> WORKSPACE_HALVES[name] & 0xFFFFFFFF for rank in self.ranks]
                self.kept[slot] = np.repeat(np.array(halves, np.uint32), self.threads)
            else:
                self.kept[slot] = np.tile(self._special(name, block, thread), len(self.ranks))

    def _parameter_rows(self, arguments: list[tuple[bytes, ...]]) -> Lanes:
        """The parameters as a kernel finds them in memory, a row a rank."""
        kernel = self.program.kernel
        offsets = parameter_offsets(kernel)
        size = max((at + one.size_bytes for one, at in zip(kernel.parameters, offsets, strict=True)), default=0)
        rows = np.zeros((len(arguments), size + 15 & ~15), np.uint8)
        for row, contents in zip(rows, arguments, strict=True):
            for at, content in zip(offsets, contents, strict=True):
                row[at : at + len(content)] = np.frombuffer(content, np.uint8)
        return rows

    def _variable_address(self, rank: int, name: str) -> int:
        from simulator.run.variables import variable_of

        allocation = variable_of(self.space, self.executable, self.program.kernel, rank, name)
        return self.space.address(rank, allocation)

    def _workspace_address(self, rank: int) -> int:
        """Where the blocks of a cooperative launch meet; 0 for others: then a barrier of the grid stops the kernel."""
        if not self.launch.cooperative:
            return 0
        from simulator.run.variables import workspace_of

        return self.space.address(rank, workspace_of(self.space, self.executable, rank))

    def _special(self, name: str, block: Lanes, thread: Lanes) -> Lanes:
        """A special register that differs among the threads of a rank, from their numbers of block and thread."""
        if name == "%smid":
            return block
        if name.startswith("%lanemask"):
            return lane_mask(name.rpartition("_")[2], thread % np.uint32(32))
        if name in ("%laneid", "%warpid"):
            return thread % np.uint32(32) if name == "%laneid" else thread // np.uint32(32)
        clusters = self.launched.clusters
        if name == "%cluster_ctarank":
            ranks: Lanes = clusters.ranks_of(block)
            return ranks
        number, extent = (thread, self.launch.block) if name.startswith("%tid") else (block, self.launch.grid)
        if name.startswith("%clusterid"):
            number, extent = clusters.numbers_of(block), clusters.extent
        elif name.startswith("%cluster_ctaid"):
            number, extent = clusters.ranks_of(block), clusters.shape
        found: Lanes = coordinate(number, extent, "xyz".index(name[-1]))
        return found

    # Lanes

    @property
    def alive(self) -> Ids:
        """Threads by block that haven't returned."""
        return self.barriers["block"].alive

    def blocks_of(self, ids: Any) -> Lanes:
        """The number of each lane's block within the batch (rank position * grid + block)."""
        out: Lanes = ids_of(ids) // self.block
        return out

    def place(self, lane: int) -> tuple[int, int, int]:
        """Rank, block and thread of a lane."""
        return self.launched.place(lane)

    def block_name(self, block: int) -> str:
        """Return "block 5", and its x, y and z where the grid has more than x: "block 5 (1, 2, 0)"."""
        return f"block {block}{_beyond_x(block, self.launch.grid)}"

    def name(self, lane: int) -> str:
        """Return "rank 1, block 5, thread 33", with x, y and z of what has more than x."""
        rank, block, thread = self.place(lane)
        return f"rank {rank}, {self.block_name(block)}, thread {thread}{_beyond_x(thread, self.launch.block)}"

    def launch_name(self, rank: int) -> str:
        """Return "launch 2 on the default stream" or "launch 2 on stream 7": which of its rank's launches it is."""
        stream = self.launch.stream
        where = "the default stream" if stream is None else f"stream {stream}"
        return f"launch {self.launched.number_on(rank)} on {where}"

    def narrow(self, frame: LaneFrame, some: Ids, slots: list[int]) -> LaneFrame:
        """The same frame with only some of its lanes (positions in the frame), of the registers in slots."""
        ids = ids_of(frame.view.lanes)[some]
        regs = frame.regs[:]
        for slot in slots:
            if regs[slot].shape[0] == frame.count:
                regs[slot] = regs[slot][some]
        return LaneFrame(regs, len(some), self._view(ids), self)

    def _view(self, ids: Group) -> View:
        first, last = int(ids[0]) // self.threads, int(ids[-1]) // self.threads
        if first == last:
            rank = self.ranks[first]
            return View(self.space.base(rank), rank, self.launched, ids)
        positions = self.launched.positions_of(ids)
        return View(self._base_of[positions], self._rank_of[positions], self.launched, ids)

    # Running

    def run(self, index: int, group: Group, step: BlockStep | None = None) -> None:
        """Run the block for the group and send its lanes on. Raises DeviceFault naming the lane that did wrong.

        step: what to run in place of the whole block, one of Program.reach.
        """
        if step is None:
            step = self.program.steps[index]
        self.steps += 1
        self.last_run[index] = self.steps
        events = self.space.events
        if events.stepped:
            tell(events.stepped, Stepped(self.launched, group, events.step, index, step.count))
        if self.begun is not None:
            self.begun[self.blocks_of(group)] = True
        masks: list[Lanes] = []
        for chunk in self._chunks(group):
            masks.append(self._run_chunk(step, chunk))
        way_out = step.exit
        if way_out.predicate >= 0:
            yes, no = split(group, masks)
            if way_out.kind == "branch" and yes is not None:
                self.arrive(way_out.taken, yes, back=way_out.taken <= index)
            if no is not None:
                self.arrive(way_out.fallthrough, no, back=False)
            if yes is None or way_out.kind == "branch":
                return
            group = yes
        self._leave_step(index, way_out, group)

    def _leave_step(self, index: int, way_out: Exit, group: Group) -> None:
        """Send a step's lanes on, all of them the same way."""
        if way_out.kind == "jump":
            self.arrive(way_out.taken, group, back=way_out.taken <= index)
        elif way_out.kind == "barrier":
            self._meet(way_out, group)
        elif way_out.kind == "wait":
            assert way_out.instruction is not None
            from simulator.run.copies import Waiting

            self.copies.wait(Waiting(way_out.taken, group, way_out.instruction))
        elif way_out.kind == "collective":
            self._collect(way_out, group)
        elif way_out.kind == "warpgroup":
            self._gather(way_out, group)
        elif way_out.kind == "numbered":
            self._come(way_out, group)
        elif way_out.kind == "cluster":
            self._come_to_cluster(way_out, group)
        elif way_out.kind == "call":
            assert way_out.site is not None
            self.calls.call(way_out.site.number, group)
        elif way_out.kind == "leave":
            self.calls.leave(group)
        elif way_out.kind == "table":
            self._look_up(way_out, group)
        else:
            self._done(group)

    def _values(self, slot: int, lanes: Ids) -> Ids:
        """A register's or a literal's values as numbers."""
        return self._operand(slot, False, lanes).astype(np.int64)

    def _collect(self, way_out: Exit, group: Group) -> None:
        """Lanes come to what some lanes of their warp do together."""
        end = way_out.instruction
        assert end is not None
        lanes = ids_of(group)
        is_barrier = end.opcode == "bar"
        if is_barrier:
            self._tell_arrived(group, end, "warp")
        with self.blaming(lanes, end):
            ready = self.warps.arrive(way_out, group, self._values(way_out.slot, lanes))
        self._together(ready)

    def _gather(self, way_out: Exit, group: Group) -> None:
        """Threads come to what their warpgroup does together."""
        assert self.warpgroups is not None
        with self.blaming(group, way_out.instruction):
            lanes = self.warpgroups.arrive(way_out, group)
        if len(lanes):
            self._run_meeting([(way_out, lanes)])
            self.arrive(way_out.taken, compact(lanes))

    def _together(self, ready: list[tuple[Exit, Ids]]) -> None:
        """Run what lanes do together, all of them by one instruction, and send them on."""
        barrier = [lanes for way_out, lanes in ready if way_out.run is None]
        if barrier:
            self._tell_completed(merge([compact(lanes) for lanes in barrier]), "warp")
        self._run_meeting(ready)
        for way_out, lanes in ready:
            going = lanes if self.tensor_cores is None else self.tensor_cores.settle(way_out.taken, lanes)
            if len(going):
                self.arrive(way_out.taken, compact(going))

    def _run_meeting(self, ready: list[tuple[Exit, Ids]]) -> None:
        """Run what lanes or threads do together, if it is more than to wait."""
        if not ready or ready[0][0].run is None:
            return
        if len(ready) > 1:
            self._run_common(ready)
            return
        ((way_out, lanes),) = ready
        assert way_out.run is not None
        regs: list[Any] = [None] * self.program.slots
        for slot, values in self.constants:
            regs[slot] = values
        first, last = int(lanes[0]), int(lanes[-1])
        at: Any = slice(first, last + 1) if last - first + 1 == len(lanes) else lanes
        for slot in way_out.reads:
            regs[slot] = self.kept[slot][at]
        assert way_out.instruction is not None
        try:
            with self.blaming(lanes, way_out.instruction):
                way_out.run(LaneFrame(regs, len(lanes), self._view(compact(lanes)), self))
        except _INTERNAL as error:
            raise self.fault(int(lanes[0]), _internal(error), way_out.instruction) from error
        for slot in way_out.writes if at is lanes else ():
            self.kept[slot][lanes] = regs[slot]

    def _run_common(self, ready: list[tuple[Exit, Ids]]) -> None:
        """The same of lanes that came from several places, each with registers of its own."""
        common = ready[0][0].common
        assert common is not None
        lanes = np.concatenate([some for _, some in ready])
        order = np.argsort(lanes, kind="stable")
        regs: list[Any] = []
        for number, kind in enumerate(common.kinds):
            parts = [self._operand(*way_out.sources[number], some) for way_out, some in ready]
            regs.append(np.concatenate(parts).astype(kind, copy=False)[order])
        regs += [np.zeros(len(lanes), kind) for kind in common.results]
        common.run(LaneFrame(regs, len(lanes), self._view(compact(lanes[order])), self))
        back = np.empty_like(order)
        back[order] = np.arange(len(lanes))
        start = 0
        for way_out, some in ready:
            mine = back[start : start + len(some)]
            start += len(some)
            for slot, values in zip(way_out.results, regs[len(common.kinds) :], strict=False):
                if slot >= 0:
                    self.kept[slot][some] = values[mine]

    def _operand(self, slot: int, is_negated: bool, lanes: Ids) -> Lanes:
        """What lanes bring to a meeting: a register's or a literal's values."""
        found = self.kept[slot][lanes] if slot in self.kept else dict(self.constants)[slot]
        values: Lanes = np.broadcast_to(found, len(lanes))
        return ~values if is_negated else values

    def _come(self, way_out: Exit, group: Group) -> None:
        """Threads come to a numbered barrier of their block."""
        end = way_out.instruction
        assert end is not None
        lanes = ids_of(group)
        numbers = self._values(way_out.slot, lanes)
        self._tell_arrived(group, end, "block", numbers)
        counts = self._values(way_out.count_slot, lanes) if way_out.count_slot >= 0 else np.zeros(len(lanes), np.int64)
        with self.blaming(lanes, end):
            released = self.numbered.arrive(way_out, group, numbers, counts, way_out.waits)
        if not way_out.waits:
            self.arrive(way_out.taken, group)
        self._release_numbered(released)

    def _release_numbered(self, released: list[tuple[int, list[tuple[Exit, Ids]]]]) -> None:
        """Threads go on from numbered barriers that are complete, each with its number."""
        following: dict[int, list[Ids]] = {}
        for number, waiting in released:
            if not waiting:
                continue
            whole = merge([lanes for _, lanes in waiting])
            self._tell_completed(compact(ids_of(whole)), "block", np.full(len(whole), number))
            self._run_meeting(_by_way(waiting))
            for one, lanes in waiting:
                following.setdefault(one.taken, []).append(lanes)
        for index, parts in following.items():
            self.arrive(index, merge([*parts]))

    def _come_to_cluster(self, way_out: Exit, group: Group) -> None:
        """Threads arrive at their cluster's barrier and go on, or wait there."""
        end = way_out.instruction
        assert end is not None
        assert self.in_clusters is not None
        with self.blaming(group, end):
            if way_out.waits:
                released = self.in_clusters.wait(way_out, group)
            else:
                self._tell_arrived(group, end, "cluster", self.in_clusters.phases_of(group))
                released = self.in_clusters.arrive(group)
        if not way_out.waits:
            self.arrive(way_out.taken, group)
        self._go_on("cluster", released)

    def _tell_arrived(self, group: Group, instruction: Instruction, unit: str, numbers: Ids | None = None) -> None:
        events = self.space.events
        if events.barrier_arrived:
            tell(events.barrier_arrived, BarrierArrived(self.launched, group, events.step, instruction, unit, numbers))

    def _tell_completed(self, group: Group, unit: str, numbers: Ids | None = None) -> None:
        events = self.space.events
        if events.barrier_completed:
            if unit == "cluster" and self.in_clusters is not None:
                numbers = self.in_clusters.phases_of(group) - 1
            tell(events.barrier_completed, BarrierCompleted(self.launched, group, events.step, unit, numbers))

    def _look_up(self, way_out: Exit, group: Group) -> None:
        """brx.idx: each lane goes where the table says."""
        lanes = ids_of(group)
        numbers = self.kept[way_out.slot][lanes]
        for number in np.unique(numbers).tolist():
            some = lanes[numbers == number]
            if number >= len(way_out.table):
                assert way_out.instruction is not None
                text = f"a branch by index {number} into a table of {len(way_out.table)} labels"
                raise self.fault(int(some[0]), text, way_out.instruction)
            self.arrive(way_out.table[number], compact(some))

    def note_torn(self, lanes: Group, elements: int) -> None:
        """Note for lanes which elements of their vector access have come, as bits."""
        if not len(self.torn):
            self.torn = np.zeros(self.lanes, np.uint8)
        self.torn[ids_of(lanes)] = elements

    def _chunks(self, group: Group) -> list[Group]:
        """Pieces of at most CHUNK_LANES; of big launches none crosses ranks, which makes their accesses simple."""
        if isinstance(group, range):
            if len(group) <= CHUNK_LANES and (
                self.threads < 1024 or group.start // self.threads == (group.stop - 1) // self.threads
            ):
                return [group]
            cuts = {group.start}
            unit = self.threads if self.threads >= 1024 else self.lanes
            for start in [group.start, *range((group.start // unit + 1) * unit, group.stop, unit)]:
                cuts.update(range(start, min(group.stop, (start // unit + 1) * unit), CHUNK_LANES))
            return [range(low, high) for low, high in pairwise([*sorted(cuts), group.stop])]
        if len(group) >= 2048:
            breaks = np.flatnonzero(np.diff(group) != 1) + 1
            if len(group) >= 1024 * (len(breaks) + 1):
                edges = [0, *breaks.tolist(), len(group)]
                runs = [range(int(group[low]), int(group[high - 1]) + 1) for low, high in pairwise(edges)]
                return [chunk for run in runs for chunk in self._chunks(run)]
        return [group[start : start + CHUNK_LANES] for start in range(0, len(group), CHUNK_LANES)]

    def _template(self, step: BlockStep) -> list[Any]:
        found = self._templates.get(step)
        if found is None:
            found = [None] * self.program.slots
            for slot, values in self.constants:
                found[slot] = values
            for slot, dtype, number in step.local:
                found[slot] = self.scratch.array(dtype, number)
            self._templates[step] = found
        return found

    def _run_chunk(self, step: BlockStep, chunk: Group) -> Lanes:
        """Run the block's functions; the predicate of its exit comes back (an empty array where it has none)."""
        count = len(chunk)
        regs = self._template(step)[:]
        if count != CHUNK_LANES:
            for slot, _, _ in step.local:
                regs[slot] = regs[slot][:count]
        kept = self.kept
        whole = isinstance(chunk, range)
        if isinstance(chunk, range):
            start, stop = chunk.start, chunk.stop
            for slot in step.kept_reads:
                regs[slot] = kept[slot][start:stop]
        else:
            for slot in step.kept_reads:
                regs[slot] = kept[slot].take(chunk)
        frame = LaneFrame(regs, count, self._view(chunk), self)
        position = 0
        try:
            for run in step.runs:
                run(frame)
                position += 1
        except LaneFault as fault:
            lane, instruction = int(chunk[fault.lane]), step.instructions[position]
            raise self.fault(lane, fault.message, instruction, fault.kind) from None
        except _INTERNAL as error:
            raise self.fault(int(chunk[0]), _internal(error), step.instructions[position]) from error
        if not whole:
            for slot in step.kept_writes:
                kept[slot][chunk] = regs[slot]
        if step.exit.predicate < 0:
            return np.empty(0, np.bool_)
        mask = regs[step.exit.predicate]
        taken: Lanes = ~mask if step.exit.negated else mask.copy()
        return taken

    @contextmanager
    def blaming(self, lanes: Group, instruction: Instruction | None) -> Iterator[None]:
        """What goes wrong within is a lane's among these."""
        try:
            yield
        except LaneFault as fault:
            assert instruction is not None
            raise self.fault(int(lanes[fault.lane]), fault.message, instruction, fault.kind) from None

    def fault(
        self, lane: int, message: str, instruction: Instruction, kind: type[DeviceFault] = DeviceFault
    ) -> DeviceFault:
        """The error that names a lane and what it did wrong in which instruction."""
        text = f"{self.executable.name} on {self.name(lane)}: {message}; {instruction.where()}"
        return kind(text, rank=self.place(lane)[0], places=[self.place_at(lane, instruction)])

    def place_at(self, lane: int, instruction: Instruction | None) -> Place:
        """A lane at an instruction, for what reads errors."""
        source = instruction.source.nearest if instruction is not None and instruction.source is not None else ""
        rank, block, thread = self.place(lane)
        launch = (self.launched.number_on(rank), self.launch.stream)
        return Place(rank, block, thread, instruction.line if instruction is not None else 0, source, *launch)

    # Where lanes go

    def arrive(self, index: int, group: Group, back: bool = False) -> None:
        """Send lanes to a block; back says that they come there again."""
        if back and index in self.program.spin_headers:
            stuck, moving = self._watch(index, group)
            if stuck is not None:
                self.asleep.append((index, stuck, self.space.version))
            if moving is None:
                return
            group = moving
        self.ready.setdefault(index, []).append(group)

    def _watch(self, index: int, group: Group) -> tuple[Group | None, Group | None]:
        """Which lanes can't leave the spin before memory changes, and which may."""
        spin = self.spins.setdefault(index, Spin())
        spin.visits += 1
        if spin.visits < SPIN_PATIENCE:
            return None, group
        slots = self.program.spin_headers[index]
        if spin.version is None:
            spin.version = np.full(self.lanes, -1, np.int64)
            spin.kept = {slot: np.zeros_like(self.kept[slot]) for slot in slots}
        at: Any = slice(group.start, group.stop) if isinstance(group, range) else group
        same = spin.version[at] == self.space.version
        for slot in slots:
            if not same.any():
                break
            same &= spin.kept[slot][at] == self.kept[slot][at]
        if index in self.program.voting_spins:
            same = self._of_whole_warps(group, same)
        spin.version[at] = self.space.version
        for slot in slots:
            spin.kept[slot][at] = self.kept[slot][at]
        return split(group, [same])

    def _of_whole_warps(self, group: Group, stuck: Lanes) -> Lanes:
        """Which lanes are of warps all of whose living lanes are in the group and stuck."""
        warps = self.warps.warps_of(ids_of(group))
        count = np.bincount(warps[stuck], minlength=len(self.warps.alive))
        whole: Lanes = count[warps] == np.bitwise_count(self.warps.alive)[warps]
        return whole

    def wake(self) -> bool:
        """Sleepers whose memory changed since become ready. Says whether any did."""
        waking = [one for one in self.asleep if one[2] != self.space.version]
        if not waking:
            return False
        self.asleep = [one for one in self.asleep if one[2] == self.space.version]
        for index, group, _ in waking:
            version = self.spins[index].version
            assert version is not None
            at: Any = slice(group.start, group.stop) if isinstance(group, range) else group
            version[at] = self.space.version
            self.ready.setdefault(index, []).append(group)
        return True

    def _meet(self, way_out: Exit, group: Group) -> None:
        """Lanes come to a barrier."""
        assert way_out.instruction is not None
        self._tell_arrived(group, way_out.instruction, way_out.unit)
        self._go_on(way_out.unit, self.barriers[way_out.unit].arrive(way_out.taken, group))

    def _go_on(self, unit: str, released: list[tuple[int, Group]]) -> None:
        """Lanes go on from barriers that are complete."""
        if not released:
            return
        events = self.space.events
        if len({following for following, _ in released}) == 1:
            released = [(released[0][0], merge([group for _, group in released]))]
        if events.barrier_completed:
            self._tell_completed(merge([group for _, group in released]), unit)
        for following, group in released:
            self.arrive(following, group)

    def finish(self, rank: int, count: int) -> None:
        """Count threads or copies of a rank as over. The rank's launch ends with the last of them."""
        self.rank_alive[rank] -= count
        events = self.space.events
        if count and not self.rank_alive[rank] and events.launch_ended:
            tell(events.launch_ended, LaunchEnded(self.launched, rank, events.step))

    def _done(self, group: Group) -> None:
        counts = np.bincount(self.blocks_of(group), minlength=len(self.alive))
        by_rank = counts.reshape(len(self.ranks), self.grid).sum(axis=1)
        for rank, count in zip(self.ranks, by_rank.tolist(), strict=True):
            self.finish(rank, count)
        for unit, barrier in self.barriers.items():
            self._go_on(unit, barrier.leave(group))
        if self.meets:
            for ready in self.warps.leave(group):
                self._together(ready)
            self._release_numbered(self.numbered.leave(group))
        if self.warpgroups is not None and (left := self.warpgroups.leave(group)):
            raise self.fault(*left)
        if self.in_clusters is not None:
            self._go_on("cluster", self.in_clusters.leave(group))
        if self.copies.under_way:
            self.copies.ended(group)
        if self.tensor_cores is not None:
            self.tensor_cores.ended(group)
        if self.places is not None and not self.places.all_fit:
            blocks = np.unique(self.blocks_of(group))
            came = self.places.leave(blocks[self.alive[blocks] == 0])
            if len(came):
                self.arrive(self.program.kernel.first, self._placed(came))

    def _placed(self, blocks: Ids) -> Group:
        """The lanes of blocks that have become resident."""
        assert self.places is not None
        lanes = compact((blocks[:, None] * self.block + np.arange(self.block)).ravel())
        for slot, name in self.program.specials.items():
            if name == "%smid":
                self.kept[slot][ids_of(lanes)] = np.repeat(self.places.multiprocessors[blocks], self.block)
        return lanes

    def take(self, index: int) -> Group:
        """Remove and merge all lanes that are ready at a block."""
        return merge(self.ready.pop(index))


def _by_way(waiting: list[tuple[Exit, Ids]]) -> list[tuple[Exit, Ids]]:
    """The same lanes with all of a way out together, ascending."""
    ways = {id(way_out): way_out for way_out, _ in waiting}
    found = []
    for key, way_out in ways.items():
        found.append((way_out, ids_of(merge([lanes for one, lanes in waiting if id(one) == key]))))
    return found


def _internal(error: Exception) -> str:
    """What to say of an exception that no instruction may raise."""
    return f"internal error of the simulator ({type(error).__name__}: {error}): report it"


def clusters_of(kernel: Kernel, launch: Launch) -> Clusters:
    """Return the clusters of a launch: those that it names, else those that the kernel is compiled for."""
    shape = kernel.required_cluster or launch.cluster
    is_explicit = kernel.is_explicit_cluster or kernel.required_cluster is not None or math.prod(shape) > 1
    return Clusters(launch.grid, shape, is_explicit)


def lane_mask(word: str, lane: Lanes) -> Lanes:
    """Return %lanemask_eq, lt, le, gt or ge of lanes of a warp."""
    one = np.left_shift(np.uint64(1), lane.astype(np.uint64))
    below = one - np.uint64(1)
    found = {"eq": one, "lt": below, "le": below | one, "gt": ~(below | one), "ge": ~below}[word]
    return (found & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _beyond_x(number: int, extent: Dimensions) -> str:
    """ " (x, y, z)" of a linear number where there is more than x, else ""."""
    return f" {tuple(coordinate(number, extent, axis) for axis in range(3))}" if extent[1:] != (1, 1) else ""
