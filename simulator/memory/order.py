"""What orders the accesses of a weak memory: fences, barriers, mbarriers, waits for copies, launches and hosts, heard
from the simulator's events and kept in clocks (simulator/memory/clocks.py)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.memory.clocks import ALIAS, ASYNC, BASE, SCOPES, Clock, Clocks, Released, merge
from simulator.memory.weak import WeakSpace
from simulator.observe.events import (
    BarrierArrived,
    BarrierCompleted,
    CopiesAwaited,
    CopyMoment,
    Fence,
    HostEvent,
    LaunchBegan,
    LaunchEnded,
    Listener,
    MbarrierOperation,
)
from simulator.observe.lanes import Ids, Launched, ids_of

_CTA, _CLUSTER = SCOPES["cta"], SCOPES["cluster"]


@dataclass(slots=True, eq=False)
class _Mbarrier:
    """What arrivals at an mbarrier released: by phase, and of the phases that waits have seen the end of."""

    phases: dict[int, Released] = field(default_factory=lambda: defaultdict(dict))
    over: Released = field(default_factory=dict)


class Order(Listener):
    """Keeps a weak memory's clocks."""

    def __init__(self, space: WeakSpace) -> None:
        self.space = space
        self.queued: dict[int, int] = defaultdict(int)
        self.barriers: dict[tuple[int, str, int, int], list[Clock]] = defaultdict(list)
        self.clusters: dict[tuple[int, int, int], Released] = defaultdict(dict)
        self.mbarriers: dict[tuple[int, int, int, int], _Mbarrier] = defaultdict(_Mbarrier)
        self.copies: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self.written: Clock | None = None

    @property
    def clocks(self) -> Clocks:
        return self.space.clocks

    # Fences

    def fence(self, event: Fence) -> None:
        if event.kind == "mbarrier_init":
            return
        for who in self.clocks.distinct(event.launched, event.lanes):
            if event.kind == "proxy":
                self.clocks.proxy_fence(who, ALIAS if event.proxy == "alias" else ASYNC)
            elif event.order == "sc":
                self.clocks.sc_fence(who, SCOPES[event.scope])
            else:
                if event.order != "release":
                    self.clocks.acquire_fence(who, SCOPES[event.scope])
                if event.order != "acquire":
                    self.clocks.release_fence(who, SCOPES[event.scope])

    # Barriers

    def _units(self, launched: Launched, unit: str, lanes: Any) -> Ids:
        """The warp or block of each lane."""
        blocks = ids_of(lanes) // launched.block
        if unit == "block":
            return blocks
        return blocks * (-(-launched.block // 32)) + ids_of(lanes) % launched.block // 32

    def barrier_arrived(self, event: BarrierArrived) -> None:
        launched = event.launched
        if event.unit == "cluster":
            self._arrived_at_clusters(event)
            return
        if not self.clocks.is_finer_than_blocks(launched):  # those who meet are one observer
            return
        units = self._units(launched, event.unit, event.lanes)
        who = self.clocks.observers_of(launched, event.lanes)
        numbers = [0] * len(units) if event.numbers is None else event.numbers.tolist()
        for one, unit, number in sorted(set(zip(who.tolist(), units.tolist(), numbers, strict=True))):
            self.barriers[id(launched), event.unit, unit, number].append(self.clocks.snapshot(one))

    def barrier_completed(self, event: BarrierCompleted) -> None:
        launched = event.launched
        if event.unit == "cluster":
            self._passed_clusters(event)
            return
        if not self.clocks.is_finer_than_blocks(launched):
            return
        lanes = ids_of(event.lanes)
        units = self._units(launched, event.unit, lanes)
        who = self.clocks.observers_of(launched, lanes)
        for unit in np.unique(units).tolist():
            mine = np.flatnonzero(units == unit)
            number = 0 if event.numbers is None else int(event.numbers[mine[0]])
            known = self.barriers.pop((id(launched), event.unit, unit, number), None)
            if known:
                clock = np.maximum.reduce(known)
                for one in np.unique(who[mine]).tolist():
                    self.clocks.join(one, clock)

    def _arrived_at_clusters(self, event: BarrierArrived) -> None:
        is_relaxed = "relaxed" in event.instruction.qualifiers
        for who, cluster, phase in self._phases(event):
            released = self.clocks.arrived(who, _CLUSTER, is_relaxed)
            merge(self.clusters[id(event.launched), cluster, phase], released)

    def _passed_clusters(self, event: BarrierCompleted) -> None:
        for who, cluster, phase in self._phases(event):
            self.clusters.pop((id(event.launched), cluster, phase - 1), None)  # all have waited for that
            self.clocks.passed(who, self.clusters[id(event.launched), cluster, phase], _CLUSTER)

    def _phases(self, event: BarrierArrived | BarrierCompleted) -> list[tuple[int, int, int]]:
        """Observers at the barriers of clusters, each with its cluster and the phase there."""
        launched, lanes = event.launched, ids_of(event.lanes)
        assert event.numbers is not None
        columns = (self.clocks.observers_of(launched, lanes), launched.clusters_of(lanes), event.numbers)
        return sorted(set(zip(*(one.tolist() for one in columns), strict=True)))

    def mbarrier(self, event: MbarrierOperation) -> None:
        launched = event.launched
        blocks = event.blocks if event.target_blocks is None else event.target_blocks
        who = self.clocks.observers_of(launched, ids_of(event.lanes))
        words = event.instruction.qualifiers
        # Without a scope PTX says .cta, but kernels release buffers to other blocks so, and the hardware orders it.
        scope = _CTA if "cta" in words else _CLUSTER
        for position, rank in enumerate(event.ranks.tolist()):
            block, phase, one = int(blocks[position]), int(event.phases[position]), int(who[position])
            key = (id(launched), rank, block, int(event.addresses[position]))
            if event.operation == "init":
                self.mbarriers[key] = _Mbarrier()
            elif event.operation in ("arrive", "arrive_drop", "complete_tx"):
                merge(self.mbarriers[key].phases[phase], self._released(event, one, rank, block))
            elif event.passed is not None and event.passed[position]:
                barrier = self.mbarriers[key]
                for number in [number for number in barrier.phases if number < phase]:
                    merge(barrier.over, barrier.phases.pop(number))
                self.clocks.passed(one, barrier.over, scope, key if "relaxed" in words else None)

    def _released(self, event: MbarrierOperation, who: int, rank: int, block: int) -> Released:
        """What an arrival releases, or a copy whose bytes count: at the mbarrier's block, so that each wait there
        acquires it, and of the copy alone."""
        words, launched = event.instruction.qualifiers, event.launched
        if event.instruction.opcode == "mbarrier":
            is_relaxed = "relaxed" in words or event.operation == "complete_tx"
            return self.clocks.arrived(who, _CTA if "cta" in words else _CLUSTER, is_relaxed)
        if event.operation != "complete_tx":
            return self.clocks.arrived(who, _CTA, False)
        assert self.written is not None
        first = launched.ranks.index(rank) * launched.grid * launched.block + block * launched.block
        (owner,) = self.clocks.distinct(launched, range(first, first + 1))
        return {(self.clocks.places[owner], _CLUSTER): self.written}

    # Bulk copies

    def copy(self, event: CopyMoment) -> None:
        lane = int(event.lanes[0])
        key = (id(event.launched), lane)
        if event.moment == "issued":
            self.space.issue(event.launched, lane, event.number)
            (who,) = self.clocks.distinct(event.launched, event.lanes)
            if event.group >= 0:
                self.copies[key].append((event.group, int(self.clocks.issued[who])))
        elif event.moment == "written":
            known = self.space.copies.get((id(event.launched), event.number))
            if known is not None:
                access = known[0]
                self.written = access.clock.copy()
                self.written[BASE, access.observer] = access.count

    def copies_awaited(self, event: CopiesAwaited) -> None:
        if event.reads_only or "bulk" not in event.instruction.qualifiers:
            return
        clocks = self.clocks
        for lane, ended in zip(ids_of(event.lanes).tolist(), event.groups.tolist(), strict=True):
            counts = [count for group, count in self.copies.get((id(event.launched), lane), ()) if group < ended]
            if counts:
                (who,) = clocks.distinct(event.launched, range(lane, lane + 1))
                row = clocks.rows[who]
                row[BASE, clocks.count + who] = max(int(row[BASE, clocks.count + who]), *counts)

    # Launches and hosts

    def launch_began(self, event: LaunchBegan) -> None:
        self.clocks.begin(event.launched)
        if event.launched.has_complete_ends:
            for who in self.clocks.distinct(event.launched, range(event.launched.lanes)):
                self.clocks.release_fence(who, SCOPES["sys"])

    def launch_ended(self, event: LaunchEnded) -> None:
        if event.launched.has_complete_ends:
            first = event.launched.ranks.index(event.rank) * event.launched.threads
            for who in self.clocks.distinct(event.launched, range(first, first + event.launched.threads)):
                self.clocks.acquire_fence(who, SCOPES["sys"])
        self.clocks.end(event.launched, event.rank)
        self.queued[event.rank] -= 1

    def host(self, event: HostEvent) -> None:
        if event.action == "enqueued":
            self.queued[event.ranks[0]] += 1
        elif event.action == "synchronized":
            for rank in event.ranks:
                self.clocks.synchronized(rank)
                self.space.settle_rank(rank)
        else:
            self.clocks.met()
            if not any(self.queued.values()):
                self.space.settle()
                self._clear()

    def restart(self) -> None:
        """Begin anew, with nothing launched."""
        self.space.restart()
        self.queued.clear()
        self._clear()

    def _clear(self) -> None:
        for one in (self.barriers, self.clusters, self.mbarriers, self.copies):
            one.clear()
        self.space.copies.clear()
        self.clocks.release()
