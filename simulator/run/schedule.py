"""Runs what an order chooses, and says what to say when nothing can run: wake-ups, step budget, deadlock report."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memory.fabric import DeadlineExceeded
from simulator.memory.space import Space
from simulator.observe.events import Access, Listener
from simulator.observe.lanes import WARPGROUP, Group
from simulator.options import Interleaving, Schedule
from simulator.ptx.dataflow import reads_memory
from simulator.ptx.ir import Immediate, Instruction, Register
from simulator.run.barriers import Barrier
from simulator.run.decode import WHOLE
from simulator.run.machine import Batch
from simulator.run.orders import Accesses, Blocks, CopyStep, Fair, Order, Priority, Step, tears_of, whole_warps

if TYPE_CHECKING:
    from simulator.run.choices import Choice

WAKE_EVERY = 64
"""Maximum number of steps between looks at spins; they are also looked at when nothing else can run."""
REPORTED_THREADS = 8
STEP_NS = 1000
"""How far a step moves the clocks that kernels can read. It makes waits with a time limit end, and measures nothing."""


@dataclass(slots=True)
class Scheduler:
    """Runs batches until nothing can change. A function of turns: trace is the same for the same ones.

    turns: orders.py says what each schedule chooses. choices: what was chosen, if records says so. is_launch_due: asked
    after each step whether another launch is to begin now; then run() returns False.
    """

    space: Space
    turns: Interleaving
    step_budget: int
    records: bool = False
    steps: int = 0
    trace: int = 0
    deadline: float | None = None
    aborted: BaseException | None = None  # set by another thread
    is_launch_due: Callable[[], bool] | None = None
    choices: list[Choice] = field(default_factory=list)
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = order_of(self.turns)
        if self.turns.follows is not None:
            from simulator.memory.chance import Late
            from simulator.run.replayed import Replayed

            self.order = Replayed([one for one in self.turns.follows if not isinstance(one, Late)])
        self.space.clock_ns = STEP_NS
        self.space.events.step = 0

    def run(self, batches: list[Batch]) -> bool:
        """Run until every batch is done, asleep or waiting at barriers (True). Raises DeviceFault and DeadlineExceeded.

        Some orders stop as soon as some rank's kernel is done (False), so that this rank's host goes on while the
        kernels of others are still under way, as it would on GPUs.
        """
        since_wake = 0
        done = _done(batches)
        with np.errstate(all="ignore"):
            while True:
                since_wake += 1
                if since_wake >= WAKE_EVERY or not any(batch.ready for batch in batches):
                    since_wake = 0
                    woken = [batch.wake() for batch in batches]
                    if not any(woken) and not any(batch.ready for batch in batches):
                        if not any(batch.copies.under_way for batch in batches):
                            return True
                        self._move(replace(self.order.idle_move(batches), idle=True), batches)
                        continue
                self._check_budget(batches)
                self._take(self.order.turn(batches), batches)
                for one in self.order.moves(batches):
                    self._move(one, batches)
                if self.is_launch_due is not None and self.is_launch_due():
                    return False
                if _done(batches) > done:
                    done = _done(batches)
                    if self.order.returns():
                        if self.records:
                            from simulator.run.choices import Returned

                            self.choices.append(Returned())
                        return False

    def begun(self, launches: Iterable[tuple[int, int]], is_due: bool) -> None:
        """Keep that launches began, pairs of a rank and a number (choices.Began)."""
        if self.records:
            from simulator.run.choices import Began

            self.choices.append(Began(tuple(sorted(launches)), is_due))

    def _take(self, turn: Step, batches: list[Batch]) -> None:
        """Let lanes take a step."""
        batch = batches[turn.batch]
        if batch.launched.has_whole_lines:
            turn = whole_warps(batch, turn)
        lanes = turn.lanes
        if self.records:
            from simulator.run.recorded_choices import turn_of

            self.choices.append(turn_of(turn, batch))
        self.trace = zlib.crc32(f"{turn.batch} {turn.index} {int(lanes[0])} {len(lanes)}".encode(), self.trace)
        self.space.events.step = self.steps
        if self.turns.is_by_block:
            batch.run(turn.index, lanes)
        else:
            batch.tear = turn.tear
            self.space.shuffle = turn.shuffle
            batch.run(turn.index, lanes, batch.program.reach(turn.index, turn.accesses, tears_of(batch, turn)))
        self.steps += 1
        self.space.clock_ns += STEP_NS

    def _move(self, one: CopyStep, batches: list[Batch]) -> None:
        """Let copies move on."""
        if self.records:
            from simulator.run.recorded_choices import moved_of

            self.choices.append(moved_of(one, batches[one.batch]))
        copies = batches[one.batch].copies
        chosen = [copies.under_way[place] for place in one.copies]
        if one.lane >= 0:
            chosen = [copies.part(chosen[0], one.lane, 32)]
        copies.advance(chosen, one.tear)

    def _check_budget(self, batches: list[Batch]) -> None:
        if self.aborted is not None:
            raise self.aborted
        late = self.deadline is not None and self.steps % 16 == 0 and time.monotonic() > self.deadline
        if self.steps < self.step_budget and not late:
            return
        what, advice = "the deadline passed", []
        if not late:
            what = f"the step budget of {self.step_budget:,} ran out (fabric.step_budget)"
            advice = ["if the kernel ends, give a larger fabric.step_budget"]
        running = [
            (batch, int(groups[0][0]), found)
            for batch in batches
            for index, groups in sorted(batch.ready.items())
            for found in [one for block in batch.program.kernel.blocks[index:] for one in block.instructions][:1]
        ][:2]
        texts = [
            f"{batch.executable.name} on {batch.name(lane)} runs at {instruction.where()}"
            for batch, lane, instruction in running
        ]
        texts = [*(texts or ["no thread was ready"]), *_without_place(batches)[:2], *advice]
        places = [batch.place_at(lane, instruction) for batch, lane, instruction in running]
        raise DeadlineExceeded(f"{what} after {self.steps:,} steps; {'; '.join(texts)}", places=places)


def order_of(turns: Interleaving) -> Order:
    """Return what chooses who takes the next turn."""
    if turns.schedule == Schedule.fair:
        return Fair()
    if turns.schedule == Schedule.priority:
        return Priority(turns.seed)
    if turns.schedule == Schedule.adversarial:
        from simulator.run.adversary import Adversarial

        return Adversarial(turns.seed, turns.is_by_block)
    return Blocks(turns.seed) if turns.is_by_block else Accesses(turns.seed)


def _done(batches: list[Batch]) -> int:
    """How many ranks' kernels are done."""
    return sum(not alive for batch in batches for alive in batch.rank_alive.values())


