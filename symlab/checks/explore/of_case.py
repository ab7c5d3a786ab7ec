"""The subjects that an experiment's cases are, and how their runs are judged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runner.request_error import RequestError
from runner.world.fabrics import simulator_options
from symlab.checks.explore.blame import Wrong
from symlab.checks.explore.of_custom import custom_subject
from symlab.checks.explore.subject import Judgement, Subject, judgement_of
from symlab.checks.explore.trace import Layout, dtype_of

if TYPE_CHECKING:
    from cases.case import Case
    from cases.record.record import Check
    from runner.case.contestant import Contestant
    from runner.command.plan import PreparedJob
    from runner.request.validate import ResolvedRequest
    from runner.world.threads import ThreadWorld
    from simulator.world import SimulatorOptions


def subject_of(job: PreparedJob, case: Case) -> Subject:
    """What is explored of a case. Compiles its kernel."""
    from kernels.spec import KernelSpec
    from runner.case.contestant import Contestant, spec_for
    from runner.command.means import usual_means

    options, request = simulator_options(job.request.fabric), job.request
    if (custom := job.custom) is not None:
        return custom_subject(custom, request, options)
    spec = spec_for(case, job.specs)
    if not isinstance(spec, KernelSpec):
        raise RequestError(f"{case.id} is a library's (baselines), an exploration takes kernels")
    made = usual_means().compiled(spec, case, options.arch, request.cache_dir)
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
    from runner.command.case_programs import check_of, outcomes_of

    # Under stress one seed, which is that of the world's order, not the first of the request's.
    request = replace(request, launches=launches, deadline_s=deadline_s, stress_seeds=1)
    check = check_of(contestant, outcomes_of(world, contestant, request), request)
    return judgement_of(check, _wrong(contestant, check))


def _wrong(contestant: Contestant, check: Check | None) -> Wrong | None:
    from cases.stress import NO_STRESS, parts_of
    from runner.case.layout import layout_of
    from runner.case.program import launches_between

    if check is None or check.first_mismatch is None:
        return None
    case, one = contestant.case, check.first_mismatch
    layout = layout_of(case)
    name = "input" if layout.in_place else "output"
    start = layout.output_starts[one.rank]
    launch = one.launch * (launches_between(case) + 1)
    if case.stress != NO_STRESS:  # the first slot's, which odd ranks launch behind the other one of two streams
        name, launch = f"{name} 0", int("two_streams" in parts_of(case.stress) and one.rank % 2)
    return Wrong(name, one.rank, start + one.index * case.itemsize, launch)
