"""Runs one job: each of its cases on a world, each ending as one record that is kept at once.

On a real fabric, what passed its check is then timed: all cases of one size together, interleaved, in one program run,
and their records are kept with that. With timing.predict the model's word on those times comes next, while nothing is
timed. A case that breaks its world costs that world and nothing more: the next case
gets a fresh one. Only an interrupt and a full disk get out of here.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cases.case import Case
from cases.finding import Finding, gravest_first, verdict_of
from cases.record.prediction import INTERRUPTED as NOT_PREDICTED
from cases.record.prediction import RecordedPrediction
from cases.record.record import (
    CHECK_WAS_OFF,
    INTERRUPTED,
    Check,
    FabricInfo,
    LinkLimit,
    Record,
    Status,
    Timing,
)
from cases.refusal import Refusal
from cases.stress import Stress
from kernels.baselines import Baseline
from kernels.compile_error import CompilationError
from memory.fabric import Executable, FabricError, Traits
from reports.table.text import counted, size_text
from runner.case.contestant import Contestant
from runner.case.memory_needed import measured_in_turns
from runner.command.means import Job, Means, read_traits, usual_means
from runner.command.subjects import Subject, subject_of
from runner.interrupt import shielded
from runner.request.schema import TimingMode
from runner.world.world import World, WorldFailure

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

    def preparing(self, what: str) -> AbstractContextManager[None]:
        """Within, something long is done that is part of no case; for the progress."""
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
        waiting: list[_Attempt] = []
        try:
            for case in cases:
                attempt = self._attempted(case)
                if waiting or self._is_to_be_timed(attempt):
                    waiting.append(attempt)
                else:
                    self._keep(attempt)
            to_be_timed = [attempt for attempt in waiting if self._is_to_be_timed(attempt)]
            if to_be_timed:
                self._time(to_be_timed)
                self._predict(to_be_timed)
            self._keep_all(waiting)
        except KeyboardInterrupt:
            for attempt in waiting:
                if attempt.status is Status.PASSED and attempt.timing is None:
                    attempt.reason = INTERRUPTED
                if attempt.timing is not None and attempt.prediction is None and self._predicts:
                    attempt.prediction = RecordedPrediction(reason=NOT_PREDICTED)
            self._keep_all(waiting)
            raise

    def _keep_all(self, waiting: list[_Attempt]) -> None:
        """Keep them in order, each once: what an interrupt leaves in the list is still to be kept."""
        while waiting:
            with shielded():
                self._keep(waiting[0])
                del waiting[0]

    def _keep(self, attempt: _Attempt) -> None:
        self._keeper.keep(attempt.record(), attempt.executable)

    def _attempted(self, case: Case) -> _Attempt:
        self._keeper.starting(case)
        attempt = _Attempt(self._job, case)
        try:
            attempt.subject = subject_of(self._job, case)
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
        except Exception as error:
            attempt.fail(Status.FAILED, _described(error))
        return attempt

    def _brought(self, module: str, world: World) -> Brought | None:
        """What came of bringing a module onto the ranks of this world; an unavailable module is tried once."""
        if not module or self._means.brought is None:
            return None
        known = self._modules.get(module)
        if known is not None and (known[0] is world or known[1].problem):
            return known[1]
        with self._keeper.preparing(f"bringing {module} to the ranks: what is not compiled yet takes minutes"):
            try:
                found = self._means.brought(world, module)
            except WorldFailure as failure:
                from runner.case.library_modules import Brought

                found = Brought(f"bringing {module} to the ranks: {failure.message.splitlines()[0]}")
        self._modules[module] = (world, found)
        return found

    def _is_to_be_timed(self, attempt: _Attempt) -> bool:
        traits = attempt.traits
        if self._means.measured is None or traits is None or traits.simulated:
            return False
        is_plain = self._job.request.stress == Stress.none
        return is_plain and self._job.request.timing.mode != TimingMode.none and attempt.verified

    def _time(self, attempts: Sequence[_Attempt]) -> None:
        """Time what passed, together. What breaks here breaks all of it: no time is honest then. Only
        what hangs costs itself alone."""
        try:
            ended = self._timed(attempts)
        except Exception as error:
            for attempt in attempts:
                attempt.fail(Status.FAILED, f"while timing: {_described(error)}{attempt.subject.hint}")
            return
        for attempt, one in zip(attempts, ended, strict=True):
            if isinstance(one.found, WorldFailure):
                after = (f"; {one.note}" if one.note else "") + attempt.subject.hint
                attempt.fail(Status(one.found.status), f"while timing: {one.found.message}{after}")
                continue
            attempt.take(one.found)
            if attempt.status is Status.PASSED and one.note:
                attempt.reason = one.note

    @property
    def _predicts(self) -> bool:
        return self._job.request.timing.predict and self._means.predicted is not None

    def _predict(self, attempts: Sequence[_Attempt]) -> None:
        """Ask the model for the times of what was timed. All samples of the size are taken, so that simulating disturbs
        none."""
        timed = [attempt for attempt in attempts if attempt.timing is not None]
        if not timed or not self._predicts:
            return
        size = size_text(timed[0].case.size_bytes)
        with self._keeper.preparing(f"predicting {counted(len(timed), 'case')} of {size} in the simulator"):
            for attempt in timed:
                assert attempt.timing is not None
                attempt.prediction = attempt.subject.predicted(self._means, attempt.timing)

    def _timed(self, attempts: Sequence[_Attempt]) -> list[Ended]:
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


class _Attempt:
    """One case on its way to a record."""

    def __init__(self, job: Job, case: Case) -> None:
        self.job = job
        self.case = case
        self.status = Status.FAILED
        self.reason = "it was not run"
        self.subject = Subject(job, case)
        self.traits: Traits | None = None
        self.timing: Timing | None = None
        self.prediction: RecordedPrediction | None = None
        self.refusal: Refusal | None = None
        self._check: Check | None = None
        self._counters: dict[str, Any] = {}
        self._findings: tuple[Finding, ...] | None = None
        self.begin()

    def begin(self) -> None:
        """The case's time begins now. Starting a world, which others use as well, is not part of it."""
        self._started = datetime.now(UTC)
        self._started_s = time.monotonic()

    def fail(self, status: Status, reason: str) -> None:
        self.status, self.reason, self._check, self.timing = status, reason, None, None

    @property
    def executable(self) -> Executable | None:
        """What was compiled for it; None of a baseline, and of what did not get so far."""
        return self.subject.contestant.executable if self.subject.contestant else None

    @property
    def verified(self) -> bool:
        """It ran, it was looked at, and it was right."""
        return self.status is Status.PASSED and self._check is not None

    def take(self, timed: TimedResult) -> None:
        """Let what timing found decide: a time, or no time and no PASSED."""
        if timed.wrong is not None:
            self.status, self._check = Status.WRONG, timed.wrong
            self.reason = f"while timing: {'; '.join(timed.wrong.faults)}"
        elif timed.timing is None:
            self.fail(Status.FAILED, f"while timing: {timed.problem}")
        else:
            self.timing = timed.timing

    def run(self, world: World, means: Means, module: Brought | None = None) -> None:
        """Refuse, or compile, run and judge. Raises WorldFailure, or whatever our own code gets wrong.

        module: what came of bringing what the subject needs onto the ranks.
        """
        assert self.traits is not None
        if refusal := self.subject.refusal(means, self.traits, module):
            self.fail(Status.REFUSED, str(refusal))
            self.refusal = refusal
            return
        self.subject.make(means, self.traits)
        try:
            check, where = self.subject.ran(world, means)
        finally:
            self._observe(world)
        self._judge(check, where)

    def _observe(self, world: World) -> None:
        """Take what the world counted and found during the run, also of one that failed."""
        self._counters = world.counters()
        if self.job.request.fabric.races:
            found = world.findings()
            self._findings = None if found is None else gravest_first(found)

    def _judge(self, check: Check | None, where: str) -> None:
        """Let the check (None: it was off) and the race checker decide how it ended. where: what faults are of."""
        if "of" in self._counters:  # which launches they are sums of
            self._counters["of"]["checked"] = self.job.request.launches if self.job.request.check else 0
        if self.job.request.fabric.races and self._findings is None:
            self.fail(Status.FAILED, "check.races asked for a race checker, and this world has none")
            return
        self._check = check
        faults = [*(check.faults if check is not None else ()), *verdict_of(self._findings or ())]
        if faults:
            self.status, self.reason = Status.WRONG, where + "; ".join(faults)
        else:
            self.status, self.reason = Status.PASSED, CHECK_WAS_OFF if check is None else ""

    def record(self) -> Record:
        ended = datetime.now(UTC)
        return Record(
            id=self.case.id,
            status=self.status,
            case=self.case,
            started=self._started.isoformat(timespec="milliseconds"),
            ended=ended.isoformat(timespec="milliseconds"),
            duration_s=round(time.monotonic() - self._started_s, 6),
            reason=self.reason,
            refusal=self.refusal,
            fabric=_fabric_info(self.traits, self.job.fabric_settings) if self.traits else None,
            kernel=self.subject.info(),
            check=self._check,
            findings=self._findings,
            counters=self._counters,
            timing=self.timing,
            prediction=self.prediction,
            library=self.subject.library,
            environment=self.job.environment(),
            request=dataclasses.replace(self.job.asked, kernel=self.subject.given()),
        )


def _traits(world: World, deadline_s: float) -> Traits:
    traits = world.run(read_traits, None, deadline_s)[0]
    assert isinstance(traits, Traits)
    return traits


def _refuse_other_nccl(wanted: Preloaded | None, traits: Traits) -> None:
    """FabricError if the ranks run another NCCL than the one that they were to load."""
    if wanted is not None and traits.nccl != wanted.version:
        found = f"NCCL {traits.nccl}" if traits.nccl else "no NCCL"
        raise FabricError(f"library.nccl is {wanted.path}, NCCL {wanted.version}, and the ranks have loaded {found}")


def _described(error: Exception) -> str:
    """An error that is not a world's: its message; for a programming error its place, too."""
    text = str(error).strip() or "no message"
    if isinstance(error, (ValueError, FabricError, OSError, CompilationError)):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = f" ({Path(last.filename).name}:{last.lineno})" if last else ""
    return f"{type(error).__name__}: {text}{place}"


def _fabric_info(traits: Traits, settings: dict[str, Any]) -> FabricInfo:
    names = {one.name for one in dataclasses.fields(FabricInfo)} - {"settings"}
    return FabricInfo(**{name: getattr(traits, name) for name in names}, settings=settings)
