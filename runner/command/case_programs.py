"""A case's programs on a world: what its ranks bring home, and the check made of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cases.record.record import Check
from cases.record.timing import LinkLimit
from cases.stress import NO_STRESS, Stress
from kernels.spec import KernelSpec
from memory.fabric import Fabric, FabricError, Traits
from reports.table.text import counted
from runner.case.contestant import Contestant
from runner.request.schema import Limit
from runner.request.validate import ResolvedRequest
from runner.world.world import World

if TYPE_CHECKING:
    import torch

    from runner.case.library_modules import Brought
    from runner.case.program import RankOutcome
    from runner.custom.running import CompiledJob
    from runner.timing.combine import TimedResult
    from runner.timing.custom import CustomContestant


PATIENCE_S = 10.0
"""How long a kernel waits for another rank at most, before it reports that; less where the deadline is short."""


SLOWER = 10
"""How many times its expected time all samples of a size may take, on top of deadline_s for all the rest."""


def ran(world: World, contestant: Contestant, request: ResolvedRequest) -> Check | None:
    """Run a contestant on a world; return its check, None if the request asked for none."""
    return check_of(contestant, outcomes_of(world, contestant, request), request)


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


def patience_s(request: ResolvedRequest) -> float:
    """Return how long a kernel waits for another rank."""
    return min(PATIENCE_S, request.deadline_s / 3)


def read_traits(fabric: Fabric, _: object) -> Traits:
    """The smallest per-rank program: what the fabric can do."""
    return fabric.traits


def measured(
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


def brought(world: World, module: str) -> Brought:
    """Bring a library's module onto the ranks of a world."""
    from runner.case.library_modules import BUILD_LIMIT_S, LOAD_LIMIT_S, bring_module

    return world.run(bring_module, module, BUILD_LIMIT_S + LOAD_LIMIT_S)[0]
