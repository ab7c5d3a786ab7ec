"""From what ranks measured to timings: the parent's half of measure.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases import ops
from cases.record.record import Check
from cases.record.timing import LinkLimit, Timing, Window
from kernels.baselines import Baseline
from runner.case.check import merge
from runner.case.contestant import Contestant
from runner.timing.custom import CustomContestant, custom_wrong
from runner.timing.link import link_limit
from runner.timing.measure import MeasurePlan, RankMeasurement, RankTimes

if TYPE_CHECKING:
    from runner.custom.description import CustomJob


@dataclass(frozen=True, slots=True)
class TimedResult:
    """What became of one contestant: a timing; or a check that found it wrong; or a problem in words."""

    timing: Timing | None = None
    wrong: Check | None = None
    problem: str = ""


def combine(
    plan: MeasurePlan, ranks: Sequence[RankMeasurement], limit: LinkLimit | None, custom: CustomJob | None = None
) -> tuple[list[TimedResult], LinkLimit | None]:
    """One TimedResult for each contestant of the plan, from all ranks' measurements, and the links' limit.

    limit is what an earlier measurement of the same job found; it stands where this one did not measure it. custom is
    the job of a custom contestant.
    """
    ranks = sorted(ranks, key=lambda one: one.rank)
    limit = link_limit([one.link for one in ranks]) or limit
    devices = tuple({"before": one.device_before, "after": one.device_after} for one in ranks)
    found = []
    for index, contestant in enumerate(plan.contestants):
        rows = [one.contestants[index] for one in ranks]
        if isinstance(contestant, CustomContestant):
            assert custom is not None
            wrong = custom_wrong(contestant, custom.inputs, [row.wrong for row in rows])
            more: dict[str, Any] = {"bus_factor": 1.0, "moved_bytes": custom.moved_bytes}
        else:
            wrong, more = _wrong(contestant, rows), _of_case(plan, contestant, rows)
        problem = next((row.problem for row in rows if row.problem), "")
        if isinstance(contestant, Contestant) and len(rows[0].checks) < 2:
            problem = problem or "its results were not checked after timing"
        if wrong is not None or problem:
            found.append(TimedResult(wrong=wrong, problem="" if wrong is not None else problem))
            continue
        timing = Timing(
            mode=str(plan.timing.mode),
            window=str(Window.kernel),
            l2=str(plan.timing.l2),
            slots=rows[0].slots,
            slot_bytes=rows[0].slot_bytes,
            warmup_calls=plan.timing.warmup * rows[0].calls_per_sample,
            calls_per_sample=rows[0].calls_per_sample,
            samples_us=tuple(row.samples_us for row in rows),
            checked_before=sum(row.elements[0] for row in rows),
            checked_after=sum(row.elements[1] for row in rows),
            limit=limit,
            devices=devices,
            l2_bytes=ranks[0].l2_bytes,
            **more,
        )
        found.append(TimedResult(timing=timing))
    return found, limit


def _wrong(contestant: Contestant, rows: Sequence[RankTimes]) -> Check | None:
    """The first check of all ranks that found something wrong; None if all was right."""
    rounds = zip(*(row.checks for row in rows), strict=True)
    merged = (merge(contestant.case, contestant.spec, checks) for checks in rounds)
    return next((check for check in merged if check.faults), None)


def _of_case(plan: MeasurePlan, contestant: Contestant, rows: Sequence[RankTimes]) -> dict[str, Any]:
    """What a timing says of a case beside its samples: what it was interleaved with, the kernels of a library."""
    names = [one.case.algorithm for one in plan.contestants if isinstance(one, Contestant) and one is not contestant]
    ran = rows[0].kernels if isinstance(contestant.spec, Baseline) else ()
    return {
        "bus_factor": ops.collective(contestant.case.op).bus_factor(contestant.case.world_size),
        "interleaved_with": tuple(dict.fromkeys(names)),
        "kernels": tuple(one.name for one in ran) or None,
        "kernel_blocks": tuple(one.blocks for one in ran) or None,
    }
