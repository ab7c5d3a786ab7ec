"""What all listeners of the clock share: the table of steps, and which warps a step's lanes belong to."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.clock.costs import KINDS, Costs
from simulator.clock.running import Running
from simulator.clock.steps import Steps, Warps
from simulator.memory.space import Space
from simulator.observe.events import Listener
from simulator.observe.lanes import Group, Ids


class Timer(Listener):
    """Steps of warps. running: launches under way; order: those since the world was last idle, by their first warp."""

    def __init__(self, space: Space, costs: Costs) -> None:
        self.space, self.costs = space, costs
        self.cost = np.array([getattr(costs, name) for name in KINDS])
        self.steps = Steps()
        self.running: dict[Any, Running] = {}
        self.order: list[Running] = []  # of this busy time of the world, by their first warp
        self.first_warp = 0
        self.ends: dict[int, tuple[float, int]] = {}
        self.lanes: Group | None = None
        self.lanes_block = 0
        self.warps: Warps | None = None

    def settle(self, run: Running) -> None:
        """The step of a launch that was under way is over."""
        lanes, run.step_lanes = run.step_lanes, None
        if lanes is None:
            return
        run.end_step(self.steps, self.warps_of(run, lanes))

    def warps_of(self, run: Running, lanes: Group) -> Warps:
        """Return the warps of some lanes. The lanes of the events of a step are often the same object."""
        if lanes is not self.lanes or self.warps is None or self.lanes_block != run.launched.block:
            self.warps = Warps(lanes, run.launched.block)
            self.lanes, self.lanes_block = lanes, run.launched.block
        return self.warps

    # Steps

    def add(self, run: Running, warps: Ids, time: Any, before: Any, kind: Any) -> Any:
        """Add a step of each of the warps, and return their numbers."""
        first = self.steps.add(len(warps), time=time, before=before, warp=warps + run.first, kind=kind)
        return np.arange(first, first + len(warps), dtype=np.int32)

    def ranks_of(self, warps: Any) -> Any:
        """Return the ranks of warps by their numbers among those of all launches."""
        if len(self.order) == 1:
            run = self.order[0]
            return np.array(run.launched.ranks, np.int64)[warps // run.warps_of_rank]
        firsts = np.array([one.first for one in self.order])
        which = np.searchsorted(firsts, warps, side="right") - 1
        found = np.zeros(len(warps), np.int64)
        for number, run in enumerate(self.order):
            mine = which == number
            found[mine] = np.array(run.launched.ranks, np.int64)[(warps[mine] - run.first) // run.warps_of_rank]
        return found

    def place(self, warp: int) -> tuple[int, int, int]:
        """Return rank, block and warp of the block, of a warp by its number among those of all launches."""
        run = next(one for one in reversed(self.order) if one.first <= warp)
        return run.place(warp - run.first)
