"""Choices by rank and launch, as they are kept, and the steps of batches that they stand for.

Which launches are one batch depends on when each rank's launch begins. What is kept names ranks and launches instead,
so that it can be followed where launches begin at other times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.observe.lanes import Group, Launched, ids_of
from simulator.run.choices import Moved, Turn
from simulator.run.copies import UnderWay
from simulator.run.groups import compact
from simulator.run.machine import Batch
from simulator.run.orders import CopyStep, Step


def turn_of(step: Step, batch: Batch) -> Turn:
    """Return the turn that a step is, to be kept."""
    launched = batch.launched
    lanes = _of_world(launched, step.lanes)
    launch = _launch(launched, int(step.lanes[0]))
    return Turn(launch, launched.threads, step.index, lanes, step.accesses, step.tear, step.shuffle, step.wakes)


def moved_of(step: CopyStep, batch: Batch) -> Moved:
    """Return what a step of copies is, to be kept."""
    launched, under_way = batch.launched, batch.copies.under_way
    copies = []
    for place in step.copies:
        lane = under_way[place].lane
        before = sum(one.lane == lane for one in under_way[:place])
        copies.append((_lane_of_world(launched, lane), before))
    launch = _launch(launched, under_way[step.copies[0]].lane)
    lane = _lane_of_world(launched, step.lane) if step.lane >= 0 else -1
    return Moved(launch, launched.threads, tuple(copies), lane, step.tear, step.idle)


def step_of(turn: Turn, lanes: Group, batches: Sequence[Batch]) -> Step | None:
    """Return the step of those of a turn's lanes that are in the batch of the first one; None if no batch has it."""
    first = int(lanes[0])
    number = _batch(turn.launch, turn.threads, first, batches)
    if number < 0:
        return None
    launched = batches[number].launched
    mine = _of_batch(launched, lanes)
    return Step(number, turn.index, mine, turn.accesses, turn.tear, turn.shuffle, turn.wakes)


def rest_of(turn: Turn, lanes: Group, batches: Sequence[Batch]) -> Group | None:
    """Return those of a turn's lanes that are in other batches than the first one, or in none; None if all are."""
    number = _batch(turn.launch, turn.threads, int(lanes[0]), batches)
    ranks = (int(lanes[0]) // turn.threads,) if number < 0 else batches[number].launched.ranks
    ids = ids_of(lanes)
    left = ids[~np.isin(ids // turn.threads, ranks)]
    return compact(left) if len(left) else None


def copy_step_of(moved: Moved, batches: Sequence[Batch]) -> CopyStep | None:
    """Return the step of copies that a choice stands for; None if one of them is not under way in one batch."""
    number = _batch(moved.launch, moved.threads, moved.copies[0][0], batches)
    if number < 0:
        return None
    launched, under_way = batches[number].launched, batches[number].copies.under_way
    places = tuple(_place(under_way, _lane_of_batch(launched, one), at) for one, at in moved.copies)
    lane = _lane_of_batch(launched, moved.lane) if moved.lane >= 0 else -1
    if min(places) < 0 or (moved.lane >= 0 and lane < 0):
        return None
    return CopyStep(number, places, lane, moved.tear, moved.idle)


def _place(under_way: Sequence[UnderWay], lane: int, before: int) -> int:
    mine = [place for place, one in enumerate(under_way) if one.lane == lane]
    return mine[before] if before < len(mine) else -1


def _batch(launch: int, threads: int, lane: int, batches: Sequence[Batch]) -> int:
    """The place of the batch that has a launch on the rank of one of its lanes; -1 if there is none."""
    pair = (lane // threads, launch)
    for number, batch in enumerate(batches):
        launched = batch.launched
        if launched.threads == threads and pair in zip(launched.ranks, launched.numbers, strict=True):
            return number
    return -1


def _launch(launched: Launched, lane: int) -> int:
    return launched.numbers[lane // launched.threads]


def _lane_of_world(launched: Launched, lane: int) -> int:
    return launched.ranks[lane // launched.threads] * launched.threads + lane % launched.threads


def _lane_of_batch(launched: Launched, lane: int) -> int:
    rank = lane // launched.threads
    if rank not in launched.ranks:
        return -1
    return launched.ranks.index(rank) * launched.threads + lane % launched.threads


def _of_world(launched: Launched, lanes: Group) -> Group:
    first, last = int(lanes[0]) // launched.threads, int(lanes[-1]) // launched.threads
    shift = (launched.ranks[first] - first) * launched.threads
    if isinstance(lanes, range) and launched.ranks[last] - last == launched.ranks[first] - first:
        return range(lanes.start + shift, lanes.stop + shift)
    ids = ids_of(lanes)
    return compact(launched.ranks_of(ids) * launched.threads + ids % launched.threads)


def _of_batch(launched: Launched, lanes: Group) -> Group:
    """Those of a world's lanes that a batch has, by its own numbers."""
    ids = ids_of(lanes)
    positions = np.full(max(int(ids[-1]) // launched.threads, *launched.ranks) + 1, -1, np.int64)
    positions[list(launched.ranks)] = np.arange(len(launched.ranks))
    found = positions[ids // launched.threads]
    return compact((found * launched.threads + ids % launched.threads)[found >= 0])
