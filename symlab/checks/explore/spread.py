"""A search on the workers of a launcher: seeds in parts, one part after another, up to the first run that fails.

Workers take parts in order. When a run fails, parts that were begun are finished and none after them begins: so the
failure that is reported is that of the lowest number, as in a search on one machine (symlab/checks/explore/search.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from reports.table.text import counted
from runner.launch.tasks import Answer, NoMore, Tasks, folder_for_tasks
from runner.launch.workers import workers_given
from runner.request.launching import LaunchRequest
from runner.request_error import RequestError
from symlab.checks.explore.helper import can_send
from symlab.checks.explore.search import LAST_RUN_S, Plan, Searched, Trial
from symlab.checks.explore.subject import Ran, run_once

PARTS_OF_A_WORKER = 8
"""Number of parts that each worker gets, so that all end at about the same time."""

MOST_PARTS = 10_000
"""Maximum number of parts: of a search without an end, as many parts of one seed."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a worker does with a part of the seeds (runner.launch.tasks.Do). ends_s is when the search's time is up, in
    seconds since 1970."""

    plan: Plan
    each: int
    ends_s: float | None

    def seeds(self, task: int) -> range:
        first = self.plan.first_seed + task * self.each
        last = first + self.each
        return range(first, last if self.plan.seeds is None else min(last, self.plan.first_seed + self.plan.seeds))

    def __call__(self, task: int) -> list[tuple[Trial, Ran]]:
        """Return the runs of a part, up to the first that fails, or to the end of the time. NoMore after that."""
        if self.ends_s is not None and time.time() >= self.ends_s:
            raise NoMore
        done: list[tuple[Trial, Ran]] = []
        begin = task * self.each * self.plan.runs_of_a_seed
        for trial in itertools.islice(self.plan.trials(), begin, begin + self.each * self.plan.runs_of_a_seed):
            left_s = float("inf") if self.ends_s is None else self.ends_s - time.time()
            if left_s <= 0:
                break
            ran = run_once(self.plan.subjects[trial.subject], trial.order, max(left_s, LAST_RUN_S))
            if ran.undecided and self.ends_s is not None and time.time() >= self.ends_s and done:
                break
            done.append((trial, ran))
            if ran.failure is not None:
                break
        return done


def search_on(
    launch: LaunchRequest, plan: Plan, tell: Callable[[Searched], None], folder: Path | None = None
) -> Searched:
    """Search on a launcher's workers; returns like Search.run. plan.processes is not heeded: the launcher's options say
    how many workers there are. RequestError for subjects that can't be sent to another process."""
    if problem := can_send(plan.subjects):
        raise RequestError(f"{problem} (--launcher), leave it out")
    workers = workers_given(launch)
    each = 1 if plan.seeds is None else -(-plan.seeds // (workers * PARTS_OF_A_WORKER))
    parts = MOST_PARTS if plan.seeds is None else -(-plan.seeds // each)
    part = _Part(plan, each, None if plan.seconds is None else time.time() + plan.seconds)
    done, started_s = Searched(processes=min(workers, parts)), time.monotonic()
    tasks = Tasks(launch, part, parts, folder or folder_for_tasks())
    try:
        with closing(iter(tasks)) as answers:
            for answer in answers:
                _take(done, part, answer)
                done.seconds = time.monotonic() - started_s
                tell(done)
                if done.found is not None or (plan.seconds is not None and done.seconds >= plan.seconds):
                    tasks.stop()
    except KeyboardInterrupt as interrupt:
        done.interrupt = interrupt
    done.seconds = time.monotonic() - started_s
    return done


def _take(done: Searched, part: _Part, answer: Answer) -> None:
    if answer.lost:
        seeds = part.seeds(answer.task)
        done.lost.append(f"{counted(len(seeds), 'seed')} from {seeds.start} on: not run: {answer.lost}")
        return
    for trial, ran in answer.result or ():
        done.runs += 1
        if ran.undecided:
            done.undecided.append(f"{trial.order}: {ran.undecided}")
        if ran.failure is not None and (done.found is None or trial.number < done.found[0].number):
            done.found = (trial, ran.failure)
