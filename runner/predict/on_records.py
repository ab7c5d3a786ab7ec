"""How far the model is from the times in any records: its errors, and how well it ranks what was measured of one size.

The model is asked for every timed case of our kernels, tunings on trial included (`two_shot@t512b4l8p`), with the
footprint of the measurement. Nothing is fitted to these records: the constants are those of the committed score.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cases.case import Case
from cases.record.record import Record
from kernels.catalogue import is_known
from kernels.tuned_name import has_tuning
from reports.table.sheet import Line, Sheet, text
from reports.table.text import counted
from runner.gpu.reading import gpu_type
from runner.predict.case_work import CaseWork
from runner.predict.evidence import gpu_of, is_evidence
from runner.predict.model import Floats, Rates, terms_of
from runner.predict.predictable import is_dependent
from runner.predict.profiles import Found, Profiles, Unprofiled
from runner.predict.rates import rates_of
from runner.predict.score import TIE
from runner.predict.stored_score import Stored

MEDIAN, RANKS = 0.08, 0.9
"""Goals: the median error is at most the first, the mean rank correlation within a size at least the second."""

FEWEST = 5
"""Number of cases of a size from which on a rank correlation is worth something."""

LINES = 10
"""Number of lines that tell how far the simulator is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A measured case. time_us: the median over its worlds; footprint_bytes: as in evidence.Measured."""

    gpu: str
    arch: str
    case: Case
    time_us: float
    footprint_bytes: float


@dataclass(frozen=True, slots=True)
class Scored:
    """A measured case and its predicted time, in microseconds."""

    asked: Asked
    predicted_us: float

    @property
    def error(self) -> float:
        """Return |predicted / measured - 1|."""
        return abs(self.predicted_us / self.asked.time_us - 1)

    @property
    def group(self) -> tuple[object, ...]:
        """Return what the cases that a choice is made among have in common."""
        case = self.asked.case
        return self.asked.gpu, case.op, case.dtype, case.world_size, case.placement, case.size_bytes


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


def asked_of(records: Iterable[Record]) -> list[Asked]:
    """Return the timed cases of the catalogue's kernels among records. ValueError without any."""
    worlds: dict[tuple[str, str, Case], list[Record]] = {}
    for one in records:
        name = f"{one.case.op}/{one.case.algorithm}"
        if is_evidence(one) and is_known(name) and not is_dependent(one.case.algorithm) and one.kernel is not None:
            worlds.setdefault((gpu_of(one), one.kernel.arch, one.case), []).append(one)
    if not worlds:
        raise ValueError("no record has a time of the catalogue's kernels that the model is of")
    return [_asked(*key, members) for key, members in worlds.items()]


