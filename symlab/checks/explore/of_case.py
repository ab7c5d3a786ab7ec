"""The subjects that an experiment's cases are, and how their runs are judged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runner.request_error import RequestError
from runner.world.fabrics import simulator_options
from symlab.checks.explore.blame import Wrong
from symlab.checks.explore.subject import Judgement, Subject
from symlab.checks.explore.trace import Layout, dtype_of

if TYPE_CHECKING:
    from cases.case import Case
    from cases.record.record import Check
    from runner.case.contestant import Contestant
    from runner.command.plan import PreparedJob
    from runner.custom.description import CustomJob
    from runner.custom.nouns import Contents, CustomSpec
    from runner.custom.program import CustomPlan
    from runner.request.validate import ResolvedRequest
    from runner.world.threads import ThreadWorld
    from simulator.world import SimulatorOptions


def subject_of(job: PreparedJob, case: Case) -> Subject:
    """What is explored of a case. Compiles its kernel."""
    from kernels.compile import executable
    from kernels.spec import KernelSpec
    from runner.case.contestant import Contestant, spec_for
    from runner.command.means import usual_means
    from runner.custom.running import plan_of

    options, request = simulator_options(job.request.fabric), job.request
    if (custom := job.custom) is not None:
        compiled = custom.compiled(options.arch)
        plan = plan_of(custom, compiled, seed=request.seed, launches=request.launches, is_checked=True)
        return custom_subject(custom, plan, options, request.deadline_s)
    usual_means()
    spec = spec_for(case, job.specs)
    if not isinstance(spec, KernelSpec):
        raise RequestError(f"{case.id} is a library's (baselines), an exploration takes kernels")
    made = executable(spec, case, options.arch, request.cache_dir)
    return case_subject(Contestant(case, spec, made), request, options)


def case_subject(contestant: Contestant, request: ResolvedRequest, options: SimulatorOptions) -> Subject:
    """A case of an experiment. options: of its simulated world."""
    from cases.stress import NO_STRESS
    from kernels.spec import SLOTS, KernelSpec
    from runner.case.allocation import GUARD_BYTES, tables_of
    from runner.case.layout import layout_of

    case, spec, made = contestant.case, contestant.spec, contestant.executable
    assert isinstance(spec, KernelSpec)
    assert made is not None
    payload = Layout(GUARD_BYTES + layout_of(case).offset_bytes, case.itemsize, dtype_of(case.dtype))
    layouts = {one.name: Layout(GUARD_BYTES) for one in spec.workspaces(case)}
    layouts |= {words: Layout(0, 8) for words in tables_of(spec).values()}
    slots = [""] if case.stress == NO_STRESS else [f" {slot}" for slot in range(SLOTS)]
    layouts |= {name + slot: payload for name in ("input", "output") for slot in slots}
    judge = partial(_case_judged, contestant, request)
    return Subject(case.id, made.digest, case.world_size, options, request.deadline_s, judge, layouts, request.launches)


def _case_judged(
    contestant: Contestant, request: ResolvedRequest, world: ThreadWorld, deadline_s: float, launches: int
) -> Judgement:
    from runner.command.ran import check_of, outcomes_of

    # Under stress one seed, which is that of the world's order, not the first of the request's.
    request = replace(request, launches=launches, deadline_s=deadline_s, stress_seeds=1)
    check = check_of(contestant, outcomes_of(world, contestant, request), request)
    return _judgement(check, _wrong(contestant.case, check))


def _wrong(case: Case, check: Check | None) -> Wrong | None:
    from cases.stress import NO_STRESS, parts_of
    from runner.case.layout import layout_of
    from runner.case.program import launches_between

    if check is None or check.first_mismatch is None:
        return None
    one, layout = check.first_mismatch, layout_of(case)
    name = "input" if layout.in_place else "output"
    start = layout.output_starts[one.rank]
    launch = one.launch * (launches_between(case) + 1)
    if case.stress != NO_STRESS:  # the first slot's, which odd ranks launch behind the other one of two streams
        name, launch = f"{name} 0", int("two_streams" in parts_of(case.stress) and one.rank % 2)
    return Wrong(name, one.rank, start + one.index * case.itemsize, launch)


def custom_subject(custom: CustomJob, plan: CustomPlan, options: SimulatorOptions, deadline_s: float) -> Subject:
    """The kernel of an experiment of op=custom."""
    from runner.case.allocation import GUARD_BYTES

    buffers = plan.spec.buffers
    layouts = {one.name: Layout(GUARD_BYTES, one.size_bytes // one.numel, dtype_of(one.dtype)) for one in buffers}
    spec = replace(custom.spec, buffers=buffers, reference=None)
    assert custom.expected is not None
    judge = partial(_custom_judged, plan, spec, custom.inputs, custom.expected)
    digest = plan.compiled.whole.digest
    return Subject(custom.case.id, digest, len(custom.inputs), options, deadline_s, judge, layouts, plan.launches)


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
        wrong = Wrong(found.buffer, one.rank, one.index * itemsize, one.launch)
    judgement = _judgement(found.check, wrong)
    if judgement.problem and found.buffer:
        return replace(judgement, problem=f"buffer {found.buffer}: {judgement.problem}")
    return judgement


def _judgement(check: Check | None, wrong: Wrong | None) -> Judgement:
    assert check is not None
    launch = check.first_mismatch.launch if check.first_mismatch is not None else 0
    return Judgement("; ".join(check.faults), wrong, launch) if check.faults else Judgement()
