"""The subject that an experiment of op=custom is, and how its runs are judged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symlab.checks.explore.blame import Wrong
from symlab.checks.explore.subject import Judgement, Subject, judgement_of
from symlab.checks.explore.trace import Layout, dtype_of

if TYPE_CHECKING:
    from runner.custom.description import CustomJob
    from runner.custom.nouns import Contents, CustomSpec
    from runner.custom.program import CustomPlan
    from runner.request.validate import ResolvedRequest
    from runner.world.threads import ThreadWorld
    from simulator.world import SimulatorOptions


def custom_subject(custom: CustomJob, request: ResolvedRequest, options: SimulatorOptions) -> Subject:
    """The kernel of an experiment of op=custom. Compiles it."""
    from runner.case.allocation import GUARD_BYTES
    from runner.custom.running import plan_of

    compiled = custom.compiled(options.arch)
    plan = plan_of(custom, compiled, seed=request.seed, launches=request.launches, is_checked=True)
    buffers = plan.spec.buffers
    layouts = {one.name: Layout(GUARD_BYTES, one.size_bytes // one.numel, dtype_of(one.dtype)) for one in buffers}
    spec = replace(custom.spec, buffers=buffers, reference=None)
    assert custom.expected is not None
    judge = partial(_custom_judged, plan, spec, custom.inputs, custom.expected)
    digest = plan.compiled.whole.digest
    return Subject(
        custom.case.id, digest, len(custom.inputs), options, request.deadline_s, judge, layouts, plan.launches
    )


def _custom_judged(
    plan: CustomPlan,
    spec: CustomSpec,
    inputs: tuple[Contents, ...],
    expected: tuple[Contents, ...],
    world: ThreadWorld,
    deadline_s: float,
    launches: int,
) -> Judgement:
    from runner.custom.judge import judged
    from runner.custom.program import run_custom

    found = judged(spec, inputs, expected, world.run(run_custom, replace(plan, launches=launches), deadline_s))
    one, wrong = found.check.first_mismatch, None
    if one is not None:
        itemsize = next(b.size_bytes // b.numel for b in spec.buffers if b.name == found.buffer)
        in_row = spec.launches * (1 + len(spec.then))
        wrong = Wrong(found.buffer, one.rank, one.index * itemsize, (one.launch + 1) * in_row - 1, in_row)
    judgement = judgement_of(found.check, wrong)
    if judgement.problem and found.buffer:
        return replace(judgement, problem=f"buffer {found.buffer}: {judgement.problem}")
    return judgement
