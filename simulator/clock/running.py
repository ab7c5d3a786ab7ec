"""What the clock keeps of a launch that runs: for each warp the time, its latest step, and what is under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.clock.book import Book
from simulator.clock.plan import BlockPlan, Plan
from simulator.clock.steps import LONG_AGO, START, WARP, Rows, Steps, Times, Warps
from simulator.observe.lanes import Group, Ids, Launched

_NO_BLOCK = BlockPlan({}, (), (), ())


@dataclass(slots=True)
class Looked:
    """By lane, the last look by an instruction, or by any: where, in which episode of the lane, and from when on."""

    index: Ids
    episode: Ids
    since: Times


class Spare:
    """Arrays for looks that no launch uses any more. Fresh pages cost more than most steps.

    first_episode: higher than any of a launch that is over, so that what such an array holds is never taken for a look
    of another launch.
    """

    def __init__(self) -> None:
        self.free: dict[int, list[Looked]] = {}
        self.first_episode = 1

    def take(self, lanes: int) -> Looked:
        """Return arrays for a number of lanes, in which there is no look of the launch that asks."""
        free = self.free.get(lanes)
        if free:
            return free.pop()
        return Looked(np.zeros(lanes, np.int64), np.zeros(lanes, np.int64), np.zeros(lanes))

    def give(self, run: Running) -> None:
        """Take the arrays of a launch that is over."""
        self.free.setdefault(run.launched.lanes, []).extend(run.seen.values())
        self.first_episode = max(self.first_episode, int(run.episode.max()) + 1)


@dataclass(slots=True)
class Best:
    """The step that ends last, of several; at a barrier row is the warp that came last, and step its step then."""

    time: float = LONG_AGO
    row: int = 0
    step: int = 0

    def raise_to(self, time: float, row: int) -> None:
        if time > self.time:
            self.time, self.row = time, row


@dataclass(slots=True, eq=False)
class Running:
    """A launched kernel. By warp: clock, when it goes on; last, its latest step on the way there; best_time and
    best_row, of what the end of the block waits for; outstanding, whether it has stored to other ranks since a fence;
    fenced, nothing but a fence since. first: the number of its first warp among those of all launches under way. ready:
    by a load's number, held: by a register under way, and entered: by one that was under way when the block began, each
    warp's step. episode: by lane, how often it did something else than to look. meetings: by unit (block and number of
    a barrier, cluster and phase), who came last. mbarriers: by block, place and phase. copies: by number; groups: by
    lane and number. lane_groups: of cp.async, by number each warp's latest step.
    """

    launched: Launched
    plan: Plan
    book: Book
    first: int
    per_block: int
    warps: int
    first_episode: int
    clock: Times = field(init=False)
    last: Rows = field(init=False)
    best_time: Times = field(init=False)
    best_row: Rows = field(init=False)
    outstanding: npt.NDArray[np.bool_] = field(init=False)
    fenced: npt.NDArray[np.bool_] = field(init=False)
    episode: Ids = field(init=False)
    seen: dict[int, Looked] = field(default_factory=dict)
    block: BlockPlan = _NO_BLOCK
    step_lanes: Group | None = None
    ready: list[Rows] = field(default_factory=list)
    held: dict[str, Rows] = field(default_factory=dict)
    entered: dict[str, Rows] = field(default_factory=dict)
    meetings: dict[tuple[str, int, int], Best] = field(default_factory=dict)
    mbarriers: dict[tuple[int, int, int], Best] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    completing: int = 0
    groups: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    lane_groups: dict[int, Rows] = field(default_factory=dict)
    ends: dict[int, Best] = field(default_factory=dict)
    began_us: float = 0.0
    first_row: int = 0
    last_copies: dict[int, Best] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = np.zeros(self.warps)
        self.last, self.best_row = (np.zeros(self.warps, np.int32) for _ in range(2))
        self.best_time = np.full(self.warps, LONG_AGO)
        self.outstanding, self.fenced = (np.zeros(self.warps, np.bool_) for _ in range(2))
        self.episode = np.full(self.launched.lanes, self.first_episode, np.int64)

    @property
    def warps_of_rank(self) -> int:
        """Number of warps of one rank."""
        return self.warps // len(self.launched.ranks)

    def start(self, steps: Steps, times: dict[int, tuple[float, int]]) -> None:
        """Begin at 0, or where the rank's launch before ended: times, by rank, with that step."""
        for place, rank in enumerate(self.launched.ranks):
            time, before = times.get(rank, (0.0, 0))
            at = slice(place * self.warps_of_rank, (place + 1) * self.warps_of_rank)
            row = steps.add(1, time=time, before=before, warp=self.first + at.start, kind=START)
            self.clock[at], self.last[at] = time, row
            self.first_row = self.first_row or row
        self.began_us = float(self.clock.min())

    def place(self, warp: int) -> tuple[int, int, int]:
        """Return rank, block and warp of the block, of a warp by its number here."""
        position, rest = divmod(warp, self.warps_of_rank)
        return (self.launched.ranks[position], *divmod(rest, self.per_block))

    # Times

    def moment(self, steps: Steps, warps: Warps, needs: tuple[int, ...], arrived: tuple[str, ...]) -> Any:
        """Return when an instruction can begin, and the step that it waits for, by warp."""
        time, row = self.clock[warps.at], self.last[warps.at]
        found = (self.entered[one] for one in arrived if one in self.entered)
        for rows in (*(self.ready[one] for one in needs), *found):
            mine = rows[warps.at]
            then = steps.time[mine]
            later = then > time
            if later.any():
                time, row = np.where(later, then, time), np.where(later, mine, row)
        return time, row

    def set_ready(self, number: int, warps: Warps, rows: Any) -> None:
        """Note the steps of a load that others of its block need."""
        while len(self.ready) <= number:
            self.ready.append(np.zeros(self.warps, np.int32))
        self.ready[number][warps.at] = rows

    def set_held(self, register: str, warps: Warps, rows: Any) -> None:
        """Note the steps of a load that stays under way."""
        if register not in self.held:
            self.held[register] = np.zeros(self.warps, np.int32)
        self.held[register][warps.at] = rows

    def await_rows(self, warps: Warps, time: Any, rows: Any) -> None:
        """Let the block's end wait for steps."""
        better = time > self.best_time[warps.at]
        if better.all():
            self.best_time[warps.at], self.best_row[warps.at] = time, rows
        elif better.any():
            self.best_time[warps.at] = np.where(better, time, self.best_time[warps.at])
            self.best_row[warps.at] = np.where(better, rows, self.best_row[warps.at])

    def go_on(self, at: Any, time: Any, rows: Any) -> None:
        """Let warps go on when steps are over, if that is later than they would."""
        later = time > self.clock[at]
        if later.all():
            self.clock[at], self.last[at] = time, rows
        elif later.any():
            self.clock[at] = np.where(later, time, self.clock[at])
            self.last[at] = np.where(later, rows, self.last[at])

    def begin_step(self, warps: Warps) -> None:
        """A block begins: keep what is under way, for its loads may use the same registers."""
        for name in self.block.enters:
            if name in self.held:
                if name not in self.entered:
                    self.entered[name] = np.zeros(self.warps, np.int32)
                self.entered[name][warps.at] = self.held[name][warps.at]
        for name in self.block.read:
            if name in self.held:
                self.held[name][warps.at] = 0

    def end_step(self, steps: Steps, warps: Warps) -> None:
        """A block is over: its warps wait for what it read."""
        at, block = warps.at, self.block
        self.go_on(at, self.best_time[at], self.best_row[at])
        self.best_time[at] = LONG_AGO
        for new, old in block.moves:
            if old in self.entered:
                self.set_held(new, warps, self.entered[old][at])
        for name in block.read:
            if name in self.entered:
                rows = self.entered[name][at]
                self.go_on(at, steps.time[rows], rows)

    # Meetings

    def latest(self, warps: Ids) -> int:
        """Return the one of the warps that goes on last."""
        return int(warps[int(np.argmax(self.clock[warps]))])


def warps_per_block(launched: Launched) -> int:
    """Return how many warps a block of a launch has."""
    return -(-launched.block // WARP)
