"""What a launch moves, phase by phase: the accounts that the clock keeps beside its times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.clock.profile import Copies, Lines, Phase, Traffic
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
    """One phase. bytes, accesses, instructions: by warp. links: bytes and accesses by viewer, target, action and how.
    lines: by READ or WRITTEN and whether through the switch, which lines were touched, and from which to which."""

    bytes: Ids
    accesses: Ids
    instructions: Ids
    links: dict[tuple[int, int, str, str], list[int]] = field(default_factory=dict)
    lines: dict[tuple[int, bool], Any] = field(default_factory=dict)
    loads: list[int] = field(default_factory=lambda: [0, 0, 0, 0])  # most, sum, number of steps, most bytes
    looks: int = 0
    sizes: dict[int, int] = field(default_factory=dict)
    copies: list[int] = field(default_factory=lambda: [0, 0])  # loads, stores
    stages: int = 0
    from_us: float = float("inf")
    to_us: float = 0.0


class Book:
    """The accounts of one launch. states: for each warp twice its phase, plus 1 once it has looked for others in it."""

    def __init__(self, warps: int, warps_per_block: int, ranks: int, capacity: int, memory_bytes: int) -> None:
        self.states: Ids = np.zeros(warps, np.int64)
        self.warps_per_block, self.ranks, self.capacity = warps_per_block, ranks, capacity
        self.line_count = (memory_bytes >> LINE_BITS) + 1
        self.accounts: list[_Account] = []
        self.step_loads: dict[int, int] = {}
        self._open(0).from_us = 0.0

    def _open(self, number: int) -> _Account:
        while len(self.accounts) <= min(number, MAX_PHASES - 1):
            columns = [np.zeros(len(self.states), np.int64) for _ in range(3)]
            self.accounts.append(_Account(columns[0], columns[1], columns[2]))
        return self.accounts[min(number, MAX_PHASES - 1)]

    # Where warps are

    def enter(self, warps: Warps, waits: bool, clock: Any) -> int | Ids:
        """Return the phase that an access of these warps belongs to, one for all or one a warp, and move them on."""
        now = self.states[warps.at]
        first = int(now[0])
        if bool((now == first).all()):
            after = first | 1 if waits else (first + 1) & ~1
            if after != first:
                self.states[warps.at] = after
                if after >> 1 != first >> 1:
                    self._turn(first >> 1, clock[warps.at])
            return after >> 1
        later = now | 1 if waits else (now + 1) & ~1
        self.states[warps.at] = later
        times = clock[warps.at]
        for number in np.unique(now[later >> 1 != now >> 1]).tolist():
            self._turn(number >> 1, times[now == number])
        phases: Ids = later >> 1
        return phases

    def _turn(self, before: int, times: Any) -> None:
        """Some warps go on from a phase to the next one."""
        left, entered = self._open(before), self._open(before + 1)
        left.to_us = max(left.to_us, float(times.max()))
        entered.from_us = min(entered.from_us, float(times.min()))

    def meet(self, units: Any, clock: Any) -> None:
        """Warps leave a barrier: units is the warps' numbers, a row a unit."""
        now = self.states[units]
        if not (now & 1).any() and bool((now == now.flat[0]).all()):
            return
        after = (now + 1) & ~1
        after = np.broadcast_to(after.max(axis=1, keepdims=True), after.shape)
        for number in np.unique(now[after >> 1 != now >> 1]).tolist():
            self._turn(number >> 1, clock[units][now == number])
        self.states[units] = after

    # What they do

    def step(self, warps: Warps, instructions: int) -> None:
        """Warps issue instructions."""
        now = self.states[warps.at] >> 1
        first = int(now[0])
        if bool((now == first).all()):
            self._open(first).instructions[warps.at] += instructions
            return
        numbers = warps.numbers
        for one in np.unique(now).tolist():
            self._open(one).instructions[numbers[now == one]] += instructions

    def settle(self, phase: int) -> None:
        """A step is over, in which threads issued loads before they needed one."""
        if self.step_loads:
            most = self._open(phase).loads
            count, size = len(self.step_loads), sum(self.step_loads.values())
            most[0], most[1], most[2] = max(most[0], count), most[1] + count, most[2] + 1
            most[3] = max(most[3], size)
            self.step_loads = {}

    def look(self, phase: int | Ids, warps: Warps) -> None:
        """Warps looked for what others store."""
        if isinstance(phase, int):
            self._open(phase).looks += warps.count
            return
        for one, count in zip(*np.unique(phase, return_counts=True), strict=True):
            self._open(int(one)).looks += int(count)

    def move(
        self, phase: int | Ids, warps: Warps, viewer: Any, target: Any, what: tuple[str, str], size_bytes: int
    ) -> None:
        """Lanes access size_bytes each. viewer, target: one number, or one a lane. what: action and how."""
        if not isinstance(phase, int):
            lanes = warps.spread(phase)
            numbers = warps.numbers
            for one in np.unique(phase).tolist():
                mask, mine = lanes == one, phase == one
                sizes = warps.sizes if isinstance(warps.sizes, int) else warps.sizes[mine]
                ends = [each if isinstance(each, int) else each[mask] for each in (viewer, target)]
                self._move(self._open(one), numbers[mine], sizes, int(mask.sum()), ends, what, size_bytes)
            return
        self._move(self._open(phase), warps.at, warps.sizes, warps.lanes, [viewer, target], what, size_bytes)

    def _move(
        self, account: _Account, at: Any, sizes: Any, lanes: int, ends: list[Any], what: tuple[str, str], size: int
    ) -> None:
        account.accesses[at] += sizes
        account.bytes[at] += sizes * size
        viewer, target = ends
        if isinstance(viewer, int) and isinstance(target, int):
            self._link(account, viewer, target, what, lanes, lanes * size)
            return
        width = self.ranks + 1
        pairs = np.bincount(np.broadcast_to(viewer * width + target + 1, lanes), minlength=0)
        for pair in np.flatnonzero(pairs).tolist():
            count = int(pairs[pair])
            self._link(account, pair // width, pair % width - 1, what, count, count * size)

    def _link(self, account: _Account, viewer: int, target: int, what: tuple[str, str], count: int, size: int) -> None:
        found = account.links.setdefault((viewer, target, *what), [0, 0])
        found[0] += size
        found[1] += count

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

    def copy(self, phase: int, warps: Warps, ends: tuple[int, int], action: str, size_bytes: int, stages: int) -> None:
        """A bulk copy is issued. ends: viewer and target; stages: with it, how many of its block are under way."""
        account = self._open(phase)
        self._link(account, *ends, (action, "bulk"), 1, size_bytes)
        account.bytes[warps.at] += size_bytes
        account.accesses[warps.at] += 1
        account.sizes[size_bytes] = account.sizes.get(size_bytes, 0) + 1
        account.copies[0 if action == "read" else 1] += 1
        account.stages = max(account.stages, stages)

    # What is said

    def phases(self, end_us: float, tops: list[int]) -> tuple[Phase, ...]:
        """Return the phases of a launch that ends at a time. tops: by rank, bytes of its heap that are in use."""
        self.accounts[-1].to_us = end_us
        return tuple(self._phase(number, one, tops) for number, one in enumerate(self.accounts))

    def _phase(self, number: int, one: _Account, tops: list[int]) -> Phase:
        blocks = [column.reshape(-1, self.warps_per_block).sum(axis=1) for column in (one.bytes, one.accesses)]
        traffic = [Traffic(*key, *found) for key, found in sorted(one.links.items())]
        touched = {way: self._count(found, way[1], tops) for way, found in one.lines.items()}
        empty = np.zeros(self.ranks, np.int64)
        read, written = (touched.get((way, False), empty) for way in (READ, WRITTEN))
        ranks = np.flatnonzero(read + written).tolist()
        lines = tuple(Lines(rank, int(read[rank]), int(written[rank])) for rank in ranks)
        switch = tuple(int(touched.get((way, True), empty)[0]) for way in (READ, WRITTEN))
        return Phase(
            number,
            min(one.from_us, one.to_us),
            one.to_us,
            tuple(traffic),
            int(blocks[0].max()),
            int(blocks[1].max()),
            one.loads[0],
            one.loads[1] / one.loads[2] if one.loads[2] else 0.0,
            one.loads[3],
            int(one.instructions.max()),
            int(one.instructions.sum()),
            one.looks,
            lines,
            (switch[0], switch[1]),
            Copies(dict(sorted(one.sizes.items())), one.stages, *one.copies),
        )

    def _count(self, lines: Any, is_switch: bool, tops: list[int]) -> Ids:
        """How many lines of each rank's memory were touched."""
        starts = [rank * self.capacity >> LINE_BITS for rank in range(1 if is_switch else self.ranks)]
        ends = [start + (top >> LINE_BITS) + 1 for start, top in zip(starts, tops, strict=False)]
        return np.array([np.count_nonzero(lines[low:high]) for low, high in zip(starts, ends, strict=True)])
