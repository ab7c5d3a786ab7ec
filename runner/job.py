"""Runs one job: each of its cases on a world, each ending as one record that is kept at once.

A case that breaks its world costs that world and nothing more: the next case gets a fresh one. Only an interrupt and a
full disk get out of here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from kernels.catalogue import find
from kernels.spec import Case, KernelSpec
from memory.fabric import Executable, Fabric, FabricError, Traits
from reports.record import CHECK_WAS_OFF, Check, FabricInfo, KernelInfo, Record, Status
from runner.config import Request
from runner.world import World, WorldFailure


class Keeper(Protocol):
    """What a job needs from the command it belongs to."""

    def world(self) -> World:
        """A healthy world for this job: the kept one, or a new one after a failure."""
        ...

    def starting(self, case: Case) -> None:
        """A case begins; for the progress."""
        ...

    def keep(self, record: Record, executable: Executable | None) -> None:
        """Store a finished case. Raises StoreError, which ends the command."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """How a job does its work; tests put their own in."""

    refuses: Callable[[KernelSpec, Case, Traits], str | None]
    compiled: Callable[[KernelSpec, Case, str, Path], Executable]
    ran: Callable[[World, Case, Executable, Request], Check | None]


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a command: its cases, and what every record of it says beside the outcome."""

    request: Request
    cases: tuple[Case, ...]
    fabric_settings: dict[str, Any]
    environment: Callable[[], dict[str, Any]]
    asked: dict[str, Any]


def run_job(job: Job, keeper: Keeper, means: Means | None = None) -> None:
    """Run all cases of a job in order. Raises only what keeper.keep raises, and KeyboardInterrupt."""
    means = means or usual_means()
    traits: Traits | None = None
    for case in job.cases:
        keeper.starting(case)
        attempt = _Attempt(job, case)
        try:
            world = keeper.world()
            if traits is None:
                traits = _traits(world, job.request.deadline_s)
            attempt.traits = traits
            attempt.run(world, means)
        except WorldFailure as failure:
            attempt.fail(Status(failure.status), _where(failure))
        except Exception as error:
            attempt.fail(Status.FAILED, _described(error))
        keeper.keep(attempt.record(), attempt.executable)


class _Attempt:
    """One case on its way to a record."""

    def __init__(self, job: Job, case: Case) -> None:
        self.job = job
        self.case = case
        self.status = Status.FAILED
        self.reason = "it was not run"
        self.traits: Traits | None = None
        self.executable: Executable | None = None
        self._check: Check | None = None
        self._counters: dict[str, Any] = {}
        self._started = datetime.now(UTC)
        self._started_s = time.monotonic()

    def fail(self, status: Status, reason: str) -> None:
        self.status, self.reason, self._check = status, reason, None

    def run(self, world: World, means: Means) -> None:
        """Refuse, or compile, run and judge. Raises WorldFailure, or whatever our own code gets wrong."""
        assert self.traits is not None
        spec = find(self.case.name)
        refusal = means.refuses(spec, self.case, self.traits)
        if refusal:
            self.fail(Status.REFUSED, refusal)
            return
        request = self.job.request
        self.executable = means.compiled(spec, self.case, self.traits.arch, request.cache_dir)
        try:
            check = means.ran(world, self.case, self.executable, request)
        finally:
            self._counters = world.counters()
        self._check = check
        if check is None:
            self.status, self.reason = Status.PASSED, CHECK_WAS_OFF
        elif check.faults:
            self.status, self.reason = Status.WRONG, "; ".join(check.faults)
        else:
            self.status, self.reason = Status.PASSED, ""

    def record(self) -> Record:
        ended = datetime.now(UTC)
        return Record(
            id=self.case.id,
            status=self.status,
            case=dataclasses.asdict(self.case),
            started=self._started.isoformat(timespec="milliseconds"),
            ended=ended.isoformat(timespec="milliseconds"),
            duration_s=round(time.monotonic() - self._started_s, 6),
            reason=self.reason,
            fabric=_fabric_info(self.traits, self.job.fabric_settings) if self.traits else None,
            kernel=_kernel_info(self.case, self.executable) if self.executable else None,
            check=self._check,
            counters=self._counters,
            environment=self.job.environment(),
            request=self.job.asked,
        )


def usual_means() -> Means:
    """The catalogue's refusals, the compiler with its cache, the per-rank program. Imports all of them."""
    from kernels.compile import executable
    from kernels.spec import refuses
    from runner.check import merge
    from runner.program import Plan, run_case

    def ran(world: World, case: Case, compiled: Executable, request: Request) -> Check | None:
        plan = Plan(case, compiled, launches=request.launches, check=request.check)
        outcomes = world.run(run_case, plan, request.deadline_s)
        checks = [outcome.check for outcome in outcomes if outcome.check is not None]
        if not request.check:
            return None
        if len(checks) != case.world_size:
            raise FabricError(f"{len(checks)} of {case.world_size} ranks brought a check home")
        return merge(case, find(case.name), checks)

    return Means(refuses=refuses, compiled=executable, ran=ran)


def read_traits(fabric: Fabric, _: object) -> Traits:
    """The smallest per-rank program: what the fabric can do."""
    return fabric.traits


def _traits(world: World, deadline_s: float) -> Traits:
    traits = world.run(read_traits, None, deadline_s)[0]
    assert isinstance(traits, Traits)
    return traits


def _where(failure: WorldFailure) -> str:
    """A failure's message with its rank, unless the message names it."""
    message = str(failure.message)
    if failure.rank is None or re.search(rf"\brank {failure.rank}\b", message):
        return message
    return f"rank {failure.rank}: {message}"


def _described(error: Exception) -> str:
    """An error that is not a world's: its message; for a programming error its place, too."""
    text = str(error).strip() or "no message"
    if isinstance(error, (ValueError, FabricError, OSError)):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    place = f" ({Path(last.filename).name}:{last.lineno})" if last else ""
    return f"{type(error).__name__}: {text}{place}"


def _fabric_info(traits: Traits, settings: dict[str, Any]) -> FabricInfo:
    return FabricInfo(
        name=traits.name,
        arch=traits.arch,
        world_size=traits.world_size,
        heap_bytes=traits.heap_bytes,
        multicast=traits.multicast,
        multicast_reason=traits.multicast_reason,
        simulated=traits.simulated,
        description=traits.description,
        settings=settings,
    )


def _kernel_info(case: Case, executable: Executable) -> KernelInfo:
    from kernels.compile import COMPILER, compiler_versions, source_digest

    spec = find(case.name)
    launch = spec.launch(case)
    return KernelInfo(
        name=executable.name,
        entry=executable.entry,
        arch=executable.arch,
        ptx_digest=executable.digest,
        cubin_digest=f"sha256:{hashlib.sha256(executable.cubin).hexdigest()}" if executable.cubin else "",
        source_digest=f"sha256:{source_digest(spec)}",
        compiler=f"{COMPILER} {compiler_versions().get(COMPILER, '(not installed)')}",
        grid=launch.grid,
        block=launch.block,
        multimem=_multimem(executable.ptx),
    )


@cache
def _multimem(ptx: str) -> tuple[str, ...]:
    return tuple(sorted(set(re.findall(r"\bmultimem\.[\w.:]+", ptx))))
