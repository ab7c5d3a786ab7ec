"""From what the ranks measured to what records say: one Timing for each entrant, or why it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.catalogue import collective
from reports.record.record import Check, LinkLimit, Timing
from runner.case.check import merge, promise_of
from runner.timing.link import link_limit
from runner.timing.measure import EntrantTimes, MeasurePlan, RankMeasurement


@dataclass(frozen=True, slots=True)
class Timed:
    """What became of one entrant: a timing; or a check that found it wrong; or a problem in words."""

    timing: Timing | None = None
    wrong: Check | None = None
    problem: str = ""


def combine(
    plan: MeasurePlan, ranks: Sequence[RankMeasurement], limit: LinkLimit | None
) -> tuple[list[Timed], LinkLimit | None]:
    """One Timed for each entrant of the plan, from all ranks' measurements, and the links' limit.

    limit is what an earlier measurement of the same job found; it stands where this one did not measure it.
    """
    ranks = sorted(ranks, key=lambda one: one.rank)
    limit = link_limit([one.link for one in ranks]) or limit
    names = [entrant.case.algorithm for entrant in plan.entrants]
    devices = tuple({"before": one.device_before, "after": one.device_after} for one in ranks)
    found = []
    for index, name in enumerate(names):
        others = tuple(one for one in names if one != name)
        timed = _timed(plan, index, [one.entrants[index] for one in ranks])
        if timed.timing is not None:
            timing = replace(
                timed.timing, interleaved_with=others, limit=limit, devices=devices, l2_bytes=ranks[0].l2_bytes
            )
            timed = replace(timed, timing=timing)
        found.append(timed)
    return found, limit


def _timed(plan: MeasurePlan, index: int, rows: Sequence[EntrantTimes]) -> Timed:
    """One entrant's Timed from its rows, one a rank; what belongs to all entrants is not in it yet."""
    case = plan.entrants[index].case
    promise = promise_of(case)
    rounds = [
        [row.before for row in rows],
        *(list(checks) for checks in zip(*(row.after for row in rows), strict=True)),
    ]
    for checks in rounds:
        check = merge(case, promise, checks)
        if check.faults:
            return Timed(wrong=check)
    problem = next((row.problem for row in rows if row.problem), "")
    if problem or len(rounds) < 2:
        return Timed(problem=problem or "nobody looked at its results after timing")
    timing = Timing(
        mode=plan.timing.mode,
        window=plan.timing.window,
        l2=plan.timing.l2,
        slots=rows[0].slots,
        slot_bytes=rows[0].slot_bytes,
        warmup_calls=plan.timing.warmup * rows[0].calls_per_sample,
        calls_per_sample=rows[0].calls_per_sample,
        bus_factor=collective(case.op).bus_factor(case.world_size),
        samples_us=tuple(row.samples_us for row in rows),
        checked_before=sum(check.elements for check in rounds[0]),
        checked_after=sum(check.elements for checks in rounds[1:] for check in checks),
    )
    return Timed(timing=timing)
