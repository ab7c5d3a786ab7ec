"""What a command is to do: its jobs, each found possible before the first runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.environment.host import available_bytes
from runner.request.chooser import BEST
from runner.request.compose import ComposedJob, naming_job
from runner.request.launching import LaunchRequest
from runner.request.validate import MAX_DEVICE_HEAP_BYTES, MAX_HEAP_BYTES, Request, ResolvedRequest, check_heap
from runner.request_error import RequestError
from runner.world.fabrics import FabricRequest, HostOffer, look, resolve

if TYPE_CHECKING:
    from cases.case import Case
    from cases.record.request import RecordedEnvironment, RecordedRequest
    from kernels.spec import KernelSpec
    from runner.case.bringing import Brought
    from runner.custom.description import CustomJob
    from runner.custom.nouns import CustomSpec
    from runner.world.launcher import Outer


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A composed job that was found possible: its request with nothing left open, its cases, the kernels it brings."""

    composed: ComposedJob
    request: ResolvedRequest
    cases: tuple[Case, ...]
    brought: tuple[Brought, ...] = ()
    custom: CustomJob | None = None

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        """The brought kernels."""
        return tuple(one.spec for one in self.brought)


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a command: its cases, and what every record of it says beside the outcome.

    brought are kernels that do the cases of their name, in place of the catalogue's where that has the name, too.
    custom is the kernel of a job of op=custom, which does its one case.
    """

    request: ResolvedRequest
    cases: tuple[Case, ...]
    fabric_settings: dict[str, Any]
    environment: Callable[[], RecordedEnvironment]
    asked: RecordedRequest
    brought: tuple[KernelSpec, ...] = ()
    custom: CustomJob | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its command line and its jobs. fabric_lines say which fabric was taken and why.

    origin stands in the request of every record beside the rest: of a replay, what it repeats. launch is the launcher
    whose workers run the jobs; None: they run in this process. folder is where relative paths of brought kernels begin;
    None: the working folder.
    """

    arguments: tuple[str, ...]
    jobs: tuple[PreparedJob, ...]
    fabric_lines: tuple[str, ...]
    origin: dict[str, Any] = field(default_factory=dict)
    launch: LaunchRequest | None = None
    folder: Path | None = None

    @property
    def label(self) -> str:
        """A name for people: the experiments', or the ops'."""
        return "+".join(dict.fromkeys(job.composed.experiment or job.request.op for job in self.jobs))

    @property
    def case_count(self) -> int:
        return sum(len(job.cases) for job in self.jobs)


def prepare(
    arguments: Sequence[str],
    composed: Sequence[ComposedJob],
    outer: Outer | None = None,
    machine: Callable[[], HostOffer] | None = None,
    memory: Callable[[], int | None] | None = None,
    jobs_of_command: int | None = None,
    folder: Path | None = None,
) -> Command:
    """Look at all jobs before the first runs: the catalogue, the sizes, the fabric, the host's memory. RequestError for
    what can't be.

    outer is the launcher's world that this process leads, if there is one. machine says what there is here, else
    runner.world.fabrics.look does; memory returns the bytes that this process can still take (None: unknown), else
    runner.environment.host.available_bytes does. jobs_of_command is the command's number of jobs, if these are a part
    of them. folder is where relative paths of brought kernels begin (None: the working folder).
    """
    from kernels.catalogue import specs_of
    from runner.case.cases import cases_of, check_against_catalogue, resolved
    from runner.case.host_memory import NOTHING_KEPT, check_host_memory

    available = (memory or available_bytes)()

    decided: dict[tuple[FabricRequest, int], tuple[FabricRequest, str]] = {}
    jobs: list[PreparedJob] = []
    kept = NOTHING_KEPT
    for job in composed:
        with naming_job(job.number, jobs_of_command or len(composed), job.overrides):
            wanted = (job.request.fabric, job.request.world_size)
            if wanted not in decided:
                decided[wanted] = resolve(*wanted, machine=machine or look, outer=outer)
            if job.request.custom is not None:
                jobs.append(_prepared_custom(job, decided[wanted][0], available, folder))
                if outer is not None:
                    _check_joined(jobs[-1].request, jobs[0].request, outer)
                continue
            named, brought = _with_names(job.request, folder)
            specs = (*specs_of(named.op, named.algorithms), *(one.spec for one in brought))
            request = resolved(named, decided[wanted][0], specs)
            check_against_catalogue(request, specs)
            check_host_memory(request, available, specs, kept)
            if request.fabric.simulated:
                kept = kept.after(request, specs)
            if outer is not None:
                _check_joined(request, jobs[0].request if jobs else request, outer)
            jobs.append(PreparedJob(job, request, cases_of(request), brought))
    for key in ("records", "track"):
        if len({getattr(job.request, key) for job in jobs}) > 1:
            raise RequestError(f"one command has one value of {key}, the sweep has several ({key}), leave it out of it")
    lines = dict.fromkeys(f"fabric: {fabric.name}{_limits(fabric)} ({why})" for fabric, why in decided.values())
    return Command(tuple(arguments), tuple(jobs), tuple(lines), folder=folder)


def _with_names(request: Request, folder: Path | None) -> tuple[Request, tuple[Brought, ...]]:
    """See bringing.with_names; most requests bring nothing."""
    if all(":" not in name for name in request.algorithms) and BEST not in request.algorithms:
        return request, ()
    from runner.case.bringing import with_names

    return with_names(request, folder)


def _limits(fabric: FabricRequest) -> str:
    """Whose limits simulated GPUs have, as the line of the fabric says it."""
    gpu = fabric.gpu if fabric.simulated else None
    return f", limits of {gpu.name}, {gpu.multiprocessors} multiprocessors" if gpu is not None else ""


def _prepared_custom(
    job: ComposedJob, fabric: FabricRequest, available: int | None, folder: Path | None
) -> PreparedJob:
    """A job of a custom kernel. RequestError for what can't be."""
    from runner.custom.description import custom_job
    from runner.custom.host_memory import check_memory

    asked = job.request
    assert asked.custom is not None
    if asked.algorithms != "auto" or asked.baselines not in ("auto", ()):
        key = "algorithms" if asked.algorithms != "auto" else "baselines"
        raise RequestError(f"op=custom has one kernel and no {key} ({key}), leave it at auto")
    check_heap(fabric, MAX_HEAP_BYTES if fabric.simulated else MAX_DEVICE_HEAP_BYTES)

    def fits(spec: CustomSpec, ptx: str) -> None:
        check_memory(spec, asked, fabric, available, ptx)

    custom = custom_job(asked.custom, asked.world_size, asked.seed, asked.check, folder, fits)
    known = {member.name for member in dataclasses.fields(asked)}  # a custom kernel has no algorithm to choose
    fields = {one.name: getattr(asked, one.name) for one in dataclasses.fields(ResolvedRequest) if one.name in known}
    case = custom.case
    fields |= {"algorithms": (case.algorithm,), "baselines": (), "fabric": fabric, "sizes_bytes": (case.size_bytes,)}
    fields |= {"dtype": case.dtype, "accumulator": case.accumulator, "reduction": case.reduction}
    request = ResolvedRequest(**fields)
    return PreparedJob(job, request, (case,), custom=custom)


def _check_joined(request: ResolvedRequest, first: ResolvedRequest, outer: Outer) -> None:
    """RequestError for what a launcher's world, of which there is only one, can't give."""
    if request.fabric != first.fabric:
        raise RequestError(f"{outer.launcher}'s world has one fabric for all jobs (fabric), leave it out of the sweep")
