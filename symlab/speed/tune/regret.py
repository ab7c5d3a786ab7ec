"""The regret of a table: how much slower its choice was than the quickest contestant beside it, size by size.

Which one is the quickest, one half of the turns says, and how much quicker it is, the other half (halves.py). Worlds
are pooled: each gives one ratio of times, and the interval is that of their mean. So it has what differs from world to
world, which is more than what differs from turn to turn. Beside the quickest of all stands the quickest of the
catalogue's own tunings, which needs no table.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cases.gathered import gathered
from cases.record.record import Record
from kernels.catalogue import is_known
from reports.record.intervals import median_interval
from reports.table.sheet import one_here
from reports.table.text import counted
from runner.request.chooser import BEST
from symlab.speed.tune.entries import is_own
from symlab.speed.tune.halves import choosing, judging
from symlab.speed.tuned.table import size_text

MOST, MEDIAN = 0.03, 0.01
"""Regrets: at no size does the interval lie above the first, and half of the sizes have the second at most."""

WORLDS = 3
"""Number of worlds that a verdict needs."""

SIZES = 20


@dataclass(frozen=True, slots=True)
class Ratio:
    """How much longer a choice took than another contestant, less 1: the mean over worlds with its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Regret:
    """At one size, over worlds: the table's choice beside the quickest contestant and beside the quickest of the
    catalogue's own tunings, both by the turns that choose. own is "" and beside_own None if no such tuning ran. us,
    quickest_us: in the turns that judge, the median over worlds, in microseconds."""

    record: Record
    worlds: int
    us: float
    quickest: str
    quickest_us: float
    ratio: Ratio
    own: str
    beside_own: Ratio | None
    was_searched: bool

    @property
    def share(self) -> float:
        """The choice's time over the quickest one's, less 1: 0 if it is the quickest itself, below 0 if it was quicker
        in the turns that judge."""
        return self.ratio.share

    @property
    def faults(self) -> list[str]:
        """Return what is surely wrong with the choice: more than MOST, or slower than the catalogue's own."""
        found = [f"surely above {MOST:.0%}"] if self.ratio.low > MOST else []
        if self.beside_own is not None and self.beside_own.low > 0:
            found.append(f"surely slower than {self.own}")
        return found


def regrets(records: Iterable[Record]) -> list[Regret]:
    """Return the regret of each timed choice of a table, by op and size. Contestants of one size of one job are
    compared: they were measured in turns, in one world. A choice that ran alone has no regret and is left out."""
    worlds: dict[tuple[object, ...], dict[str, Record]] = {}
    for record in records:
        case = record.case
        if record.timing is not None:
            what = (case.op, case.dtype, case.world_size, case.placement, case.size_bytes, case.gemm)
            world = (record.request.command, record.request.job, record.request.resumed)
            worlds.setdefault((what, world), {})[case.algorithm] = record
    by_choice = gathered(
        ((alike, name), members)
        for (alike, _), members in worlds.items()
        for name, record in members.items()
        if _chosen(record) is not None and len(members) > 1
    )
    found = [_regret(str(name), members) for (_, name), members in by_choice.items()]
    return sorted(found, key=lambda one: (one.record.case.op, one.record.case.dtype, one.record.case.size_bytes))


def report(found: Sequence[Regret], least_worlds: int = 1) -> tuple[str, bool]:
    """Return the regrets as a table with a summary, and whether all are as small as they should be. Sizes that the
    search measured itself don't count for that. least_worlds: number of worlds that each size needs. ValueError without
    a timed choice."""
    if not found:
        raise ValueError(
            "no record has a time of a table's choice with others beside it, run algorithms=[best,..] on GPUs first, "
            "or symlab tune --unseen"
        )
    numeric = ("ranks", "size", "worlds", "us", "its us", "regret", "beside it")
    table = one_here("regret of a table's choices", list(map(_row, found)), numeric)
    unseen = [one for one in found if not one.was_searched]
    if not unseen:
        return f"{table}\n\nall sizes are the search's own: give sizes that it did not measure", False
    said, is_small = _verdict(unseen, least_worlds)
    return f"{table}\n\n{said}", is_small


def unseen_sizes(low: int, high: int, step: int, seed: int = 0) -> tuple[int, ...]:
    """Return SIZES between low and high, at equal ratios, multiples of step and no powers of two. Another seed gives
    others: sizes by which rules of a search were changed judge them no more."""
    found: dict[int, None] = {}
    first = random.Random(seed).random() if seed else 0.5
    for number in range(SIZES):
        size = int(low * (high / low) ** ((number + first) / SIZES)) // step * step
        while size & (size - 1) == 0 or size in found:
            size += step
        if low <= size <= high:
            found[size] = None
    return tuple(found)


