"""Runs under one order after another, in this process and in helpers, up to the first that fails.

Trials are numbered and handed out in order. When one fails, those before it are finished and none after it begins: so
the failure that is reported is that of the lowest number, however many processes there are.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from runner.environment.host import usable_cores
from simulator.options import Interleaving
from symlab.checks.explore.helper import Helper, can_send
from symlab.checks.explore.subject import Failure, Ran, Subject, run_once

HELP_AFTER_S = 1.0
"""Seconds of search before helpers are started: each takes some to import what it needs."""
HELP_FROM_S = 4.0
"""Seconds that must be left for it to be worth it."""
LAST_RUN_S = 1.0
"""Seconds that a run may have at the end of the time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: its number, the place of its subject, and its order."""

    number: int
    subject: int
    order: Interleaving


@dataclass(frozen=True, slots=True)
class Plan:
    """What is searched: the orders of one seed, and of those after it (seeds: their number; None: without end), each
    for all subjects."""

    subjects: Sequence[Subject]
    orders: Sequence[Interleaving]
    seeds: int | None
    seconds: float | None
    processes: int

    @property
    def first_seed(self) -> int:
        return self.orders[0].seed

    @property
    def runs(self) -> int | None:
        """Number of runs; None without an end."""
        return None if self.seeds is None else self.seeds * self.runs_of_a_seed

    @property
    def runs_of_a_seed(self) -> int:
        return len(self.subjects) * len(self.orders)

    def trials(self) -> Iterator[Trial]:
        """All trials, seed by seed."""
        seeds = itertools.count() if self.seeds is None else range(self.seeds)
        numbers = itertools.count()
        for seed in seeds:
            for order, subject in itertools.product(self.orders, range(len(self.subjects))):
                yield Trial(next(numbers), subject, replace(order, seed=order.seed + seed))


SECONDS = 60.0
"""How long an exploration takes if neither seeds nor seconds are given."""


def plan_of(
    subjects: Sequence[Subject],
    orders: Sequence[Interleaving],
    seeds: int | None,
    seconds: float | None,
    processes: int | None,
) -> Plan:
    """Return the plan of a request, with what it leaves open."""
    seconds = SECONDS if seconds is None and seeds is None else seconds
    return Plan(subjects, orders, seeds, seconds, processes or usable_cores())


@dataclass(slots=True)
class Searched:
    """What a search found: the failing trial of the lowest number, or none; how many runs were done, and how long.

    undecided: what was said of runs of which nothing is known. notes: remarks. interrupt: what ended it early.
    """

    found: tuple[Trial, Failure] | None = None
    runs: int = 0
    seconds: float = 0.0
    undecided: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    processes: int = 1
    interrupt: KeyboardInterrupt | None = None

    @property
    def decided(self) -> int:
        """Number of runs of which it is known how they end."""
        return self.runs - len(self.undecided)


class Search:
    """One search under way. tell is called between runs, at most every second or so, with what is done so far."""

    def __init__(
        self,
        plan: Plan,
        tell: Callable[[Searched], None] = lambda searched: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan = plan
        self.done = Searched()
        self._tell = tell
        self._clock = clock
        self._started_s = clock()
        self._lock = threading.Lock()
        self._trials = plan.trials()
        self._helpers: list[tuple[Helper, threading.Thread]] = []
        self._error: BaseException | None = None
        self._is_closed = False

    def run(self) -> Searched:
        """Search until a run fails, all are done, the time is up or an interrupt comes."""
        try:
            while (trial := self._next()) is not None:
                self._take(trial, run_once(self.plan.subjects[trial.subject], trial.order, self._left_s()))
                self._help()
                self.done.seconds = self._clock() - self._started_s
                self._tell(self.done)
            self._finish()
        except KeyboardInterrupt as interrupt:
            self.done.interrupt = interrupt
        finally:
            self._close()
            self.done.seconds = self._clock() - self._started_s
        if self._error is not None:
            raise self._error
        return self.done

    def _left_s(self) -> float:
        if self.plan.seconds is None:
            return float("inf")
        return max(self.plan.seconds - (self._clock() - self._started_s), LAST_RUN_S)

    def _is_over(self) -> bool:
        return self.plan.seconds is not None and self._clock() - self._started_s >= self.plan.seconds

    def _next(self) -> Trial | None:
        """Return the next trial; None if the search is over."""
        with self._lock:
            if self._is_closed or self._error is not None or (self._is_over() and self.done.runs):
                return None
            trial = next(self._trials, None)
            if trial is not None and self.done.found is not None and trial.number > self.done.found[0].number:
                return None
            return trial

    def _take(self, trial: Trial, ran: Ran) -> None:
        """Count a run that is done."""
        with self._lock:
            if ran.undecided and self._is_over() and self.done.runs:
                return  # cut short by the end of the time; the only run counts, as one that is undecided
            self.done.runs += 1
            if ran.undecided:
                self.done.undecided.append(f"{trial.order}: {ran.undecided}")
            before = self.done.found
            if ran.failure is not None and (before is None or trial.number < before[0].number):
                self.done.found = (trial, ran.failure)

    # Helpers

    def _help(self) -> None:
        """Start helpers once the search has gone on for a while and will go on for longer."""
        if self._helpers or self.plan.processes < 2 or self.done.found is not None:
            return
        elapsed_s = self._clock() - self._started_s
        if elapsed_s < HELP_AFTER_S or self._expected_s(elapsed_s) < HELP_FROM_S:
            return
        if problem := can_send(self.plan.subjects):
            self.done.notes.append(f"one process: {problem}")
            self.plan = replace(self.plan, processes=1)
            return
        for number in range(1, self.plan.processes):
            helper = Helper(self.plan.subjects)
            thread = threading.Thread(target=self._feed, args=(helper,), name=f"helper {number}", daemon=True)
            self._helpers.append((helper, thread))
            thread.start()
        self.done.processes = self.plan.processes

    def _expected_s(self, elapsed_s: float) -> float:
        """How long the rest takes at most."""
        left = [] if self.plan.seconds is None else [self.plan.seconds - elapsed_s]
        if self.plan.runs is not None and self.done.runs:
            left.append((self.plan.runs - self.done.runs) * elapsed_s / self.done.runs)
        return min(left, default=float("inf"))

    def _feed(self, helper: Helper) -> None:
        """Give a helper one trial after another, in a thread of its own."""
        while (trial := self._next()) is not None:
            try:
                self._take(trial, helper.ran(trial.subject, trial.order, self._left_s()))
            except BaseException as error:
                with self._lock:
                    self._error = self._error or error if not self._is_closed else None
                return

    def _finish(self) -> None:
        """Wait for trials that helpers still have."""
        for _, thread in self._helpers:
            while thread.is_alive() and not (self._is_over() and self.done.found is None):
                thread.join(0.1)

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
        for helper, thread in self._helpers:
            with contextlib.suppress(OSError):
                helper.close()
            thread.join(5.0)
