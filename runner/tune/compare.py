"""Two tables of choices against each other: the first one's share of the second one's speed, and of its search's time.

Choices are compared by records of both from one world, measured in turns, where there are any; else each by its own
table's figure, of a world of its own, and the table says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernels.spec import UNIFORM, Case
from kernels.tuned.table import Entry, Table
from reports.record.record import Record, RecordedCase
from reports.table.sheet import Line, Sheet, room_here, text
from reports.table.text import counted
from runner.request.sizes import format_bytes
from runner.tune.halves import judging

SPEED, TIME = 0.98, 0.15
"""What a search that asks the model first should reach of the exhaustive one's speed, in the geometric mean of the
sizes, and the most of its time that it should take."""

SAME, BESIDE, APART = "same choice", "one world", "two worlds"


@dataclass(frozen=True, slots=True)
class Compared:
    """One case: both choices with their times, in the tables' unit, and how these were measured."""

    first: Entry
    second: Entry
    value: float
    other: float
    how: str

    @property
    def share(self) -> float:
        """The first choice's speed over the second's: 1 if both are as quick, above 1 if the first is quicker."""
        return self.other / self.value


def compared(first: Table, second: Table, records: Iterable[Record] = ()) -> list[Compared]:
    """Return the cases that both tables were searched for.

    records: those of the tables' type of GPU count, with uniform counts. ValueError if there are no such cases, if the
    tables are not of the same type of GPU, measured alike, if no timed record is of that type, or if both choices of a
    case ran side by side with several settings.
    """
    if (first.gpu, first.unit) != (second.gpu, second.unit):
        raise ValueError(
            f"{first.place} is of {first.gpu} in {first.unit}, {second.place} of {second.gpu} in {second.unit}: "
            "compare tables of one type of GPU"
        )
    others = {(one.key, one.size_bytes): one for one in second.entries}
    pairs = [(one, others[one.key, one.size_bytes]) for one in first.entries if (one.key, one.size_bytes) in others]
    if not pairs:
        raise ValueError(f"no case was searched for both {first.place} and {second.place}: search the same sizes")
    worlds = _worlds(records, first.gpu)
    return [_compared(one, other, worlds) for one, other in pairs]


def report(found: Sequence[Compared], unit: str) -> tuple[str, bool]:
    """Return the cases as a table with a verdict in one line, and whether both goals are met. unit: the tables'."""
    lines = tuple(_line(one, unit) for one in found)
    numeric = frozenset({"ranks", "size", unit, f"other {unit}", "reaches"})
    sheet = Sheet("choices of two tables", tuple(lines[0].cells), (lines,), numeric)
    shares = [one.share for one in found]
    mean, least = statistics.geometric_mean(shares), min(found, key=lambda one: one.share)
    seconds = [sum(one.first.searched.seconds for one in found), sum(one.second.searched.seconds for one in found)]
    is_timed = all(one.first.searched.seconds and one.second.searched.seconds for one in found)
    spent = seconds[0] / seconds[1] if is_timed else math.inf
    took = f"in {spent:.0%} of its time ({seconds[0]:.0f} s of {seconds[1]:.0f} s)" if is_timed else "in unknown time"
    is_met = mean >= SPEED and spent <= TIME
    ways = [" and ".join(sorted({of(one).searched.how for one in found})) for of in (_first, _second)]
    apart = sum(one.how == APART for one in found)
    more = f"; {apart} of {counted(len(found), 'case')} by figures of two worlds" if apart else ""
    verdict = (
        f"the first ({ways[0]}) reaches {mean:.1%} of the second ({ways[1]}), {least.share:.1%} at least "
        f"({least.first.op} {format_bytes(least.first.size_bytes)}), {took}: {'' if is_met else 'not '}"
        f"{SPEED:.0%} in {TIME:.0%}{more}"
    )
    return f"{text([sheet], [], room_here()).rstrip()}\n\n{verdict}", is_met


def entry_for(table: Table, case: Case) -> Entry | None:
    """Return the entry that a table was searched for with a case, whose algorithm does not matter; None without one."""
    key = (case.op, case.dtype, case.accumulator, case.reduction, case.placement, case.world_size)
    return next((one for one in table.entries if one.key == key and one.size_bytes == case.size_bytes), None)


def _first(one: Compared) -> Entry:
    return one.first


def _second(one: Compared) -> Entry:
    return one.second


Worlds = dict[tuple[object, ...], dict[str, float]]


def _worlds(records: Iterable[Record], gpu: str) -> Worlds:
    """By what was measured together on a type of GPU, and by name, the median of the turns that judge, in
    microseconds."""
    found: Worlds = {}
    timed = [record for record in records if record.timing is not None and record.case.counts == UNIFORM]
    for record in timed:
        timing = record.timing
        if timing is not None and gpu in {one.get("model") for one in record.environment.gpus or ()}:
            together = (record.request.command, record.request.job, record.request.resumed)
            settings = f"mode={timing.mode}, window={timing.window}, l2={timing.l2}, root={record.case.root}"
            times = found.setdefault((*_of(record.case), settings, *together), {})
            times[record.case.algorithm] = statistics.median(judging(timing.per_iteration_us()))
    if timed and not found:
        raise ValueError(f"no record is of {gpu}, of which the tables are: give records of it")
    return found


def _of(case: Case | RecordedCase) -> tuple[object, ...]:
    """What the cases of an entry have in common."""
    key = (case.op, case.dtype, case.accumulator, case.reduction, case.placement, case.world_size)
    return *key, case.size_bytes


def _compared(first: Entry, second: Entry, worlds: Worlds) -> Compared:
    names = first.choice.name, second.choice.name
    if names[0] == names[1]:
        return Compared(first, second, first.choice.value, first.choice.value, SAME)
    case = (*first.key, first.size_bytes)
    together = {key: times for key, times in worlds.items() if key[: len(case)] == case and set(names) <= set(times)}
    if not together:
        return Compared(first, second, first.choice.value, second.choice.value, APART)
    if len(settings := sorted({str(key[len(case)]) for key in together})) > 1:
        raise ValueError(
            f"{first.op} {format_bytes(first.size_bytes)} ran with {' and with '.join(settings)}: give records of one"
        )
    value, other = (statistics.median(times[name] for times in together.values()) for name in names)
    return Compared(first, second, value, other, BESIDE)


def _line(one: Compared, unit: str) -> Line:
    return Line(
        {
            "op": one.first.op,
            "dtype": one.first.dtype,
            "ranks": str(one.first.ranks),
            "size": format_bytes(one.first.size_bytes),
            "first": one.first.choice.name,
            unit: f"{one.value:.6g}",
            "found": one.first.searched.found(one.first.choice.name),
            "second": one.second.choice.name,
            f"other {unit}": f"{one.other:.6g}",
            "reaches": f"{one.share:.1%}",
            "measured in": one.how,
        }
    )
