"""The barriers of clusters: threads arrive and go on (barrier.cluster.arrive), and wait later (barrier.cluster.wait).

A phase of a cluster's barrier is over when all threads of the cluster that have not returned have arrived. Each of them
waits before it arrives again; the PTX ISA leaves everything else undefined, and here it is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.memory.space import fault_where
from simulator.observe.lanes import Group, Ids, Launched, ids_of
from simulator.ptx.ir import Instruction
from simulator.run.decode import Exit
from simulator.run.groups import compact

IDLE, ARRIVED, PASSED, GONE = range(4)
"""What a thread did last: nothing or a wait that is over; it arrived; it arrived and the phase is over; it returned."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A cluster whose barrier is not complete: its number, the arrived and the living threads, the lanes that have not
    arrived, and the first lane at each place where lanes wait."""

    cluster: int
    come: int
    alive: int
    missing: Ids
    ends: list[tuple[int, Instruction | None]]


@dataclass(slots=True)
class ClusterBarriers:
    """The barriers of all clusters of a launch.

    cluster_of: by lane; state: by lane. alive and come: threads by cluster, those that have not returned and those that
    arrived in the current phase. phase: by cluster, the number of that. waiting: lanes at a wait.
    """

    launched: Launched
    cluster_of: Ids = field(init=False)
    state: npt.NDArray[np.uint8] = field(init=False)
    alive: Ids = field(init=False)
    come: Ids = field(init=False)
    phase: Ids = field(init=False)
    waiting: list[tuple[Exit, Ids]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster_of = self.launched.clusters_of(range(self.launched.lanes))
        self.state = np.zeros(self.launched.lanes, np.uint8)
        self.alive = np.bincount(self.cluster_of)
        self.come, self.phase = np.zeros_like(self.alive), np.zeros_like(self.alive)

    def phases_of(self, group: Group) -> Ids:
        """Return the number of the phase that each lane's cluster is in, from 0."""
        found: Ids = self.phase[self.cluster_of[ids_of(group)]]
        return found

    def _counts(self, lanes: Ids) -> Ids:
        return np.bincount(self.cluster_of[lanes], minlength=len(self.alive))

    def arrive(self, group: Group) -> list[tuple[int, Group]]:
        """Lanes arrive; returns those that go on from a wait, with where they go. Raises LaneFault."""
        lanes = ids_of(group)
        text = "a second arrival at the barrier of its cluster without a wait (barrier.cluster.wait) in between"
        fault_where(self.state[lanes] != IDLE, lambda _: text)
        self.state[lanes] = ARRIVED
        self.come += self._counts(lanes)
        return self._complete()

    def wait(self, way_out: Exit, group: Group) -> list[tuple[int, Group]]:
        """Lanes wait for the end of the phase in which they arrived; returns those that go on. Raises LaneFault."""
        lanes = ids_of(group)
        state = self.state[lanes]
        text = "a wait at the barrier of its cluster without an arrival (barrier.cluster.arrive) before"
        fault_where(state == IDLE, lambda _: text)
        over = state == PASSED
        if not over.all():
            self.waiting.append((way_out, lanes[~over]))
        if not over.any():
            return []
        self.state[lanes[over]] = IDLE
        return [(way_out.taken, compact(lanes[over]))]

    def leave(self, group: Group) -> list[tuple[int, Group]]:
        """Lanes return for good: no barrier waits for them any longer."""
        lanes = ids_of(group)
        self.alive -= self._counts(lanes)
        self.come -= self._counts(lanes[self.state[lanes] == ARRIVED])
        self.state[lanes] = GONE
        return self._complete()

    def _complete(self) -> list[tuple[int, Group]]:
        full = (self.come == self.alive) & (self.come > 0)
        if not full.any():
            return []
        self.come[full] = 0
        self.phase[full] += 1
        self.state[full[self.cluster_of] & (self.state == ARRIVED)] = PASSED
        going: list[tuple[int, Group]] = []
        staying: list[tuple[Exit, Ids]] = []
        for way_out, lanes in self.waiting:
            over = self.state[lanes] == PASSED
            if over.any():
                self.state[lanes[over]] = IDLE
                going.append((way_out.taken, compact(lanes[over])))
            if not over.all():
                staying.append((way_out, lanes[~over]))
        self.waiting = staying
        return going

    def stuck(self) -> list[Stuck]:
        """For a deadlock's report: the clusters in which threads wait."""
        ends: dict[int, list[tuple[int, Instruction | None]]] = {}
        for way_out, lanes in sorted(
            self.waiting, key=lambda one: one[0].instruction.line if one[0].instruction else 0
        ):
            for cluster, first in zip(*np.unique(self.cluster_of[lanes], return_index=True), strict=True):
                ends.setdefault(int(cluster), []).append((int(lanes[first]), way_out.instruction))
        found = []
        for cluster, some in sorted(ends.items()):
            missing = np.flatnonzero((self.cluster_of == cluster) & (self.state != ARRIVED) & (self.state != GONE))
            found.append(Stuck(cluster, int(self.come[cluster]), int(self.alive[cluster]), missing, some))
        return found
