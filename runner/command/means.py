"""How a job does its work: compiling, running, judging and timing a case. What a job is, and what tests replace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.case import Case
from cases.ops import Collective
from cases.record.prediction import RecordedPrediction
from cases.record.record import Check
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.timing import LinkLimit, Timing
from cases.refusal import Refusal
from cases.stress import NO_STRESS, Stress
from kernels.spec import KernelSpec
from memory.fabric import Executable, Fabric, FabricError, Traits
from memory.held_interrupts import uninterrupted
from reports.table.text import counted
from runner.case.contestant import Contestant
from runner.request.gpu_types import NO_GPU, GpuAsked
from runner.request.schema import Limit
from runner.request.validate import ResolvedRequest
from runner.world.world import World
from symlab.rooms import part_of

if TYPE_CHECKING:
    import torch

    from runner.case.library_modules import Brought
    from runner.case.program import RankOutcome
    from runner.custom.description import CustomJob
    from runner.custom.running import CompiledJob
    from runner.timing.combine import TimedResult
    from runner.timing.custom import CustomContestant

PATIENCE_S = 10.0
"""How long a kernel waits for another rank at most, before it reports that; less where the deadline is short."""

SLOWER = 10
"""How many times its expected time all samples of a size may take, on top of deadline_s for all the rest."""


@dataclass(frozen=True, slots=True)
class Means:
    """How a job does its work; tests put their own in.

    measured times contestants of one size together; its last argument is the links' limit if it is known already,
    and it gives that back beside one TimedResult a contestant. Without it nothing is timed. brought brings a module
    that a library's baseline needs onto the ranks of a world. predicted gives the prediction beside a timing
    (timing.predict), and raises nothing; without it there is none. prepared is called, with what the fabric can do,
    before a case's time begins.
    """

    refuses: Callable[[KernelSpec, Collective, Case, Traits], Refusal | None]
    compiled: Callable[[KernelSpec, Case, str, Path], Executable]
    ran: Callable[[World, Contestant, ResolvedRequest], Check | None]
    measured: (
        Callable[
            [World, Sequence[Contestant | CompiledJob], ResolvedRequest, LinkLimit | None],
            tuple[list[TimedResult], LinkLimit | None],
        ]
        | None
    ) = None
    brought: Callable[[World, str], Brought] | None = None
    predicted: Callable[[Contestant, Timing, Job], RecordedPrediction] | None = None
    prepared: Callable[[Traits], None] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a command: its cases, and what every record of it says beside the outcome.

    brought are kernels that do the cases of their name, in place of the catalogue's where that has the name, too.
    custom is the kernel of a job of op=custom, which does its one case. gpu is the type of GPU that it asks for.
    """

    request: ResolvedRequest
    cases: tuple[Case, ...]
    fabric_settings: dict[str, Any]
    environment: Callable[[], RecordedEnvironment]
    asked: RecordedRequest
    brought: tuple[KernelSpec, ...] = ()
    custom: CustomJob | None = None
    gpu: GpuAsked = NO_GPU


def usual_means() -> Means:
    """The catalogue's refusals, the compiler with its cache, the per-rank programs.

    Imports all of them with what they import when they are called: seconds that would be in the first case's time.
    """
    with uninterrupted():
        import cases.code_digest  # noqa: F401
        import runner.case.check
        import runner.case.program  # noqa: F401
        from kernels.compile import executable
        from kernels.spec import refuses

    def ran(world: World, contestant: Contestant, request: ResolvedRequest) -> Check | None:
        return check_of(contestant, outcomes_of(world, contestant, request), request)

    return Means(
        refuses=refuses,
        compiled=executable,
        ran=ran,
        measured=_measured,
        brought=_brought,
        predicted=_predicted,
    )


def outcomes_of(
    world: World,
    contestant: Contestant,
    request: ResolvedRequest,
    inputs: tuple[torch.Tensor, ...] | None = None,
    brings_output: bool = False,
) -> list[RankOutcome]:
    """Run a contestant on a world; what each rank brought home, by rank. inputs, brings_output: as Plan's."""
    from runner.case.program import Plan, run_case

    if contestant.case.stress != NO_STRESS and isinstance(contestant.spec, KernelSpec):
        from runner.command.exploration import explored

        return explored(world, contestant, request, patience_s(request), brings_output)
    plan = Plan(
        contestant.case,
        contestant.spec,
        contestant.executable,
        launches=request.launches,
        check=request.check,
        patience_s=patience_s(request),
        inputs=inputs,
        brings_output=brings_output,
    )
    return world.run(run_case, plan, request.deadline_s)


def check_of(contestant: Contestant, outcomes: Sequence[RankOutcome], request: ResolvedRequest) -> Check | None:
    """Return the case's check, merged of what its ranks brought home; None if the request asked for none."""
    from runner.case.check import merge

    case = contestant.case
    checks = [outcome.check for outcome in outcomes if outcome.check is not None]
    if not request.check:
        return None
    if len(checks) != case.world_size:
        raise FabricError(f"{len(checks)} of {counted(case.world_size, 'rank')} brought a check home")
    check = merge(case, contestant.spec, checks)
    if case.stress != Stress.dead_rank.value:
        return check
    from runner.case.stress import unnamed_death

    fault = unnamed_death(outcomes)
    return dataclasses.replace(check, guard_faults=(*check.guard_faults, fault)) if fault else check


def _measured(
    world: World,
    contestants: Sequence[Contestant | CompiledJob],
    request: ResolvedRequest,
    limit: LinkLimit | None,
) -> tuple[list[TimedResult], LinkLimit | None]:
    """Time contestants of one size together. The deadline: deadline_s and SLOWER times what the samples should take."""
    from runner.timing.combine import combine
    from runner.timing.measure import MeasurePlan, expected_s, measure

    plan = MeasurePlan(
        tuple(one if isinstance(one, Contestant) else _of_custom(one, request.seed) for one in contestants),
        request.timing,
        patience_s=patience_s(request),
        link=limit is None and request.timing.limit == Limit.measured,
    )
    ranks = world.run(measure, plan, request.deadline_s + SLOWER * expected_s(plan))
    custom = next((one.job for one in contestants if not isinstance(one, Contestant)), None)
    return combine(plan, ranks, limit, custom)


def _of_custom(one: CompiledJob, seed: int) -> CustomContestant:
    """What ranks time of a custom job."""
    from runner.custom.running import plan_of
    from runner.timing.custom import CustomContestant

    assert one.job.expected is not None
    return CustomContestant(plan_of(one.job, one.compiled, seed=seed, launches=1, is_checked=True), one.job.expected)


def _brought(world: World, module: str) -> Brought:
    """Bring a library's module onto the ranks of a world."""
    from runner.case.library_modules import LOAD_LIMIT_S, ModulePlan, bring_module

    plan = ModulePlan(module)
    found = world.run(bring_module, plan, plan.limit_s + LOAD_LIMIT_S)[0]
    return found


def _predicted(contestant: Contestant, timing: Timing, job: Job) -> RecordedPrediction:
    """The model's word on a timed case, or the reason why it has none."""
    found: RecordedPrediction = part_of("timing.predict, of a timed case")(contestant, timing, job)
    return found


def patience_s(request: ResolvedRequest) -> float:
    """Return how long a kernel waits for another rank."""
    return min(PATIENCE_S, request.deadline_s / 3)


def read_traits(fabric: Fabric, _: object) -> Traits:
    """The smallest per-rank program: what the fabric can do."""
    return fabric.traits
