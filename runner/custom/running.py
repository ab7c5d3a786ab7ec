"""Run a custom job on a world, and judge what came home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cases.case import Case
from memory.fabric import Executable
from runner.custom.judge import Judged, judged
from runner.custom.nouns import Fill
from runner.custom.program import CompiledCustom, CustomOutcome, CustomPlan, run_custom
from runner.request.validate import ResolvedRequest
from runner.world.world import World

if TYPE_CHECKING:
    from runner.custom.description import CustomJob


@dataclass(frozen=True, slots=True)
class CompiledJob:
    """A custom job with what was compiled of its kernel."""

    job: CustomJob
    compiled: CompiledCustom

    @property
    def case(self) -> Case:
        return self.job.case

    @property
    def executable(self) -> Executable:
        return self.compiled.whole

    def outcomes(self, world: World, request: ResolvedRequest) -> list[CustomOutcome]:
        """Run it; return what each rank brought home, by rank. Raises WorldFailure, as the world's run does."""
        plan = plan_of(self.job, self.compiled, seed=request.seed, launches=request.launches, is_checked=request.check)
        return world.run(run_custom, plan, request.deadline_s)

    def judged(self, outcomes: Sequence[CustomOutcome]) -> Judged:
        """Return the check of a job that has a reference."""
        assert self.job.expected is not None
        return judged(self.job.spec, self.job.inputs, self.job.expected, outcomes)


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