class _Reads(Listener):
    """Notes what one lane reads from ranks' heaps: instructions, addresses, and the values that it finds there."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.seen: list[tuple[Instruction, int, int]] = []

    def access(self, event: Access) -> None:
        if event.space == "global" and event.action != "store":
            address = int(event.addresses[0])
            index = address - self.space.base(int(event.ranks[0]))
            raw = self.space.memory[index : index + min(event.width_bytes, 8)].tobytes()
            self.seen.append((event.instruction, address, int.from_bytes(raw, "little")))


def waiting_report(space: Space, batches: list[Batch]) -> str:
    """Who waits for what: a line a waiting thread (the first few), with the flag's tensor and the value it holds."""
    lines: list[str] = []
    more = shown = 0
    sleeping = [_by_rank(batch) for batch in batches]
    each = max(1, REPORTED_THREADS // max(sum(map(len, sleeping)), 1))
    for batch, by_rank in zip(batches, sleeping, strict=True):
        sleepers = [one for group in by_rank.values() for one in group]
        chosen = [one for group in by_rank.values() for one in group[:each]][: REPORTED_THREADS - shown]
        shown += len(chosen)
        more += len(sleepers) - len(chosen)
        lines += [_spinning(space, batch, index, lane) for index, lane in chosen]
        for barrier in batch.barriers.values():
            for following, group in barrier.waiting:
                lines += _at_barrier(batch, barrier, following, group)
        lines += _at_meetings(batch)
    lines = [*_without_place(batches)[:REPORTED_THREADS], *lines]
    return "\n  ".join(lines + ([f"and {more} more threads that spin likewise"] if more else []))


def _without_place(batches: list[Batch]) -> list[str]:
    """A line for each rank whose GPU has no place for some blocks."""
    return [line for batch in batches if batch.places is not None for line in batch.places.report(batch.ranks)]


def _at_barrier(batch: Batch, barrier: Barrier, following: int, group: Group) -> list[str]:
    units = barrier.units_of(group)
    found = batch.program.steps[following - 1].exit.instruction
    lines = []
    for unit in np.unique(units)[:REPORTED_THREADS].tolist():
        rank, block, thread = batch.place(barrier.first_lane(unit))
        who = f"rank {rank}, {batch.block_name(block)}" + (f", warp {thread // 32}" if barrier.unit == "warp" else "")
        count = f"{int((units == unit).sum())} of {int(barrier.alive[unit])} threads"
        where = found.where() if found else "a barrier"
        lines.append(f"{who}: {count} wait at {where}; {batch.launch_name(rank)}")
    return lines


def _at_meetings(batch: Batch) -> list[str]:
    """Lanes that wait for others of their warp or warpgroup, and threads at numbered barriers."""
    lines = []
    for way_out, lanes, missing in batch.warps.report()[:REPORTED_THREADS]:
        end = way_out.instruction
        places = [place for place in range(32) if missing >> place & 1]
        who = batch.name(int(lanes[0]))
        where = end.where() if end else "a barrier"
        which = batch.launch_name(batch.place(int(lanes[0]))[0])
        lines.append(f"{who} and {len(lanes) - 1} others wait for lanes {places} at {where}; {which}")
    for (block, number), one in sorted(batch.numbered.open.items())[:REPORTED_THREADS]:
        rank, index, _ = batch.place(block * batch.block)
        come, needed = batch.numbered.progress((block, number))
        text = f"rank {rank}, {batch.block_name(index)}: {come} of {needed} threads have come to barrier {number}"
        ends = {way_out.instruction.where() for way_out, _ in one.waiting if way_out.instruction}
        where = " and at ".join(sorted(ends)[:2]) or "no place"
        lines.append(f"{text}; they wait at {where}; {batch.launch_name(rank)}")
    for way_out, lane, come in batch.warpgroups.report()[:REPORTED_THREADS] if batch.warpgroups is not None else ():
        assert way_out.instruction is not None
        which = batch.launch_name(batch.place(lane)[0])
        text = f"{batch.name(lane)}: {come} of {WARPGROUP} threads of its warpgroup wait"
        lines.append(f"{text} at {way_out.instruction.where()}; {which}")
    for request in batch.tensor_cores.asked if batch.tensor_cores is not None else ():
        lane = int(request.lanes[0])
        which = batch.launch_name(batch.place(lane)[0])
        lines.append(f"{batch.name(lane)} waits for {request.told} at {request.instruction.where()}; {which}")
    return lines + _at_clusters(batch)


def _at_clusters(batch: Batch) -> list[str]:
    """Threads that wait at the barriers of clusters, and the first of those that have not come."""
    lines = []
    clusters = batch.launched.clusters
    for one in batch.in_clusters.stuck()[:REPORTED_THREADS] if batch.in_clusters is not None else ():
        blocks = clusters.blocks_of(one.cluster, np.arange(clusters.size)) % batch.grid
        names = "block" + ("s " if len(blocks) > 1 else " ") + ", ".join(map(str, blocks.tolist()))
        who = f"rank {batch.ranks[one.cluster // clusters.count]}, cluster {one.cluster % clusters.count} ({names})"
        missing = ", ".join(batch.name(lane).partition(", ")[2] for lane in one.missing[:2].tolist())
        more = f" and {len(one.missing) - 2} more" if len(one.missing) > 2 else ""
        lines.append(
            f"{who}: {one.come} of {one.alive} threads have come to its barrier; it waits for {missing}{more}; "
            f"they wait at {' and at '.join(place.where() for place in one.places[:2])}; "
            f"{batch.launch_name(batch.ranks[one.cluster // clusters.count])}"
        )
    return lines


def _by_rank(batch: Batch) -> dict[int, list[tuple[int, int]]]:
    """The lanes that spin, each with its step, by rank: so that a report has some of as many ranks as possible."""
    found: dict[int, list[tuple[int, int]]] = {}
    sleepers = [(index, lane) for index, group, _ in batch.asleep for lane in (int(one) for one in group)]
    for one in sorted(sleepers, key=lambda pair: pair[1]):
        found.setdefault(batch.place(one[1])[0], []).append(one)
    return found


def _spinning(space: Space, batch: Batch, index: int, lane: int) -> str:
    """Run one turn of the lane's spin while only this report listens, and say what it read."""
    reads = _Reads(space)
    batch.mbarriers.asked = -1
    batch.ready = {index: [range(lane, lane + 1)]}
    ran: list[int] = []
    is_whole = False
    try:
        with np.errstate(all="ignore"), space.events.only(reads):
            for _ in range(32):
                ran.append(min(batch.ready))
                batch.run(ran[-1], batch.take(ran[-1]), batch.program.reach(ran[-1], WHOLE))
                is_whole = not batch.ready or index in batch.ready
                if is_whole:
                    break
    finally:
        batch.ready = {}
    rank = batch.place(lane)[0]
    text, which = f"{batch.name(lane)} spins", batch.launch_name(rank)
    if not reads.seen:  # on shared memory or through the switch, where one value would say little
        loop = [one for where in ran for one in batch.program.reach(where, WHOLE).instructions]
        read = next((one for one in loop if reads_memory(one)), None)
        if read is None:
            start = f"; {loop[0].where()}" if loop else ""
            said = f"{batch.name(lane)} repeats a loop that reads no memory" if is_whole else text
            return f"{said}{start}; {which}"
        barriers = batch.mbarriers
        asked = f"waits for {barriers.told(barriers.asked)}; " if barriers.asked >= 0 else ""
        return f"{text}: {asked}{read.where()}; {which}"
    instruction, address, value = reads.seen[-1]
    place = space.describe(address - space.base(rank), address)
    compared = _compared(batch, ran, instruction, lane)
    return f"{text}: sees {value} at {place}; {instruction.where()}; {which}{compared}"


def _compared(batch: Batch, ran: list[int], load: Instruction, lane: int) -> str:
    """What the lane's loop compares with what it read, such as ", compared with 7 (setp.eq.u64)"; "" if it can't be
    told."""
    program = batch.program
    for one in (one for where in ran for one in program.reach(where, WHOLE).instructions):
        if one.opcode != "setp" or load.operands[0] not in one.operands[1:3]:
            continue
        other = one.operands[2] if one.operands[1] == load.operands[0] else one.operands[1]
        if isinstance(other, Immediate) and not other.width_bits:
            return f", compared with {other.bits} ({one.mnemonic})"
        if isinstance(other, Register) and other.name in program.kept_names:
            value = batch.kept[program.kept_names[other.name]][lane]
            return f", compared with {value} ({one.mnemonic})"
    return ""
