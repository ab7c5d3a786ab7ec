"""What a launch moves, phase by phase: the accounts that the clock keeps beside its times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.clock.profile import Lines, Phase, Traffic
from simulator.clock.steps import Warps
from simulator.memory.heaps import lazy_bytes
from simulator.observe.lanes import Ids

MAX_PHASES = 16
"""Phases of a launch that are told apart; the last one holds all that follow, too."""
LINE_BITS = 7
"""Lines of 128 bytes."""
READ, WRITTEN = 0, 1


@dataclass(slots=True, eq=False)
class _Account:
    """One phase. links: bytes by viewer, target, action and how. lines: by READ or WRITTEN and whether through the
    switch, which lines were touched."""

    links: dict[tuple[int, int, str, str], int] = field(default_factory=dict)
    lines: dict[tuple[int, bool], Any] = field(default_factory=dict)


class Book:
    """The accounts of one launch. states: for each warp twice its phase, plus 1 once it has looked for others in it."""

    def __init__(self, warps: int, ranks: int, capacity: int, memory_bytes: int) -> None:
        self.states: Ids = np.zeros(warps, np.int64)
        self.ranks, self.capacity = ranks, capacity
        self.line_count = (memory_bytes >> LINE_BITS) + 1
        self.accounts: list[_Account] = []

    def _open(self, number: int) -> _Account:
        while len(self.accounts) <= min(number, MAX_PHASES - 1):
            self.accounts.append(_Account())
        return self.accounts[min(number, MAX_PHASES - 1)]

    # Where warps are

    def enter(self, warps: Warps, waits: bool) -> int | Ids:
        """Return the phase that an access of these warps belongs to, one for all or one a warp, and move them on."""
        now = self.states[warps.at]
        first = int(now[0])
        if bool((now == first).all()):
            after = first | 1 if waits else (first + 1) & ~1
            if after != first:
                self.states[warps.at] = after
            return after >> 1
        later = now | 1 if waits else (now + 1) & ~1
        self.states[warps.at] = later
        phases: Ids = later >> 1
        return phases

    def meet(self, units: Any) -> None:
        """Warps leave a barrier: units is the warps' numbers, a row a unit."""
        now = self.states[units]
        if (now & 1).any() or not bool((now == now.flat[0]).all()):
            after = (now + 1) & ~1
            self.states[units] = np.broadcast_to(after.max(axis=1, keepdims=True), after.shape)

    # What they do

    def move(
        self, phase: int | Ids, warps: Warps, viewer: Any, target: Any, what: tuple[str, str], size_bytes: int
    ) -> None:
        """Lanes access size_bytes each. viewer, target: one number, or one a lane. what: action and how."""
        if isinstance(phase, int):
            self._move(self._open(phase), warps.lanes, viewer, target, what, size_bytes)
            return
        lanes = warps.spread(phase)
        for one in np.unique(phase).tolist():
            mask = lanes == one
            here, there = (each if isinstance(each, int) else each[mask] for each in (viewer, target))
            self._move(self._open(one), int(mask.sum()), here, there, what, size_bytes)

    def _move(
        self, account: _Account, lanes: int, viewer: Any, target: Any, what: tuple[str, str], size_bytes: int
    ) -> None:
        if isinstance(viewer, int) and isinstance(target, int):
            self._link(account, viewer, target, what, lanes * size_bytes)
            return
        width = self.ranks + 1
        pairs = np.bincount(np.broadcast_to(viewer * width + target + 1, lanes), minlength=0)
        for pair in np.flatnonzero(pairs).tolist():
            self._link(account, pair // width, pair % width - 1, what, int(pairs[pair]) * size_bytes)

    def _link(self, account: _Account, viewer: int, target: int, what: tuple[str, str], moved_bytes: int) -> None:
        key = (viewer, target, *what)
        account.links[key] = account.links.get(key, 0) + moved_bytes

    def touch(
        self, phase: int | Ids, warps: Warps, index: Ids, width_bytes: int, is_affine: bool, way: tuple[int, bool]
    ) -> None:
        """Note the lines that accesses touch. way: READ or WRITTEN, and whether through the switch (index then is of
        rank 0's replica)."""
        if isinstance(phase, int):
            lines = self._lines(self._open(phase), way)
            if is_affine:
                last = int(index[-1]) + width_bytes - 1
                lines[int(index[0]) >> LINE_BITS : (last >> LINE_BITS) + 1] = 1
            else:
                lines[index >> LINE_BITS] = 1
            return
        lanes = warps.spread(phase)
        for one in np.unique(phase).tolist():
            self._lines(self._open(one), way)[index[lanes == one] >> LINE_BITS] = 1

    def _lines(self, account: _Account, way: tuple[int, bool]) -> Any:
        if way not in account.lines:
            account.lines[way] = lazy_bytes(self.line_count)
        return account.lines[way]

    def copy(self, phase: int, viewer: int, target: int, action: str, size_bytes: int) -> None:
        """A bulk copy is issued."""
        self._link(self._open(phase), viewer, target, (action, "bulk"), size_bytes)

    # What is said

    def phases(self, tops: list[int]) -> tuple[Phase, ...]:
        """Return the phases of a launch. tops: by rank, bytes of its heap that are in use."""
        return tuple(self._phase(one, tops) for one in self.accounts)

    def _phase(self, one: _Account, tops: list[int]) -> Phase:
        traffic = tuple(Traffic(*key, moved) for key, moved in sorted(one.links.items()))
        touched = {way: self._count(found, way[1], tops) for way, found in one.lines.items()}
        empty = np.zeros(self.ranks, np.int64)
        read, written = (touched.get((way, False), empty) for way in (READ, WRITTEN))
        ranks = np.flatnonzero(read + written).tolist()
        lines = tuple(Lines(rank, int(read[rank]), int(written[rank])) for rank in ranks)
        switch = [int(touched.get((way, True), empty)[0]) for way in (READ, WRITTEN)]
        return Phase(traffic, lines, (switch[0], switch[1]))

    def _count(self, lines: Any, is_switch: bool, tops: list[int]) -> Ids:
        """How many lines of each rank's memory were touched."""
        starts = [rank * self.capacity >> LINE_BITS for rank in range(1 if is_switch else self.ranks)]
        ends = [start + (top >> LINE_BITS) + 1 for start, top in zip(starts, tops, strict=False)]
        return np.array([np.count_nonzero(lines[low:high]) for low, high in zip(starts, ends, strict=True)])
