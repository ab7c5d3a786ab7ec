"""Run a custom job on a world, and judge what came home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.custom.judge import Judged, judged
from runner.custom.nouns import Fill
from runner.custom.program import CompiledCustom, CustomOutcome, CustomPlan, run_custom
from runner.request.validate import ResolvedRequest
from runner.world.world import World

if TYPE_CHECKING:
    from runner.custom.description import CustomJob


def outcomes_of_custom(
    world: World, custom: CustomJob, compiled: CompiledCustom, request: ResolvedRequest
) -> list[CustomOutcome]:
    """Return what each rank brought home, by rank. Raises WorldFailure, as the world's run does."""
    plan = plan_of(custom, compiled, seed=request.seed, launches=request.launches, is_checked=request.check)
    return world.run(run_custom, plan, request.deadline_s)


def judged_by(custom: CustomJob, outcomes: Sequence[CustomOutcome]) -> Judged:
    """Return the check of a job that has a reference."""
    assert custom.expected is not None
    return judged(custom.spec, custom.inputs, custom.expected, outcomes)


def plan_of(custom: CustomJob, compiled: CompiledCustom, *, seed: int, launches: int, is_checked: bool) -> CustomPlan:
    """Return what the ranks run. Functions stay here: what they fill is sent."""
    given = {
        one.name: tuple(contents[one.name] for contents in custom.inputs)
        for one in custom.spec.buffers
        if not isinstance(one.fill, Fill)
    }
    buffers = tuple(replace(one, fill=Fill.poison) if one.name in given else one for one in custom.spec.buffers)
    return CustomPlan(
        spec=replace(custom.spec, buffers=buffers, reference=None),
        compiled=compiled,
        seed=seed,
        launches=launches,
        brings=custom.compared if is_checked else (),
        given=given,
    )