def scored(
    asked: Sequence[Asked], profiled: Profiled, score: Stored, say: Callable[[str], None]
) -> tuple[list[Scored], dict[Case, str]]:
    """Return the model's word on measured cases, and of those that it has none on why."""
    found: list[Scored] = []
    problems: dict[Case, str] = {}
    by_arch: dict[str, list[Asked]] = {}
    for one in asked:
        by_arch.setdefault(one.arch, []).append(one)
    rates = {name: rates_of(gpu_type(name)).rates for name in {one.gpu for one in asked}}
    step = max(len(asked) // LINES, 1)
    done = 0
    for arch, members in by_arch.items():
        of: dict[Case, list[Asked]] = {}
        for one in members:
            of.setdefault(one.case, []).append(one)
        for case, work in profiled(arch, list(of)):
            if isinstance(work, Unprofiled):
                problems[case] = work.reason
            else:
                found += [Scored(one, predicted_us(work, one, rates[one.gpu], score)) for one in of[case]]
            done += 1
            if done % step == 0:
                say(f"{done} of {counted(len(asked), 'case')} simulated")
    return found, problems


def predicted_us(work: CaseWork, one: Asked, rates: Rates, score: Stored) -> float:
    """Return the model's time of a measured case, in microseconds."""
    return terms_of(work, rates, one.footprint_bytes).time_us(score.constants)


def report(found: Sequence[Scored], problems: Mapping[Case, str], width: int | None) -> str:
    """Return the errors as a table, by op and number of ranks, with a line for tunings and a verdict."""
    groups: dict[str, list[Scored]] = {}
    for one in found:
        case = one.asked.case
        groups.setdefault(f"{case.op} {case.dtype}, {case.world_size} ranks of {one.asked.gpu}", []).append(one)
    tunings = [one for one in found if has_tuning(one.asked.case.algorithm)]
    groups["tunings on trial"] = tunings
    groups["the catalogue's own"] = [one for one in found if not has_tuning(one.asked.case.algorithm)]
    groups["all"] = list(found)
    columns = (
        "measured",
        "cases",
        "median",
        "p95",
        "largest",
        "sizes",
        "rank correlation",
        "lowest",
        "regret",
        "right",
    )
    lines = tuple(Line(_cells(title, members)) for title, members in groups.items() if members)
    title = "Errors of the model, |predicted / measured - 1|, and of its order within a size"
    table = text([Sheet(title, columns, (lines,), frozenset(columns[1:]))], [], width).rstrip()
    said = [f"{case.id}: not predicted: {reason}" for case, reason in problems.items()]
    return "\n".join([table, "", *said, _verdict(tunings or found, found)])


def correlations(found: Sequence[Scored]) -> list[float]:
    """Return Spearman's correlation of predicted and measured times within each size of FEWEST cases at least."""
    groups: dict[tuple[object, ...], list[Scored]] = {}
    for one in found:
        groups.setdefault(one.group, []).append(one)
    return [
        spearman([one.predicted_us for one in members], [one.asked.time_us for one in members])
        for members in groups.values()
        if len(members) >= FEWEST
    ]


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two rows of values, -1 to 1; equal values share a rank. 0.0 for a row
    whose values are all equal."""
    first, second = _ranks(one), _ranks(other)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _asked(gpu: str, arch: str, case: Case, worlds: Sequence[Record]) -> Asked:
    times = [one.timing for one in worlds if one.timing is not None]
    time_us = statistics.median(one.median_us for one in times)
    return Asked(gpu, arch, case, time_us, float(times[0].footprint_bytes))


def _ranks(values: Sequence[float]) -> Floats:
    row = np.asarray(values, np.float64)
    below = (row[None, :] < row[:, None]).sum(axis=1)
    equal = (row[None, :] == row[:, None]).sum(axis=1)
    ranks: Floats = below + (equal - 1) / 2
    return ranks


def _cells(title: str, members: Sequence[Scored]) -> dict[str, str]:
    errors = np.array([one.error for one in members])
    found = correlations(members)
    groups: dict[tuple[object, ...], list[Scored]] = {}
    for one in members:
        groups.setdefault(one.group, []).append(one)
    regrets = [
        min(among, key=lambda one: one.predicted_us).asked.time_us / min(one.asked.time_us for one in among) - 1
        for among in groups.values()
        if len(among) > 1
    ]
    return {
        "measured": title,
        "cases": str(len(members)),
        "median": f"{np.median(errors):.1%}",
        "p95": f"{np.quantile(errors, 0.95):.1%}",
        "largest": f"{errors.max():.1%}",
        "sizes": str(len(groups)),
        "rank correlation": f"{statistics.mean(found):.3f}" if found else "",
        "lowest": f"{min(found):.3f}" if found else "",
        "regret": f"{statistics.mean(regrets):.1%}" if regrets else "",
        "right": f"{sum(one <= TIE for one in regrets) / len(regrets):.0%}" if regrets else "",
    }


def _verdict(members: Sequence[Scored], found: Sequence[Scored]) -> str:
    """The goals, reached or not: the error of tunings on trial where there are any, and the order of all cases."""
    median, orders = statistics.median(one.error for one in members), correlations(found)
    mean = statistics.mean(orders) if orders else 0.0
    is_met = median <= MEDIAN and mean >= RANKS
    return (
        f"{counted(len(members), 'tuning')}: median error {median:.1%}; mean rank correlation {mean:.3f} of all cases "
        f"within {counted(len(orders), 'size')}; goals of {MEDIAN:.0%} and {RANKS}: {'' if is_met else 'not '}reached"
    )
