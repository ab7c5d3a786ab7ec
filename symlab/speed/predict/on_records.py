"""How far the model is from the times in any records: its errors, and how well it ranks what was measured of one size.

The model is asked for every timed case of our kernels, tunings on trial included (`two_shot@t512b4l8p`), with the
footprint of the measurement. Nothing is fitted to these records: the constants are those of the committed score.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cases.case import Case
from cases.gathered import gathered
from cases.record.record import Record
from kernels.catalogue import is_known
from kernels.tuned_name import has_tuning
from reports.table.sheet import one_here
from reports.table.text import counted
from runner.gpu.reading import gpu_type
from symlab.speed.predict.evidence import gpu_of, grouped, is_evidence, pooled
from symlab.speed.predict.profiles import Found, Profiles, Unprofiled
from symlab.speed.predict.rates import rates_of
from symlab.speed.predict.score import Pair, Score, errors_of, regret_of

MEDIAN, RANKS = 0.08, 0.9
"""Goals: the median error is at most the first, the mean rank correlation within a size at least the second."""

FEWEST = 5
"""Number of cases of a size from which on a rank correlation is worth something."""

LINES = 10
"""Number of lines that tell how far the simulator is."""


Profiled = Callable[[str, Sequence[Case]], Iterable[Found]]
"""Profiles of cases by today's kernels, for an architecture."""


def profiled_in(cache_dir: Path, processes: int) -> Profiled:
    """Return what makes profiles in processes, kept in cache_dir."""

    def profiled(arch: str, cases: Sequence[Case]) -> Iterable[Found]:
        profiler = Profiles(cache_dir, arch, processes)
        try:
            yield from profiler.of(cases)
        finally:
            profiler.close()

    return profiled


def worlds_of(records: Iterable[Record]) -> list[list[Record]]:
    """Return the timed cases of the catalogue's kernels among records, the worlds of each together. ValueError without
    any."""
    ours = [one for one in records if is_evidence(one) and is_known(f"{one.case.op}/{one.case.algorithm}")]
    if not ours:
        raise ValueError("no record has a time of the catalogue's kernels that the model is of")
    return grouped(ours, lambda one: (gpu_of(one), arch_of(one), one.case))


def arch_of(record: Record) -> str:
    """Return the architecture that a record's kernel was compiled for."""
    assert record.kernel is not None, "evidence has a kernel"
    return record.kernel.arch


def scored(
    worlds: Sequence[Sequence[Record]], profiled: Profiled, score: Score, say: Callable[[str], None]
) -> tuple[list[Pair], dict[Case, str]]:
    """Return measured cases with their predicted times, and why others have none."""
    found: list[Pair] = []
    problems: dict[Case, str] = {}
    rates = {name: rates_of(gpu_type(name)).rates for name in {gpu_of(one[0]) for one in worlds}}
    step = max(len(worlds) // LINES, 1)
    done = 0
    for members in grouped(worlds, lambda one: arch_of(one[0])):
        of = {same[0][0].case: same for same in grouped(members, lambda one: one[0].case)}
        for case, work in profiled(arch_of(members[0][0]), list(of)):
            if isinstance(work, Unprofiled):
                problems[case] = work.reason
            else:
                cases = [pooled(one, work, rates[gpu_of(one[0])]) for one in of[case]]
                found += [(one, one.terms.time_us(score.constants)) for one in cases]
            done += 1
            if done % step == 0:
                say(f"{done} of {counted(len(worlds), 'case')} simulated")
    return found, problems


def report(found: Sequence[Pair], problems: Mapping[Case, str]) -> str:
    """Return the errors as a table, by op and number of ranks, with a line for tunings and a verdict."""
    groups = gathered(
        (f"{pair[0].case.op} {pair[0].case.dtype}, {pair[0].case.world_size} ranks of {pair[0].gpu}", pair)
        for pair in found
    )
    tunings = [pair for pair in found if has_tuning(pair[0].case.algorithm)]
    groups["tunings on trial"] = tunings
    groups["the catalogue's own"] = [pair for pair in found if pair not in tunings]
    groups["all"] = list(found)
    lines = [{"measured": title, **_cells(members)} for title, members in groups.items() if members]
    title = "Errors of the model, |predicted / measured - 1|, and of its order within a size"
    table = one_here(title, lines, [*lines[0]][1:])
    said = [f"{case.id}: not predicted: {reason}" for case, reason in problems.items()]
    return "\n".join([table, "", *said, _verdict(tunings or found, found)])


def correlations(found: Sequence[Pair]) -> list[float]:
    """Return Spearman's rank correlation of predicted and measured times within each size of FEWEST cases at least;
    equal values share a rank, and where all of one side are equal it is 0.0."""
    from scipy import stats

    orders = []
    for members in grouped(found, lambda pair: pair[0].choice):
        measured_us, predicted_us = [one.time_us for one, _ in members], [us for _, us in members]
        if len(members) >= FEWEST:
            is_flat = len(set(measured_us)) < 2 or len(set(predicted_us)) < 2
            orders.append(0.0 if is_flat else float(stats.spearmanr(measured_us, predicted_us).statistic))
    return orders


def _cells(members: Sequence[Pair]) -> dict[str, str]:
    errors, regret, orders = errors_of(members), regret_of(members), correlations(members)
    assert errors is not None, "members are not empty"
    return {
        "cases": str(errors.cases),
        "median": f"{errors.median:.1%}",
        "p95": f"{errors.p95:.1%}",
        "largest": f"{errors.largest:.1%}",
        "sizes": str(len(grouped(members, lambda pair: pair[0].choice))),
        "rank correlation": f"{statistics.mean(orders):.3f}" if orders else "",
        "lowest": f"{min(orders):.3f}" if orders else "",
        "regret": f"{regret.mean:.1%}" if regret else "",
        "right": f"{regret.right:.0%}" if regret else "",
    }


def _verdict(members: Sequence[Pair], found: Sequence[Pair]) -> str:
    """The goals, reached or not: the error of tunings on trial where there are any, and the order of all cases."""
    errors, orders = errors_of(members), correlations(found)
    assert errors is not None, "members are not empty"
    mean = statistics.mean(orders) if orders else 0.0
    is_met = errors.median <= MEDIAN and mean >= RANKS
    return (
        f"{counted(len(members), 'tuning')}: median error {errors.median:.1%}; mean rank correlation {mean:.3f} of all "
        f"cases within {counted(len(orders), 'size')}; "
        f"goals of {MEDIAN:.0%} and {RANKS}: {'' if is_met else 'not '}reached"
    )
