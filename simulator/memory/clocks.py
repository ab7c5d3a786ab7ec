"""What each observer of a weak memory knows of the others: vector clocks for base causality order (PTX ISA, 8.9.5).

An observer is a thread, a warp, a block, or several blocks, whichever keeps their number small; coarser observers order
more than PTX does, and so show fewer outcomes, never others. Each has a counter that grows at whatever others may
synchronize with. Clocks have three layers: what comes before in base causality order; what came before a
fence.proxy.alias that comes before; and the same of fence.proxy.async. A column is an observer's own accesses, or (in
the second half) those of the bulk copies that it issued, which only a wait or an mbarrier hands over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simulator.observe.lanes import Group, Ids, Launched, ids_of

Clock = npt.NDArray[np.int32]
"""Layers by columns."""

BASE, ALIAS, ASYNC = range(3)
"""Layers."""
SCOPES = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 3}
MAX_OBSERVERS = 512
"""Of a world."""
MAX_THREADS = 256
"""Threads of all ranks up to which each is an observer of its own."""
MAX_WARPS = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where an observer runs. cluster and block are numbered within the rank's launch."""

    rank: int
    cluster: int
    block: int

    def includes(self, scope: int, other: Place) -> bool:
        """Return whether a scope around this observer includes the other (8.5)."""
        if scope == SCOPES["sys"]:
            return True
        if self.rank != other.rank:
            return False
        if scope == SCOPES["gpu"]:
            return True
        return self.block == other.block or (scope == SCOPES["cluster"] and self.cluster == other.cluster)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The first operation of a release pattern (8.8), and what came before it.

    unit, mask and alias are those of a write; unit is -1 of a fence.
    """

    clock: Clock
    observer: int
    count: int
    place: Place
    scope: int
    unit: int = -1
    mask: int = 0
    alias: int = 0

    def is_strong_with(self, place: Place, scope: int, observer: int) -> bool:
        """Return whether the scopes of the head and of an operation include each other (8.6)."""
        if observer == self.observer:
            return True
        return self.place.includes(self.scope, place) and place.includes(scope, self.place)


Released = dict[tuple[Place, int], Clock]
"""What arrivals at a barrier with scopes release, by where they ran and the scope within which it can be acquired."""


@dataclass(slots=True, eq=False)
class Seen:
    """A head that a strong read has observed, and where it read: an acquire there, or a fence, may join it.

    unit is -1 of a wait at an mbarrier: only a fence joins it.
    """

    head: Head
    unit: int
    mask: int
    alias: int


@dataclass(slots=True, eq=False)
class Observer:
    """What an observer has done that later operations of it build on.

    fences: its latest release fence of each scope. releases: its release writes by unit. seen: what it has observed and
    not acquired.
    """

    fences: dict[int, Head] = field(default_factory=dict)
    releases: dict[int, dict[tuple[int, int, int], Head]] = field(default_factory=dict)
    seen: dict[tuple[int, object], Seen] = field(default_factory=dict)


def merge(released: Released, more: Released) -> None:
    """Add to what arrivals released what further ones did."""
    for key, clock in more.items():
        known = released.get(key)
        released[key] = clock if known is None else np.maximum(known, clock)


class Clocks:
    """The observers of a world, by rank and by place within the rank's launch.

    observers: how many there are at most.
    """

    def __init__(self, world_size: int, observers: int = MAX_OBSERVERS) -> None:
        self.world_size = world_size
        self.per_rank = max(1, observers // world_size)
        self.count = self.per_rank * world_size
        self.rows = np.zeros((self.count, 3, 2 * self.count), np.int32)
        self.places = [Place(one // self.per_rank, 0, 0) for one in range(self.count)]
        self.own = np.arange(self.count)
        self.state = [Observer() for _ in range(self.count)]
        self.hosts = np.zeros((world_size, 3, 2 * self.count), np.int32)
        self.streams = np.zeros((world_size, 3, 2 * self.count), np.int32)
        self.latest_fences: dict[tuple[int, int], Head] = {}  # fence.sc, by observer and scope
        self.issued = np.zeros(self.count, np.int32)  # bulk copies
        self._units: dict[int, tuple[Launched, int, int, int]] = {}
        self.rows[self.own, BASE, self.own] = 1

    # Who

    def begin(self, launched: Launched) -> None:
        """Divide a launch's threads among the observers of its ranks, which see all that came before the launch."""
        width, per_block, blocks = self._division(launched)
        self._units[id(launched)] = (launched, width, per_block, blocks)
        used = -(-launched.grid // blocks) * per_block
        for rank in launched.ranks:
            first = rank * self.per_rank
            known = np.maximum(self.streams[rank], self.hosts[rank])
            mine = slice(first, first + used)
            np.maximum(self.rows[mine], known, out=self.rows[mine])
            self.rows[self.own[mine], BASE, self.own[mine]] += 1
            for slot in range(used):
                block = slot // per_block * blocks
                cluster = int(launched.clusters.numbers_of(block))
                self.places[first + slot] = Place(rank, cluster, block)
                self.state[first + slot] = Observer()

    def _division(self, launched: Launched) -> tuple[int, int, int]:
        """Threads of an observer, observers of a block, and blocks of an observer."""
        block, grid, most = launched.block, launched.grid, self.per_rank
        warps = -(-block // 32)
        if block * grid * self.world_size <= MAX_THREADS and block * grid <= most:
            return 1, block, 1
        if warps * grid * self.world_size <= MAX_WARPS and warps * grid <= most:
            return 32, warps, 1
        blocks = -(-grid // most)  # whole clusters, since an observer is in one place
        return block, 1, blocks if blocks == 1 else -(-blocks // launched.clusters.size) * launched.clusters.size

    def is_finer_than_blocks(self, launched: Launched) -> bool:
        """Return whether a block of the launch has several observers."""
        return self._units[id(launched)][2] > 1

    def observers_of(self, launched: Launched, lanes: Group) -> Ids:
        """Return each lane's observer."""
        _, width, per_block, blocks = self._units[id(launched)]
        ids = ids_of(lanes)
        rest = ids % (launched.grid * launched.block)
        block, thread = rest // launched.block, rest % launched.block
        ranks = np.array(launched.ranks, np.int64)[ids // (launched.grid * launched.block)]
        found: Ids = ranks * self.per_rank + block // blocks * per_block + thread // width
        return found

    def distinct(self, launched: Launched, lanes: Group) -> list[int]:
        """Return the observers that some of the lanes belong to."""
        if len(lanes) == 1:
            lanes = range(int(lanes[0]), int(lanes[0]) + 1)
        found: list[int] = np.unique(self.observers_of(launched, lanes)).tolist()
        return found

    # Time

    def now(self, observer: int) -> int:
        """Return an observer's counter."""
        return int(self.rows[observer, BASE, observer])

    def snapshot(self, observer: int) -> Clock:
        """Return what comes before an observer's present operation, that included; later ones count as later."""
        found: Clock = self.rows[observer].copy()
        self.rows[observer, BASE, observer] += 1
        return found

    def join(self, observer: int, clock: Clock) -> None:
        """Put all of a clock before what the observer does from now on."""
        np.maximum(self.rows[observer], clock, out=self.rows[observer])

    def head(self, observer: int, scope: int, unit: int = -1, mask: int = 0, alias: int = 0) -> Head:
        """Return a head of a release pattern that the observer begins now."""
        count = self.now(observer)
        return Head(self.snapshot(observer), observer, count, self.places[observer], scope, unit, mask, alias)

    # Patterns

    def release_fence(self, observer: int, scope: int) -> None:
        """A fence that begins release patterns."""
        self.state[observer].fences[scope] = self.head(observer, scope)

    def acquire_fence(self, observer: int, scope: int) -> None:
        """A fence that ends the acquire patterns of all strong reads before it."""
        place, seen = self.places[observer], self.state[observer].seen
        for key, one in list(seen.items()):
            if one.head.is_strong_with(place, scope, observer):
                self.join(observer, one.head.clock)
                del seen[key]

    def sc_fence(self, observer: int, scope: int) -> None:
        """fence.sc: after those that ran before it and that it is morally strong with (8.9.3)."""
        place = self.places[observer]
        self.acquire_fence(observer, scope)
        for one in self.latest_fences.values():
            if one.is_strong_with(place, scope, observer):
                self.join(observer, one.clock)
        self.release_fence(observer, scope)
        self.latest_fences[observer, scope] = self.state[observer].fences[scope]

    def proxy_fence(self, observer: int, layer: int) -> None:
        """fence.proxy.alias or fence.proxy.async."""
        row = self.rows[observer]
        np.maximum(row[layer], row[BASE], out=row[layer])
        row[BASE, observer] += 1

    def heads_of_write(
        self, observer: int, unit: int, mask: int, alias: int, scope: int, is_release: bool
    ) -> tuple[Head, ...]:
        """Return the heads of the release patterns that a strong write ends; it is one itself if it releases."""
        state = self.state[observer]
        heads = [*state.fences.values()]
        mine = state.releases.get(unit)
        if mine:
            heads += [one for one in mine.values() if one.mask & mask and one.alias == alias]
        if is_release:
            made = self.head(observer, scope, unit, mask, alias)
            state.releases.setdefault(unit, {})[scope, mask, alias] = made
            heads = [one for one in heads if (one.unit, one.scope, one.mask) != (unit, scope, mask)] + [made]
        return tuple(heads)

    def observe(self, observer: int, heads: tuple[Head, ...], unit: int, mask: int, alias: int) -> None:
        """A strong read returned a write that ends these release patterns."""
        row, seen = self.rows[observer, BASE], self.state[observer].seen
        for one in heads:
            if row[one.observer] < one.count:
                seen[id(one), unit] = Seen(one, unit, mask, alias)

    def acquire_read(self, observer: int, unit: int, mask: int, alias: int, scope: int) -> None:
        """An acquire read: it ends the patterns of what it, and strong reads at its address before it, observed."""
        place, seen = self.places[observer], self.state[observer].seen
        for key, one in list(seen.items()):
            if one.unit != unit or one.alias != alias or not one.mask & mask:
                continue
            head = one.head
            if head.unit >= 0 and (head.unit, head.mask, head.alias) != (unit, mask, alias):
                continue
            if head.is_strong_with(place, scope, observer):
                self.join(observer, head.clock)
                del seen[key]

    # Barriers with scopes

    def arrived(self, observer: int, scope: int, is_relaxed: bool) -> Released:
        """Return what an arrival releases: all before it, or, if it is relaxed, what fences before it released."""
        place = self.places[observer]
        if not is_relaxed:
            return {(place, scope): self.snapshot(observer)}
        found: Released = {}
        for one in self.state[observer].fences.values():
            merge(found, {(place, min(one.scope, scope)): one.clock})
        return found

    def passed(self, observer: int, released: Released, scope: int, relaxed_at: object = None) -> None:
        """A wait is over: it acquires what its scope and those of arrivals allow.

        relaxed_at: of a relaxed wait, what it waits at; then a later fence acquires.
        """
        place = self.places[observer]
        for (where, reach), clock in released.items():
            if not (where.includes(reach, place) and place.includes(scope, where)):
                continue
            if relaxed_at is None:
                self.join(observer, clock)
            else:
                head = Head(clock, -1, 0, where, reach)
                self.state[observer].seen[-1, (relaxed_at, where, reach)] = Seen(head, -1, 0, 0)

    # Launches and hosts

    def end(self, launched: Launched, rank: int) -> None:
        """A launch is over on a rank: all it did, by whichever proxy, comes before the rank's next launch."""
        mine = slice(rank * self.per_rank, (rank + 1) * self.per_rank)
        known = self.rows[mine].max(axis=0).max(axis=0)
        known[self.count + mine.start : self.count + mine.stop] = self.issued[mine]
        np.maximum(self.streams[rank], known, out=self.streams[rank])

    def release(self) -> None:
        """Forget all launches: none runs."""
        self._units.clear()

    def synchronized(self, rank: int) -> None:
        """A rank's host has seen the end of all its launches."""
        np.maximum(self.hosts[rank], self.streams[rank], out=self.hosts[rank])

    def met(self) -> None:
        """The hosts of all ranks met."""
        self.hosts[:] = self.hosts.max(axis=0)
