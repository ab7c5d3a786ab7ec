"""Runs one job: each of its cases on a world, each ending as one record that is kept at once.

On a real fabric, what passed its check is then timed: all cases of one size together, interleaved, in one program run,
and their records are kept with that. A case that breaks its world costs that world and nothing more: the next case
gets a fresh one. Only an interrupt and a full disk get out of here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cases.case import Case
from cases.record.record import INTERRUPTED, Record, Status
from cases.record.timing import LinkLimit
from kernels.baselines import Baseline
from memory.fabric import Executable, FabricError, Traits
from runner.case.contestant import Contestant
from runner.case.memory_needed import measured_in_turns
from runner.command.attempt import Attempt
from runner.command.case_programs import read_traits
from runner.command.means import Means, usual_means
from runner.command.plan import Job
from runner.interrupt import shielded
from runner.world.world import World, WorldFailure, described

if TYPE_CHECKING:
    from runner.case.library_modules import Brought
    from runner.command.without_hanging import Ended
    from runner.custom.running import CompiledJob
    from runner.timing.combine import TimedResult
    from runner.world.preload import Preloaded


class Keeper(Protocol):
    """What a job needs from the command it belongs to."""

    def world(self) -> World:
        """A healthy world for this job: the kept one, or a new one after a failure."""
        ...

    def starting(self, case: Case) -> None:
        """A case begins; for the progress."""
        ...

    def preparing(self, what: str) -> None:
        """Something long begins that is part of no case; for the progress."""
        ...

    def keep(self, record: Record, executable: Executable | None) -> None:
        """Store a finished case. Raises StoreError, which ends the command."""
        ...


def run_job(job: Job, keeper: Keeper, means: Means | None = None) -> None:
    """Run all cases of a job in order. Raises only what keeper.keep raises, and KeyboardInterrupt."""
    run = _Run(job, keeper, means or usual_means())
    for _, cases in itertools.groupby(job.cases, key=lambda case: case.size_bytes):
        run.one_size(tuple(cases))


class _Run:
    """A job under way: what is known of its world."""

    def __init__(self, job: Job, keeper: Keeper, means: Means) -> None:
        self._job = job
        self._keeper = keeper
        self._means = means
        self._traits: Traits | None = None
        self._limit: LinkLimit | None = None
        self._modules: dict[str, tuple[World, Brought]] = {}

    def one_size(self, cases: Sequence[Case]) -> None:
        """Run the cases of one size; then time together what passed, and keep what had to wait for that, in order."""
        waiting: list[Attempt] = []
        try:
            for case in cases:
                attempt = self._attempted(case)
                if waiting or attempt.is_to_be_timed(self._means):
                    waiting.append(attempt)
                else:
                    self._keep(attempt)
            to_be_timed = [attempt for attempt in waiting if attempt.is_to_be_timed(self._means)]
            if to_be_timed:
                self._time(to_be_timed)
            self._keep_all(waiting)
        except KeyboardInterrupt:
            for attempt in waiting:
                if attempt.status is Status.PASSED and attempt.timing is None:
                    attempt.reason = INTERRUPTED
            self._keep_all(waiting)
            raise

    def _keep_all(self, waiting: list[Attempt]) -> None:
        """Keep them in order, each once: what an interrupt leaves in the list is still to be kept."""
        while waiting:
            with shielded():
                self._keep(waiting[0])
                del waiting[0]

    def _keep(self, attempt: Attempt) -> None:
        self._keeper.keep(attempt.record(), attempt.executable)

    def _attempted(self, case: Case) -> Attempt:
        self._keeper.starting(case)
        attempt = Attempt(self._job, case)
        try:
            attempt.choose()
            world = self._keeper.world()
            if self._traits is None:
                self._traits = _traits(world, self._job.request.deadline_s)
            attempt.traits = self._traits
            _refuse_other_nccl(self._job.request.fabric.nccl, self._traits)
            module = self._brought(attempt.subject.module(self._traits), world)
            if self._means.prepared is not None:
                self._means.prepared(self._traits)
            attempt.begin()
            attempt.run(world, self._means, module)
        except WorldFailure as failure:
            attempt.fail(Status(failure.status), failure.message)
            self._note_late(attempt, failure)
        except Exception as error:
            attempt.fail(Status.FAILED, described(error))
        return attempt

    def _note_late(self, attempt: Attempt, failure: WorldFailure) -> None:
        """Remember a library that did not end in time. A failure without errors is not of its own work."""
        if attempt.status is Status.TIMEOUT and attempt.subject.library and failure.errors:
            key, size_bytes = attempt.subject.but_size, attempt.case.size_bytes
            self._means.late[key] = min(size_bytes, self._means.late.get(key, size_bytes))

    def _brought(self, module: str, world: World) -> Brought | None:
        """What came of bringing a module onto the ranks of this world; an unavailable module is tried once."""
        if not module or self._means.brought is None:
            return None
        known = self._modules.get(module)
        if known is not None and (known[0] is world or known[1].problem):
            return known[1]
        self._keeper.preparing(f"bringing {module} to the ranks: what is not compiled yet takes minutes")
        try:
            found = self._means.brought(world, module)
        except WorldFailure as failure:
            from runner.case.library_modules import Brought

            found = Brought(f"bringing {module} to the ranks: {failure.message.splitlines()[0]}")
        self._modules[module] = (world, found)
        return found

    def _time(self, attempts: Sequence[Attempt]) -> None:
        """Time what passed, together. What breaks here breaks all of it: no time is honest then. Only
        what hangs costs itself alone."""
        try:
            ended = self._timed(attempts)
        except Exception as error:
            for attempt in attempts:
                attempt.fail(Status.FAILED, f"while timing: {described(error)}{attempt.subject.hint}")
            return
        for attempt, one in zip(attempts, ended, strict=True):
            if isinstance(one.found, WorldFailure):
                after = (f"; {one.note}" if one.note else "") + attempt.subject.hint
                attempt.fail(Status(one.found.status), f"while timing: {one.found.message}{after}")
                self._note_late(attempt, one.found)
                continue
            attempt.take(one.found)
            if attempt.status is Status.PASSED and one.note:
                attempt.reason = one.note

    def _timed(self, attempts: Sequence[Attempt]) -> list[Ended]:
        """What timing found of each attempt. Where not all fit the heap they take turns, and each one's timing names
        those that it was interleaved with."""
        from runner.command.without_hanging import timed_without_hanging

        contestants = [one for attempt in attempts if (one := attempt.subject.contestant) is not None]
        assert self._traits is not None
        cases = [contestant.case for contestant in contestants]
        ended: list[Ended] = []
        for turn in measured_in_turns(cases, self._traits.heap_bytes, self._job.brought):
            ended += timed_without_hanging([contestants[place] for place in turn], self._measured)
        return ended

    def _measured(self, contestants: Sequence[Contestant | CompiledJob]) -> list[TimedResult]:
        """Time contestants together, on a healthy world."""
        assert self._means.measured is not None
        world = self._keeper.world()
        for contestant in contestants:
            if isinstance(contestant, Contestant) and isinstance(contestant.spec, Baseline):
                self._brought(contestant.spec.module, world)
        found, self._limit = self._means.measured(world, contestants, self._job.request, self._limit)
        return found


def _traits(world: World, deadline_s: float) -> Traits:
    traits = world.run(read_traits, None, deadline_s)[0]
    assert isinstance(traits, Traits)
    return traits


def _refuse_other_nccl(wanted: Preloaded | None, traits: Traits) -> None:
    """FabricError if the ranks run another NCCL than the one that they were to load."""
    if wanted is not None and traits.nccl != wanted.version:
        found = f"NCCL {traits.nccl}" if traits.nccl else "no NCCL"
        raise FabricError(f"library.nccl is {wanted.path}, NCCL {wanted.version}, and the ranks have loaded {found}")
