"""One case on its way to a record: refused, or made, run, judged and timed."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.finding import Finding, gravest_first, verdict_of
from cases.record.record import CHECK_WAS_OFF, Check, FabricInfo, Record, Status
from cases.record.timing import Timing
from cases.refusal import Refusal
from cases.stress import Stress
from memory.fabric import Executable, Traits
from runner.command.means import Means
from runner.command.plan import Job
from runner.command.subjects import Subject, subject_of
from runner.environment.host import now_text
from runner.request.schema import TimingMode
from runner.world.world import World

if TYPE_CHECKING:
    from runner.case.library_modules import Brought
    from runner.timing.combine import TimedResult


class Attempt:
    """One case on its way to a record."""

    def __init__(self, job: Job, case: Case) -> None:
        self.job = job
        self.case = case
        self.status = Status.FAILED
        self.reason = "it was not run"
        self.subject = Subject(job, case)
        self.traits: Traits | None = None
        self.timing: Timing | None = None
        self.refusal: Refusal | None = None
        self._check: Check | None = None
        self._counters: dict[str, Any] = {}
        self._findings: tuple[Finding, ...] | None = None
        self.begin()

    def choose(self) -> None:
        """Find what runs the case. Raises ValueError where that can't be told."""
        self.subject = subject_of(self.job, self.case)

    def begin(self) -> None:
        """The case's time begins now. Starting a world, which others use as well, is not part of it."""
        self._started = now_text()
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

    def is_to_be_timed(self, means: Means) -> bool:
        """Whether it is one of those that are timed together, by what it has come to so far."""
        if means.measured is None or self.traits is None or self.traits.simulated:
            return False
        request = self.job.request
        return request.stress == Stress.none and request.timing.mode != TimingMode.none and self.verified

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
        return Record(
            id=self.case.id,
            status=self.status,
            case=self.case,
            started=self._started,
            ended=now_text(),
            duration_s=round(time.monotonic() - self._started_s, 6),
            reason=self.reason,
            refusal=self.refusal,
            fabric=_fabric_info(self.traits, self.job.fabric_settings) if self.traits else None,
            kernel=self.subject.info(),
            check=self._check,
            findings=self._findings,
            counters=self._counters,
            timing=self.timing,
            library=self.subject.library,
            environment=self.job.environment(),
            request=dataclasses.replace(self.job.asked, kernel=self.subject.given()),
        )


def _fabric_info(traits: Traits, settings: dict[str, Any]) -> FabricInfo:
    names = {one.name for one in dataclasses.fields(FabricInfo)} - {"settings"}
    return FabricInfo(**{name: getattr(traits, name) for name in names}, settings=settings)