def _verdict(unseen: Sequence[Regret], least_worlds: int) -> tuple[str, bool]:
    """Say in some lines whether the regrets are small: by op where there are several."""
    ops = dict.fromkeys((one.record.case.op, one.record.case.world_size) for one in unseen)
    said, are_small = [], True
    for op, ranks in ops:
        mine = [one for one in unseen if (one.record.case.op, one.record.case.world_size) == (op, ranks)]
        median, most = statistics.median(one.share for one in mine), max(one.share for one in mine)
        worlds = min(one.worlds for one in mine)
        faults = [f"{size_text(one.record.case)} {fault}" for one in mine for fault in one.faults]
        if median > MEDIAN:
            faults.insert(0, f"the median is above {MEDIAN:.0%}")
        if worlds < least_worlds:
            faults.append(f"{counted(least_worlds, 'world')} are needed")
        are_small &= not faults
        said.append(
            f"{op} on {ranks}: {counted(len(mine), 'size')} that the search did not measure, {counted(worlds, 'world')}"
            f": median regret {median:.1%}, largest {most:.1%}; {'; '.join(faults) or 'passed'}"
        )
    return "\n".join(said), are_small


def _regret(name: str, worlds: Sequence[Mapping[str, Record]]) -> Regret:
    """The regret of a choice at one size, by the worlds that it ran in."""
    common = [one for one in worlds[0] if all(one in members for members in worlds)]
    quickest = min(common, key=lambda one: _mean_log(worlds, one))
    own = [one for one in common if is_own(one) and is_known(f"{worlds[0][one].case.op}/{one}")]
    best_own = min(own, key=lambda one: _mean_log(worlds, one)) if own else ""
    record = worlds[0][name]
    searched = (_chosen(record) or {}).get("searched")
    size = searched.get("size_bytes") if isinstance(searched, Mapping) else None
    return Regret(
        record=record,
        worlds=len(worlds),
        us=statistics.median(_median_us(members[name], judging) for members in worlds),
        quickest=quickest,
        quickest_us=statistics.median(_median_us(members[quickest], judging) for members in worlds),
        ratio=_ratio(worlds, name, quickest),
        own=best_own,
        beside_own=_ratio(worlds, name, best_own) if best_own else None,
        was_searched=size == record.case.size_bytes,
    )


def _mean_log(worlds: Sequence[Mapping[str, Record]], name: str) -> float:
    """How long a contestant took in the turns that choose, as the mean over worlds of the logarithm."""
    return statistics.mean(math.log(_median_us(members[name], choosing)) for members in worlds)


def _ratio(worlds: Sequence[Mapping[str, Record]], name: str, other: str) -> Ratio:
    """The ratio of two contestants' times over worlds: of a single world, with the interval of its turns."""
    if name == other:
        return Ratio(0.0, 0.0, 0.0)
    logs = [math.log(_median_us(one[name], judging) / _median_us(one[other], judging)) for one in worlds]
    mean = statistics.mean(logs)
    if len(logs) > 1:
        from scipy import stats

        half = float(stats.t.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
        return Ratio(math.expm1(mean), math.expm1(mean - half), math.expm1(mean + half))
    turns = sorted(mine / its for mine, its in zip(_turns(worlds[0][name]), _turns(worlds[0][other]), strict=False))
    low, high = median_interval(len(turns))
    return Ratio(math.expm1(mean), turns[low] - 1, turns[high] - 1)


def _turns(record: Record) -> Sequence[float]:
    assert record.timing is not None, "records without times are left out"
    return judging(record.timing.per_iteration_us)


def _median_us(record: Record, half: Callable[[Sequence[float]], Sequence[float]]) -> float:
    assert record.timing is not None, "records without times are left out"
    return statistics.median(half(record.timing.per_iteration_us))


def _chosen(record: Record) -> Mapping[str, object] | None:
    chosen = (record.request.kernel or {}).get("chosen")
    return chosen if isinstance(chosen, Mapping) and record.request.chosen_by == BEST else None


def _row(one: Regret) -> dict[str, str]:
    case, beside = one.record.case, one.beside_own
    return {
        "op": case.op,
        "dtype": case.dtype,
        "ranks": str(case.world_size),
        "size": size_text(case),
        "worlds": str(one.worlds),
        "choice": case.algorithm,
        "us": f"{one.us:.2f}",
        "quickest": one.quickest,
        "its us": f"{one.quickest_us:.2f}",
        "regret": f"{one.share:.1%}",
        "95 %": _span(one.ratio),
        "catalogue's own": one.own or "-",
        "beside it": f"{beside.share:.1%}" if beside is not None else "-",
        "its 95 %": _span(beside) if beside is not None else "-",
        "size searched": "yes" if one.was_searched else "no",
    }


def _span(ratio: Ratio) -> str:
    return f"{ratio.low:.1%} to {ratio.high:.1%}"
