"""Runs what an order chooses, with wake-ups and a step budget. What is said when nothing can run is in waiting.py."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memory.fabric import DeadlineExceeded
from simulator.memory.space import Space
from simulator.options import Interleaving, Schedule
from simulator.run.machine import Batch
from simulator.run.orders import Accesses, Blocks, CopyStep, Fair, Order, Priority, Step, tears_of, whole_warps
from simulator.run.waiting import without_place

if TYPE_CHECKING:
    from simulator.run.choices import Choice

WAKE_EVERY = 64
"""Maximum number of steps between looks at spins; they are also looked at when nothing else can run."""
STEP_NS = 1000
"""How far a step moves the clocks that kernels can read. It makes waits with a time limit end, and measures nothing."""


@dataclass(slots=True)
class Scheduler:
    """Runs batches until nothing can change. A function of turns: trace is the same for the same ones.

    turns: orders.py says what each schedule chooses. choices: what was chosen, if records says so. is_launch_due: asked
    after each step whether another launch is to begin now; then run() returns False.
    """

    space: Space
    turns: Interleaving
    step_budget: int
    records: bool = False
    steps: int = 0
    trace: int = 0
    deadline: float | None = None
    aborted: BaseException | None = None  # set by another thread
    is_launch_due: Callable[[], bool] | None = None
    choices: list[Choice] = field(default_factory=list)
    order: Order = field(init=False)

    def __post_init__(self) -> None:
        self.order = order_of(self.turns)
        if self.turns.follows is not None:
            from simulator.memory.chance import Late
            from simulator.run.replayed import Replayed

            self.order = Replayed([one for one in self.turns.follows if not isinstance(one, Late)])
        self.space.clock_ns = STEP_NS
        self.space.events.step = 0

    def run(self, batches: list[Batch]) -> bool:
        """Run until every batch is done, asleep or waiting at barriers (True). Raises DeviceFault and DeadlineExceeded.

        Some orders stop as soon as some rank's kernel is done (False), so that this rank's host goes on while the
        kernels of others are still under way, as it would on GPUs.
        """
        since_wake = 0
        done = _done(batches)
        with np.errstate(all="ignore"):
            while True:
                since_wake += 1
                if since_wake >= WAKE_EVERY or not any(batch.ready for batch in batches):
                    since_wake = 0
                    woken = [batch.wake() for batch in batches]
                    if not any(woken) and not any(batch.ready for batch in batches):
                        if not any(batch.copies.under_way for batch in batches):
                            return True
                        self._move(replace(self.order.idle_move(batches), idle=True), batches)
                        continue
                self._check_budget(batches)
                self._take(self.order.turn(batches), batches)
                for one in self.order.moves(batches):
                    self._move(one, batches)
                if self.is_launch_due is not None and self.is_launch_due():
                    return False
                if _done(batches) > done:
                    done = _done(batches)
                    if self.order.returns():
                        if self.records:
                            from simulator.run.choices import Returned

                            self.choices.append(Returned())
                        return False

    def begun(self, launches: Iterable[tuple[int, int]], is_due: bool) -> None:
        """Keep that launches began, pairs of a rank and a number (choices.Began)."""
        if self.records:
            from simulator.run.choices import Began

            self.choices.append(Began(tuple(sorted(launches)), is_due))

    def _take(self, turn: Step, batches: list[Batch]) -> None:
        """Let lanes take a step."""
        batch = batches[turn.batch]
        if batch.launched.has_whole_lines:
            turn = whole_warps(batch, turn)
        lanes = turn.lanes
        if self.records:
            from simulator.run.recorded_choices import turn_of

            self.choices.append(turn_of(turn, batch))
        self.trace = zlib.crc32(f"{turn.batch} {turn.index} {int(lanes[0])} {len(lanes)}".encode(), self.trace)
        self.space.events.step = self.steps
        if self.turns.is_by_block:
            batch.run(turn.index, lanes)
        else:
            batch.tear = turn.tear
            self.space.shuffle = turn.shuffle
            batch.run(turn.index, lanes, batch.program.reach(turn.index, turn.accesses, tears_of(batch, turn)))
        self.steps += 1
        self.space.clock_ns += STEP_NS

    def _move(self, one: CopyStep, batches: list[Batch]) -> None:
        """Let copies move on."""
        if self.records:
            from simulator.run.recorded_choices import moved_of

            self.choices.append(moved_of(one, batches[one.batch]))
        copies = batches[one.batch].copies
        chosen = [copies.under_way[place] for place in one.copies]
        if one.lane >= 0:
            chosen = [copies.part(chosen[0], one.lane, 32)]
        copies.advance(chosen, one.tear)

    def _check_budget(self, batches: list[Batch]) -> None:
        if self.aborted is not None:
            raise self.aborted
        late = self.deadline is not None and self.steps % 16 == 0 and time.monotonic() > self.deadline
        if self.steps < self.step_budget and not late:
            return
        what, advice = "the deadline passed", []
        if not late:
            what = f"the step budget of {self.step_budget:,} ran out (fabric.step_budget)"
            advice = ["if the kernel ends, give a larger fabric.step_budget"]
        running = [
            (batch, int(groups[0][0]), found)
            for batch in batches
            for index, groups in sorted(batch.ready.items())
            for found in [one for block in batch.program.kernel.blocks[index:] for one in block.instructions][:1]
        ][:2]
        texts = [
            f"{batch.executable.name} on {batch.name(lane)} runs at {instruction.where()}"
            for batch, lane, instruction in running
        ]
        texts = [*(texts or ["no thread was ready"]), *without_place(batches)[:2], *advice]
        places = [batch.place_at(lane, instruction) for batch, lane, instruction in running]
        raise DeadlineExceeded(f"{what} after {self.steps:,} steps; {'; '.join(texts)}", places=places)


def order_of(turns: Interleaving) -> Order:
    """Return what chooses who takes the next turn."""
    if turns.schedule == Schedule.fair:
        return Fair()
    if turns.schedule == Schedule.priority:
        return Priority(turns.seed)
    if turns.schedule == Schedule.adversarial:
        from simulator.run.adversary import Adversarial

        return Adversarial(turns.seed, turns.is_by_block)
    return Blocks(turns.seed) if turns.is_by_block else Accesses(turns.seed)


def _done(batches: list[Batch]) -> int:
    """How many ranks' kernels are done."""
    return sum(not alive for batch in batches for alive in batch.rank_alive.values())
