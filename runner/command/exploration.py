"""A case under stress in many orders: one run of its program for each seed, until one goes wrong."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from cases.stress import Stress
from kernels.spec import KernelSpec, cases_in_turn
from runner.case.contestant import Contestant
from runner.request.validate import ResolvedRequest
from runner.world.world import World, WorldFailure
from simulator.options import Schedule

if TYPE_CHECKING:
    from runner.case.program import RankOutcome


def seeds_of(request: ResolvedRequest) -> tuple[int, ...]:
    """Return the seeds that a case under stress runs with: one in fair order and on GPUs, which have no seeds."""
    fabric = request.fabric
    has_orders = fabric.simulated and fabric.schedule != Schedule.fair and request.stress != Stress.dead_rank
    return tuple(range(fabric.seed, fabric.seed + (request.stress_seeds if has_orders else 1)))


def explored(
    world: World, contestant: Contestant, request: ResolvedRequest, patience_s: float, brings_output: bool
) -> list[RankOutcome]:
    """Run a contestant under what its case names, once for each seed; return what the ranks brought home.

    It ends with the first seed whose outputs are wrong, which the outcomes then name. Raises WorldFailure, which names
    the seed, for one that fails. deadline_s is for all of them together.
    """
    from cases.ops import collective
    from kernels.compile import executable
    from runner.case.stress import StressPlan, run_stressed

    case, spec, compiled = contestant.case, contestant.spec, contestant.executable
    assert isinstance(spec, KernelSpec)
    assert compiled is not None
    cases = cases_in_turn(spec, collective(case.op), case)
    others = tuple(executable(spec, one, compiled.arch, request.cache_dir) for one in cases[1:])
    plan = StressPlan(
        cases, spec, (compiled, *others), request.launches, request.check, patience_s, brings_output=brings_output
    )
    seeds, ends_s = seeds_of(request), time.monotonic() + request.deadline_s
    outcomes: list[RankOutcome] = []
    set_seed = getattr(world, "set_seed", None) if len(seeds) > 1 else None  # it has the first seed from the start
    try:
        for seed in seeds:
            if set_seed is not None:
                set_seed(seed)
            left_s = max(ends_s - time.monotonic(), 0.1)
            outcomes = _named(world.run(run_stressed, plan, left_s), seed, len(seeds))
            if any(one.check is not None and (one.check.wrong or one.check.guard_faults) for one in outcomes):
                break
    except WorldFailure as failure:
        if len(seeds) > 1:
            failure.seed, failure.message = seed, f"fabric.seed={seed}: {failure.message}"
            failure.args = (failure.message,)
        raise
    finally:
        if set_seed is not None:
            set_seed(request.fabric.seed)
    return outcomes


def _named(outcomes: list[RankOutcome], seed: int, seeds: int) -> list[RankOutcome]:
    """The outcomes; a check with faults names the seed in its first one."""
    if seeds == 1:
        return outcomes
    found = []
    for one in outcomes:
        if one.check is not None and (one.check.wrong or one.check.guard_faults):
            faults = (f"with fabric.seed={seed}", *one.check.guard_faults)
            one = dataclasses.replace(one, check=dataclasses.replace(one.check, guard_faults=faults))
        found.append(one)
    return found
