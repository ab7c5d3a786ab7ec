"""Which records of two sets are the same case, so that they can be compared; and whether their times can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cases.gathered import gathered
from cases.record.nccl_settings import said_settings
from cases.record.record import Record
from reports.table.compare import device_text, setup_text
from symlab.evidence.audit.statistics import world_of
from symlab.evidence.audit.worlds import copies


@dataclass(frozen=True, slots=True)
class Pair:
    """One case, as all worlds of each set ran it; a side is empty where the set has no such case."""

    before: tuple[Record, ...]
    after: tuple[Record, ...]

    @property
    def first(self) -> Record:
        return (self.before or self.after)[0]


def paired(before: Sequence[Record], after: Sequence[Record]) -> list[Pair]:
    """All cases of both sets, each once, in order of appearance: those of before, then those that only after has.

    Case ids do not say how a case was timed, for which architecture, or on what fabric settings. Where a set has
    several such ways, each is a case of its own; where each set has one way left over, these are a pair all the same.
    """
    sides = [_by_case(records) for records in (before, after)]
    found = []
    for case in dict.fromkeys((*sides[0], *sides[1])):
        ours, theirs = (dict(side.get(case, {})) for side in sides)
        for way in [way for way in ours if way in theirs]:
            found.append(Pair(tuple(ours.pop(way)), tuple(theirs.pop(way))))
        if len(ours) == len(theirs) == 1:
            found.append(Pair(*(tuple(records) for side in (ours, theirs) for records in side.values())))
        else:
            found += [Pair(tuple(records), ()) for records in ours.values()]
            found += [Pair((), tuple(records)) for records in theirs.values()]
    return found


def _by_case(records: Sequence[Record]) -> dict[str, dict[str, list[Record]]]:
    by_case = gathered((record.id, (_way(record), record)) for record in records)
    return {case: gathered(members) for case, members in by_case.items()}


def _way(record: Record) -> str:
    """How a case was to be run, beyond what its id says."""
    fabric = record.fabric
    settings = sorted(fabric.settings.items()) if fabric is not None and fabric.simulated else []
    told = said_settings(record)
    return f"{setup_text(record)} {fabric.arch if fabric is not None else ''} {settings} {told}"


def why_times_differ_in_kind(pair: Pair) -> str:
    """Why the times of a pair can't be compared; "" where they can."""
    for side, records in (("before", pair.before), ("after", pair.after)):
        ran = [record for record in records if record.fabric is not None]
        if ran and all(record.fabric is not None and record.fabric.simulated for record in ran):
            return f"simulated {side}: there is no clock of real hardware"
        if not any(record.timing is not None for record in records):
            return f"no timing {side}"
    for what, values in (
        ("GPUs", [{device_text(one) for one in side if one.timing is not None} for side in (pair.before, pair.after)]),
        ("setup", [{_setup(one) for one in side if one.timing is not None} for side in (pair.before, pair.after)]),
    ):
        if values[0] != values[1]:
            before, after = (" | ".join(sorted(side)) for side in values)
            return f"other {what}: {before} before, {after} after"
    worlds = [{world_of(one) for one in side if one.timing is not None} for side in (pair.before, pair.after)]
    if shared := worlds[0] & worlds[1]:
        return f"the same world stands on both sides ({sorted(shared)[0]}): nothing was measured again"
    if copied := next(copies((*pair.before, *pair.after)), ""):
        return f"one world is there twice: {copied}"
    return ""


def _setup(record: Record) -> str:
    assert record.timing is not None
    timing = record.timing
    return f"{setup_text(record)}, {timing.calls_per_sample} calls a sample over {timing.slots} slots"
