"""Runs basic blocks of one launch for groups of lanes, and keeps account of where every lane is.

A batch is one launch of the same kernel on several ranks at once; a lane is one thread of it, numbered by rank,
block and thread. Lanes wait at a block (ready), at a barrier, asleep in a spin that can't end until memory changes,
or are done.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from memory.fabric import DeviceFault, Executable
from simulator.isa.registry import LaneFrame, Lanes
from simulator.memory.space import LaneFault, Space, View
from simulator.ptx.ir import Immediate, Instruction
from simulator.run.barriers import Barrier
from simulator.run.copies import Copies, Waiting
from simulator.run.decode import CHUNK_LANES, BlockStep, Program, decode
from simulator.run.groups import Group, Ids, ids_of, merge, split

SPIN_PATIENCE = 12
"""How often a spin loop is run before its registers are watched: short data loops never pay for the watching."""
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


class Batch:
    """One launch, on the ranks in `ranks` (ascending), of grid blocks of block threads.

    arguments[i] are those of ranks[i].
    """

    def __init__(
        self,
        space: Space,
        scratch: Scratch,
        executable: Executable,
        ranks: list[int],
        grid: int,
        block: int,
        arguments: list[tuple[int, ...]],
        multimem: str,
    ) -> None:
        self.space, self.scratch, self.executable, self.multimem = space, scratch, executable, multimem
        self.program: Program = decode(executable.ptx, executable.entry)
        required = self.program.kernel.required_threads
        if required not in (None, block):
            raise ValueError(f"{executable.name} is compiled for blocks of {required} threads, not {block} (.reqntid)")
        self.ranks, self.grid, self.block = ranks, grid, block
        self.threads = grid * block  # of one rank
        self.lanes = len(ranks) * self.threads
        self.parameters = self._bind(arguments)
        self.shared = np.zeros((len(ranks) * grid, max(self.program.kernel.shared_bytes, 1) + 15 & ~15), np.uint8)
        self.shared_written = np.zeros(self.shared.shape, np.bool_)
        # A proxy: a cycle would keep the registers of all lanes until some later garbage collection.
        self.copies = Copies(weakref.proxy(self))
        self.kept: dict[int, Lanes] = {slot: np.zeros(self.lanes, dtype) for slot, dtype in self.program.kept.items()}
        self.constants = list(self.program.constants)
        self._specials()
        self.ready: dict[int, list[Group]] = {0: [range(self.lanes)]}
        self.asleep: list[tuple[int, Group, int]] = []
        units = {"block", *(step.exit.unit for step in self.program.steps if step.exit.unit)}
        self.barriers = {unit: Barrier(unit, block, self.lanes) for unit in sorted(units)}
        self.rank_alive = dict.fromkeys(ranks, self.threads)
        self.spins: dict[int, Spin] = {}
        self.last_run: dict[int, int] = {}
        self.instructions = 0
        self.steps = 0
        self._templates: dict[int, list[Any]] = {}
        self._single: dict[int, View] = {rank: View(space.base(rank), rank) for rank in ranks}

    def _bind(self, arguments: list[tuple[int, ...]]) -> list[Lanes]:
        """Values of each parameter by rank number, so that a rank picks its own."""
        declared = self.program.kernel.parameters
        for values in arguments:
            if len(values) != len(declared):
                raise ValueError(f"{self.executable.name} takes {len(declared)} arguments, not {len(values)}")
        out = []
        for position, parameter in enumerate(declared):
            bits = int(parameter.type[1:])
            by_rank = np.zeros(max(self.ranks) + 1, f"u{bits // 8}")
            for rank, values in zip(self.ranks, arguments, strict=True):
                by_rank[rank] = values[position] & ((1 << bits) - 1)
            out.append(by_rank)
        return out

    def _specials(self) -> None:
        uniform = {
            "%nctaid.x": self.grid,
            "%ntid.x": self.block,
            "%nwarpid": MAX_WARPS,
            "%nsmid": self.grid,  # every block has a multiprocessor of its own
            **dict.fromkeys(("%nctaid.y", "%nctaid.z", "%ntid.y", "%ntid.z"), 1),
        }
        thread = np.arange(self.threads, dtype=np.uint32)
        values = {
            "%tid.x": thread % np.uint32(self.block),
            "%ctaid.x": thread // np.uint32(self.block),
            "%smid": thread // np.uint32(self.block),
            "%laneid": thread % np.uint32(self.block) % np.uint32(32),
            "%warpid": thread % np.uint32(self.block) // np.uint32(32),
        }
        for slot, name in self.program.specials.items():
            if name in values:
                self.kept[slot] = np.tile(values[name], len(self.ranks))
            else:
                self.constants.append((slot, np.array([uniform.get(name, 0)], np.uint32)))

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
        rank, rest = divmod(lane, self.threads)
        return (self.ranks[rank], *divmod(rest, self.block))

    def narrow(self, frame: LaneFrame, some: Ids, slots: list[int]) -> LaneFrame:
        """The same frame with only some of its lanes (positions in the frame), of the registers in slots."""
        ids = ids_of(frame.ids)[some]
        regs = frame.regs[:]
        for slot in slots:
            if regs[slot].shape[0] == frame.count:
                regs[slot] = regs[slot][some]
        return LaneFrame(regs, len(some), self._view(ids), self, ids)

    def _view(self, ids: Group) -> View:
        first, last = int(ids[0]) // self.threads, int(ids[-1]) // self.threads
        if first == last:
            return self._single[self.ranks[first]]
        positions = self.blocks_of(ids) // self.grid
        ranks = np.array(self.ranks, np.int64)[positions]
        bases = np.array([self.space.base(rank) for rank in self.ranks], np.uint64)[positions]
        return View(bases, ranks)

    # Running

    def run(self, index: int, group: Group) -> None:
        """Run the block for the group and send its lanes on. Raises DeviceFault naming the lane that did wrong."""
        step = self.program.steps[index]
        self.steps += 1
        self.last_run[index] = self.steps
        self.instructions += step.count * len(group)
        masks: list[Lanes] = []
        for chunk in self._chunks(group):
            masks.append(self._run_chunk(step, chunk))
        way_out = step.exit
        if way_out.kind == "jump":
            self.arrive(way_out.taken, group, back=way_out.taken <= index)
        elif way_out.kind == "branch":
            yes, no = split(group, masks)
            if yes is not None:
                self.arrive(way_out.taken, yes, back=way_out.taken <= index)
            if no is not None:
                self.arrive(way_out.fallthrough, no, back=False)
        elif way_out.kind == "barrier":
            self._go_on(self.barriers[way_out.unit].arrive(way_out.taken, group))
        elif way_out.kind == "wait":
            assert way_out.instruction is not None
            self.copies.wait(_waiting(way_out.taken, group, way_out.instruction))
        else:
            yes, no = split(group, masks) if way_out.predicate >= 0 else (group, None)
            if no is not None:
                self.arrive(way_out.fallthrough, no, back=False)
            if yes is not None:
                self._done(yes)

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
        found = self._templates.get(step.index)
        if found is None:
            found = [None] * self.program.slots
            for slot, values in self.constants:
                found[slot] = values
            for slot, dtype, number in step.local:
                found[slot] = self.scratch.array(dtype, number)
            self._templates[step.index] = found
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
        frame = LaneFrame(regs, count, self._view(chunk), self, chunk)
        position = 0
        try:
            for run in step.runs:
                run(frame)
                position += 1
        except LaneFault as fault:
            raise self.fault(int(frame.ids[fault.lane]), fault.message, step.instructions[position]) from None
        if not whole:
            for slot in step.kept_writes:
                kept[slot][chunk] = regs[slot]
        if step.exit.predicate < 0:
            return np.empty(0, np.bool_)
        mask = regs[step.exit.predicate]
        taken: Lanes = ~mask if step.exit.negated else mask.copy()
        return taken

    def fault(self, lane: int, message: str, instruction: Instruction) -> DeviceFault:
        """The error that names a lane and what it did wrong in which instruction."""
        rank, block, thread = self.place(lane)
        error = DeviceFault(
            f"{self.executable.name} on rank {rank}, block {block}, thread {thread}: {message}; {instruction.where()}"
        )
        error.rank = rank  # type: ignore[attr-defined]
        return error

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
        spin.version[at] = self.space.version
        for slot in slots:
            spin.kept[slot][at] = self.kept[slot][at]
        return split(group, [same])

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

    def _go_on(self, released: list[tuple[int, Group]]) -> None:
        for following, group in released:
            self.arrive(following, group)

    def _done(self, group: Group) -> None:
        counts = np.bincount(self.blocks_of(group), minlength=len(self.alive))
        by_rank = counts.reshape(len(self.ranks), self.grid).sum(axis=1)
        for rank, count in zip(self.ranks, by_rank.tolist(), strict=True):
            self.rank_alive[rank] -= count
        for barrier in self.barriers.values():
            self._go_on(barrier.leave(group))
        if self.copies.under_way:
            self.copies.ended(group)

    def take(self, index: int) -> Group:
        """Remove and merge all lanes that are ready at a block."""
        return merge(self.ready.pop(index))


def _waiting(following: int, group: Group, instruction: Instruction) -> Waiting:
    """What a cp.async.bulk.wait_group waits for."""
    allowed = instruction.operands[0]
    assert isinstance(allowed, Immediate)
    return Waiting(following, group, allowed.bits, "read" in instruction.qualifiers)
