"""The launches that ranks have queued, by stream, and when the next ones begin.

Launches of one stream of a rank run one after another, launches of several streams side by side, unless one stream
waits for another (Fabric.wait_stream). A launch can begin as soon as its rank's stream is free and waits for nothing,
whatever other ranks are doing: a fast rank's next launch overtakes a slow rank's last one. In fair order, and in orders
by priority, launches begin when nothing else can run, equal ones of several ranks together; in other orders each rank
begins its own at a time that the seed decides; where choices are followed, when they say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memory.fabric import Executable, Launch
from simulator.run.machine import Batch
from simulator.run.queued import Queued

if TYPE_CHECKING:
    from simulator.run.replayed import Replayed

DELAYS = (0, 0, 4000)
"""In an order that is not fair a launch waits for some steps of the world once its stream is free: for up to one of
these numbers. The seed, its rank and its number decide. With 4,000 a rank stays far behind the others."""
_OWN_NUMBERS = 0x57
"""Keeps the numbers drawn here apart from those that the scheduler draws from the same seed."""


@dataclass(slots=True)
class Streams:
    """The queued launches of all ranks. together: launches begin together, as in fair order and by priority.

    alone: a rank runs one launch at a time, whatever their streams: what a GPU does whose places are all taken.
    follows: says instead of all this when launches begin.
    """

    world_size: int
    seed: int
    together: bool
    alone: bool = False
    follows: Replayed | None = None
    numbers: list[int] = field(init=False)
    _queues: list[dict[int | None, list[Queued]]] = field(init=False)
    _able_since: dict[tuple[int, int | None], int] = field(default_factory=dict)
    _latest: dict[tuple[int, int | None], int] = field(default_factory=dict)
    _after: dict[tuple[int, int | None], set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = [0] * self.world_size
        self._queues = [{} for _ in range(self.world_size)]

    def add(self, rank: int, executable: Executable, launch: Launch, arguments: tuple[bytes, ...]) -> Queued:
        """Put a launch at the end of its stream's queue, and return it."""
        number = self.numbers[rank]
        self.numbers[rank] += 1
        delay = 0 if self.together or self.follows is not None else _delay(self.seed, rank, number)
        after = tuple(sorted(self._after.pop((rank, launch.stream), ())))
        one = Queued(executable, launch, arguments, number, delay, after)
        self._queues[rank].setdefault(launch.stream, []).append(one)
        self._latest[rank, launch.stream] = number
        return one

    def wait(self, rank: int, stream: int | None, other: int | None) -> tuple[int, ...]:
        """Let later launches of a stream begin after the end of what another one has now; return what that is: the
        numbers of its last launch and of those for whose end its next one waits."""
        if stream == other:
            return ()
        found = set(self._after.get((rank, other), ()))
        if (rank, other) in self._latest:
            found.add(self._latest[rank, other])
        if found:
            self._after.setdefault((rank, stream), set()).update(found)
        return tuple(sorted(found))

    def queued(self, rank: int) -> bool:
        """Return whether the rank has launches that have not begun."""
        return bool(self._queues[rank])

    def begin(self, batches: Iterable[Batch], step: int, forced: bool) -> list[tuple[list[int], list[Queued]]]:
        """Take the launches that begin now out of their queues: groups of equal ones, each with its ranks, ascending.

        step: of the world. forced: nothing else can happen, so that at least one begins if any can.
        """
        if self.follows is not None:
            return self._begin_as_chosen(self.follows, batches, forced)
        left = self._left(batches, step)
        chosen = [one for one, steps in left.items() if steps <= 0]
        if forced and left and not chosen:
            chosen = [min(left, key=lambda one: left[one])]
        return self._groups(chosen)

    def _begin_as_chosen(
        self, order: Replayed, batches: Iterable[Batch], forced: bool
    ) -> list[tuple[list[int], list[Queued]]]:
        """Take the launches that choices say; with several in a row each group is one of its own."""
        able = {(rank, self._first(rank, stream).number): (rank, stream) for rank, stream in self._able(batches)}
        chosen = order.begins(able, forced)
        return [group for pairs in chosen for group in self._groups([able[pair] for pair in pairs])]

    def _groups(self, chosen: Iterable[tuple[int, int | None]]) -> list[tuple[list[int], list[Queued]]]:
        """Take first launches out of their queues, equal ones together."""
        groups: dict[tuple[str, str, Launch], list[tuple[int, int | None]]] = {}
        for rank, stream in chosen:
            groups.setdefault(self._first(rank, stream).kind, []).append((rank, stream))
        return [([rank for rank, _ in group], [self._take(*one) for one in group]) for group in groups.values()]

    def is_due(self, batches: Iterable[Batch], step: int) -> bool:
        """Return whether a launch is to begin between two steps: never where they begin together."""
        if not any(self._queues):
            return False
        if self.follows is not None:
            return self.follows.is_due([(one[0], self._first(*one).number) for one in self._able(batches)])
        return not self.together and any(steps <= 0 for steps in self._left(batches, step).values())

    def _first(self, rank: int, stream: int | None) -> Queued:
        return self._queues[rank][stream][0]

    def _left(self, batches: Iterable[Batch], step: int) -> dict[tuple[int, int | None], int]:
        """For each rank and stream whose first launch could begin, how many steps it still waits."""
        able = self._able(batches)
        since = {one: self._able_since.setdefault(one, step) for one in able}
        return {one: since[one] + self._first(*one).delay - step for one in able}

    def _able(self, batches: Iterable[Batch]) -> list[tuple[int, int | None]]:
        """Ranks and streams whose first launch could begin: the stream is free, and what it waits for is over."""
        batches = list(batches)
        running = {
            (rank, batch.launch.stream) for batch in batches for rank, alive in batch.rank_alive.items() if alive
        }
        busy = {rank for rank, _ in running} if self.alone else set[int]()
        found = [(rank, stream) for rank, queues in enumerate(self._queues) for stream in queues]
        able = [one for one in found if one not in running and one[0] not in busy]
        if any(self._first(*one).after for one in able):
            left = self._unfinished(batches)
            able = [one for one in able if left.isdisjoint((one[0], number) for number in self._first(*one).after)]
        return list({rank: (rank, stream) for rank, stream in reversed(able)}.values())[::-1] if self.alone else able

    def _unfinished(self, batches: list[Batch]) -> set[tuple[int, int]]:
        """Ranks and numbers of the launches that are queued or running."""
        queued = {
            (rank, one.number) for rank, queues in enumerate(self._queues) for queue in queues.values() for one in queue
        }
        return queued | {
            (rank, number)
            for batch in batches
            for rank, number in zip(batch.ranks, batch.launched.numbers, strict=True)
            if batch.rank_alive[rank]
        }

    def _take(self, rank: int, stream: int | None) -> Queued:
        queue = self._queues[rank][stream]
        first = queue.pop(0)
        self._able_since.pop((rank, stream), None)
        if not queue:
            del self._queues[rank][stream]
        return first


def _delay(seed: int, rank: int, number: int) -> int:
    """For how many steps a launch waits: a function of the seed, whatever else is drawn from it."""
    drawn = np.random.default_rng([seed, _OWN_NUMBERS, rank, number])
    return int(drawn.integers(DELAYS[int(drawn.integers(len(DELAYS)))] + 1))
