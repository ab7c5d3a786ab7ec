"""What a deadlock's error says: who waits for what, in words and as places in kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory.fabric import Place
from simulator.memory.space import Space
from simulator.observe.events import Access, Listener
from simulator.observe.lanes import WARPGROUP, ids_of
from simulator.ptx.dataflow import reads_memory
from simulator.ptx.ir import Immediate, Instruction, Register
from simulator.run.decode import WHOLE
from simulator.run.machine import Batch

if TYPE_CHECKING:
    from simulator.run.cluster_barriers import Stuck

REPORTED_THREADS = 8
MAX_PLACES = 64


class _Wait(NamedTuple):
    """Threads of a rank that wait for others: the first of them at each place where they wait, and what to say."""

    rank: int
    ends: list[tuple[int, Instruction | None]]
    text: str


def waiting_places(batches: list[Batch]) -> tuple[Place, ...]:
    """Return the threads that wait, at most MAX_PLACES, in the order of ranks, blocks and threads: one that spins at
    the load of its loop, and of those that meet at a barrier the first of each warp, block or cluster."""
    found: set[Place] = set()
    for batch in batches:
        ends = [end for kind in _waits(batch) for one in kind for end in one.ends]
        for index, group, _ in batch.asleep:
            following = (one for step in batch.program.steps[index:] for one in step.instructions)
            load = next((one for one in following if reads_memory(one)), None)
            ends += [(int(lane), load) for lane in ids_of(group)[:MAX_PLACES]]
        found.update(batch.place_at(lane, instruction) for lane, instruction in ends)
    return tuple(sorted(found, key=lambda one: (one.rank, one.block, one.thread))[:MAX_PLACES])


def waiting_report(space: Space, batches: list[Batch]) -> str:
    """Return who waits for what: a line a waiting thread (the first few), with the flag's tensor and its value."""
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
        for one in (one for kind in _waits(batch) for one in kind[:REPORTED_THREADS]):
            lines.append(f"{one.text}; {batch.launch_name(one.rank)}")
    lines = [*without_place(batches)[:REPORTED_THREADS], *lines]
    return "\n  ".join(lines + ([f"and {more} more threads that spin likewise"] if more else []))


def without_place(batches: list[Batch]) -> list[str]:
    """Return a line for each rank whose GPU has no place for some blocks."""
    return [line for batch in batches if batch.places is not None for line in batch.places.report(batch.ranks)]


def _waits(batch: Batch) -> Iterator[list[_Wait]]:
    """Threads that wait for others, by kind of barrier."""
    for barrier in batch.barriers.values():
        for following, group in barrier.waiting:
            end, lanes, found = batch.program.steps[following - 1].exit.instruction, ids_of(group), []
            units, firsts, counts = np.unique(barrier.units_of(lanes), return_index=True, return_counts=True)
            for unit, lane, come in zip(
                *(one[:MAX_PLACES].tolist() for one in (units, lanes[firsts], counts)), strict=True
            ):
                rank, block, thread = batch.place(lane)
                who = f"{batch.block_name(block)}" + (f", warp {thread // 32}" if barrier.unit == "warp" else "")
                text = f"rank {rank}, {who}: {come} of {int(barrier.alive[unit])} threads wait at {_where(end)}"
                found.append(_Wait(rank, [(lane, end)], text))
            yield found
    yield [
        _one(batch, int(lanes[0]), way_out.instruction, f" and {len(lanes) - 1} others wait for lanes {places} at")
        for way_out, lanes, missing in batch.warps.report()
        for places in [[place for place in range(32) if missing >> place & 1]]
    ]
    yield [_at_numbered(batch, *key) for key in sorted(batch.numbered.open)]
    if batch.warpgroups is not None:
        text = f"of {WARPGROUP} threads of its warpgroup wait at"
        yield [
            _one(batch, lane, way_out.instruction, f": {come} {text}")
            for way_out, lane, come in batch.warpgroups.report()
        ]
    if batch.tensor_cores is not None:
        asked = batch.tensor_cores.asked
        yield [_one(batch, int(one.lanes[0]), one.instruction, f" waits for {one.told} at") for one in asked]
    if batch.in_clusters is not None:
        yield [_at_cluster(batch, one) for one in batch.in_clusters.stuck()]


def _where(end: Instruction | None) -> str:
    return end.where() if end else "a barrier"


def _one(batch: Batch, lane: int, end: Instruction | None, text: str) -> _Wait:
    return _Wait(batch.place(lane)[0], [(lane, end)], f"{batch.name(lane)}{text} {_where(end)}")


def _at_numbered(batch: Batch, block: int, number: int) -> _Wait:
    rank, index, _ = batch.place(block * batch.block)
    ends = [
        (int(lanes[0]), way_out.instruction)
        for way_out, lanes in batch.numbered.open[block, number].waiting
        if len(lanes)
    ]
    come, needed = batch.numbered.progress((block, number))
    text = f"rank {rank}, {batch.block_name(index)}: {come} of {needed} threads have come to barrier {number}"
    where = " and at ".join(sorted({end.where() for _, end in ends if end})[:2]) or "no place"
    return _Wait(rank, ends, f"{text}; they wait at {where}")


def _at_cluster(batch: Batch, one: Stuck) -> _Wait:
    """Threads that wait at the barrier of a cluster, and the first of those that have not come."""
    clusters = batch.launched.clusters
    rank = batch.ranks[one.cluster // clusters.count]
    blocks = clusters.blocks_of(one.cluster, np.arange(clusters.size)) % batch.grid
    names = "block" + ("s " if len(blocks) > 1 else " ") + ", ".join(map(str, blocks.tolist()))
    missing = ", ".join(batch.name(lane).partition(", ")[2] for lane in one.missing[:2].tolist())
    more = f" and {len(one.missing) - 2} more" if len(one.missing) > 2 else ""
    places = " and at ".join(list(dict.fromkeys(_where(end) for _, end in one.ends))[:2])
    text = (
        f"rank {rank}, cluster {one.cluster % clusters.count} ({names}): {one.come} of {one.alive} threads have come "
        f"to its barrier; it waits for {missing}{more}; they wait at {places}"
    )
    return _Wait(rank, one.ends, text)


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
