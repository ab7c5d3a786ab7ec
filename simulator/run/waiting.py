"""Where the threads of a deadlock are, as data; simulator.run.schedule says the same in words."""

from __future__ import annotations

import numpy as np

from memory.fabric import Place
from simulator.observe.lanes import ids_of
from simulator.ptx.dataflow import reads_memory
from simulator.ptx.ir import Instruction
from simulator.run.machine import Batch

MAX_PLACES = 64


def waiting_places(batches: list[Batch]) -> tuple[Place, ...]:
    """Return the threads that wait, at most MAX_PLACES, in the order of ranks, blocks and threads: one that spins at
    the load of its loop, and of those that meet at a barrier the first of each warp, block or cluster."""
    found: set[Place] = set()
    for batch in batches:
        for lane, instruction in _spinning(batch) + _at_barriers(batch) + _at_meetings(batch):
            found.add(batch.place_at(lane, instruction))
    return tuple(sorted(found, key=lambda one: (one.rank, one.block, one.thread))[:MAX_PLACES])


def _spinning(batch: Batch) -> list[tuple[int, Instruction | None]]:
    found: list[tuple[int, Instruction | None]] = []
    for index, group, _ in batch.asleep:
        following = (one for step in batch.program.steps[index:] for one in step.instructions)
        load = next((one for one in following if reads_memory(one)), None)
        found += [(int(lane), load) for lane in ids_of(group)[:MAX_PLACES]]
    return found


def _at_barriers(batch: Batch) -> list[tuple[int, Instruction | None]]:
    found: list[tuple[int, Instruction | None]] = []
    for barrier in batch.barriers.values():
        for following, group in barrier.waiting:
            instruction = batch.program.steps[following - 1].exit.instruction
            lanes = ids_of(group)
            firsts = np.unique(barrier.units_of(lanes), return_index=True)[1]
            found += [(int(lanes[one]), instruction) for one in firsts[:MAX_PLACES]]
    return found


def _at_meetings(batch: Batch) -> list[tuple[int, Instruction | None]]:
    found = [(int(lanes[0]), way_out.instruction) for way_out, lanes, _ in batch.warps.report()]
    for one in batch.numbered.open.values():
        found += [(int(lanes[0]), way_out.instruction) for way_out, lanes in one.waiting if len(lanes)]
    if batch.warpgroups is not None:
        found += [(lane, way_out.instruction) for way_out, lane, _ in batch.warpgroups.report()]
    if batch.tensor_cores is not None:
        found += [(int(one.lanes[0]), one.instruction) for one in batch.tensor_cores.asked]
    if batch.in_clusters is not None:
        found += batch.in_clusters.first_waiting()
    return found
