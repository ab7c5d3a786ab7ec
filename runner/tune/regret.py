"""The regret of a table: how much slower its choice was than the quickest contestant beside it, size by size.

Which one is the quickest, one half of the turns says, and how much quicker it is, the other half (halves.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.record.record import Record
from reports.table.sheet import Line, Sheet, room_here, text
from reports.table.text import counted
from runner.request.chooser import BEST
from runner.request.sizes import format_bytes
from runner.tune.halves import choosing, judging

MOST, MEDIAN = 0.03, 0.01
"""Regrets that a table should stay below: of any size, and of half of them."""

SIZES = 20


@dataclass(frozen=True, slots=True)
class Regret:
    """At one size: the table's choice, and the contestant that was the quickest in the turns that choose."""

    record: Record
    quickest: Record
    was_searched: bool

    @property
    def us(self) -> float:
        """The choice's median in the turns that judge, in microseconds."""
        return _median_us(self.record, judging)

    @property
    def quickest_us(self) -> float:
        """The quickest one's median in the turns that judge."""
        return _median_us(self.quickest, judging)

    @property
    def share(self) -> float:
        """The choice's time over the quickest one's, less 1: 0 if it is the quickest itself, below 0 if it was quicker
        in the turns that judge."""
        return self.us / self.quickest_us - 1


def regrets(records: Iterable[Record]) -> list[Regret]:
    """Return the regret of each timed choice of a table, by op and size. Contestants of one size of one job are
    compared: they were measured in turns. A choice that ran alone has no regret and is left out."""
    beside: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        case = record.case
        if record.timing is not None:
            key = (record.request.command, record.request.job, record.request.resumed, case.op, case.dtype)
            beside.setdefault((*key, case.world_size, case.placement, case.size_bytes), []).append(record)
    found = []
    for members in beside.values():
        for record in members:
            chosen = _chosen(record)
            if chosen is None or len(members) < 2:
                continue
            quickest = min(members, key=lambda one: _median_us(one, choosing))
            searched = chosen.get("searched")
            size = searched.get("size_bytes") if isinstance(searched, Mapping) else None
            found.append(Regret(record, quickest, size == record.case.size_bytes))
    return sorted(found, key=lambda one: (one.record.case.op, one.record.case.dtype, one.record.case.size_bytes))


def report(found: Sequence[Regret]) -> tuple[str, bool]:
    """Return the regrets as a table with a summary, and whether all are as small as they should be. Sizes that the
    search measured itself don't count for that. ValueError without a timed choice."""
    if not found:
        raise ValueError(
            "no record has a time of a table's choice with others beside it, run algorithms=[best,..] on GPUs first, "
            "or symlab tune --unseen"
        )
    lines = [tuple(_line(one) for one in found)]
    columns = ("op", "dtype", "ranks", "size", "choice", "us", "quickest", "its us", "regret", "size searched")
    numeric = frozenset({"ranks", "size", "us", "its us", "regret"})
    table = text([Sheet("regret of a table's choices", columns, tuple(lines), numeric)], [], room_here()).rstrip()
    unseen = [one.share for one in found if not one.was_searched]
    if not unseen:
        return f"{table}\n\nall sizes are the search's own: give sizes that it did not measure", False
    median, most = statistics.median(unseen), max(unseen)
    is_small = median <= MEDIAN and most <= MOST
    said = (
        f"{counted(len(unseen), 'size')} that the search did not measure: median regret {median:.1%}, largest "
        f"{most:.1%}; {'within' if is_small else 'beyond'} {MEDIAN:.0%} and {MOST:.0%}"
    )
    return f"{table}\n\n{said}", is_small


def unseen_sizes(low: int, high: int, step: int, count: int = SIZES) -> tuple[int, ...]:
    """Return sizes between low and high, at equal ratios, multiples of step and no powers of two."""
    found: dict[int, None] = {}
    for number in range(count):
        size = int(low * (high / low) ** ((number + 0.5) / count)) // step * step
        while size & (size - 1) == 0 or size in found:
            size += step
        if low <= size <= high:
            found[size] = None
    return tuple(found)


def _median_us(record: Record, half: Callable[[Sequence[float]], Sequence[float]]) -> float:
    assert record.timing is not None, "records without times are left out"
    return statistics.median(half(record.timing.per_iteration_us()))


def _chosen(record: Record) -> Mapping[str, object] | None:
    chosen = (record.request.kernel or {}).get("chosen")
    return chosen if isinstance(chosen, Mapping) and record.request.chosen_by == BEST else None


def _line(one: Regret) -> Line:
    case = one.record.case
    return Line(
        {
            "op": case.op,
            "dtype": case.dtype,
            "ranks": str(case.world_size),
            "size": format_bytes(case.size_bytes),
            "choice": case.algorithm,
            "us": f"{one.us:.2f}",
            "quickest": one.quickest.case.algorithm,
            "its us": f"{one.quickest_us:.2f}",
            "regret": f"{one.share:.1%}",
            "size searched": "yes" if one.was_searched else "no",
        }
    )
