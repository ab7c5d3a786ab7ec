"""Items "worlds" and "baselines": how many worlds each case has, and worlds against each other.

A world that is there twice, as it is or a little changed, worlds out of order in time, a case that takes far longer in
one world than in another by the same code, and baselines that were not timed in turns with our kernels.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from cases.gathered import gathered
from cases.record.record import Record
from reports.table.compare import is_baseline
from reports.table.text import counted
from symlab.evidence.audit.clocks import untimed
from symlab.evidence.audit.items import Outcome, Point, held
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.statistics import LEAST_WORLDS, world_medians, world_of

LEAST_SAMPLES = 10
"""Minimum number of samples, over all ranks, to call two series one: fewer may be alike by chance."""

MOST_ALIKE, LEAST_RANKED = 0.95, 40
"""Rank correlation, sample by sample, from which one series is a copy of another, and the minimum number of samples for
that. Between the published worlds it is 0.45 at most; a copy whose samples were changed by a tenth of their spread has
0.99."""

TIMES_APART = 2.0
"""Maximum ratio of a case's medians in two worlds of the same code, library and type of GPU. Between the published
worlds it is 1.13 at most."""

_ALIKE = 1e-6
"""Maximum difference, as a share, of series that are one: copies are rounded when they are written."""

_STAMP = re.compile("([0-9]{8}T[0-9]{6})Z-")

_STAMP_S = 2.0
"""Maximum time by which a record may begin before the second in its command's name."""


def worlds(material: Material) -> Iterator[Point]:
    """The number of worlds of each timed case, and copies of worlds."""
    good = f"{counted(len(material.worlds), 'world')}: none is a copy, or began before its name says"
    yield from held((*copies(material.records), *_out_of_order(material)), good)
    per_case = [len(found) for records in material.by_case.values() if (found := world_medians(records))]
    if few := sum(number < LEAST_WORLDS for number in per_case):
        why = f"{few} of {counted(len(per_case), 'timed case')} with fewer than {LEAST_WORLDS} worlds"
        yield Point(Outcome.NOT_COMPARABLE, f"{why}: no verdict on speed can rest on them")


def copies(records: Sequence[Record]) -> Iterator[str]:
    """Yield a sentence for each record that is a copy of another, changed or not."""
    yield from _same_samples(records)
    yield from _same_times(records)
    for members in gathered((record.id, record) for record in records).values():
        yield from _alike(members)


def _same_samples(records: Iterable[Record]) -> Iterator[str]:
    """Timings whose samples are those of another one: as they are, in another order, all multiplied by one factor, or
    all later by the same time. Clocks never give that."""
    known: dict[tuple[object, ...], Record] = {}
    for record in records:
        if record.timing is None:
            continue
        values = sorted(value for row in record.timing.samples_us for value in row)
        if len(values) < LEAST_SAMPLES or values[0] == values[-1]:
            continue  # no clock gives one time again and again
        keys = [_by_ratio(values), _by_difference(values)]
        if other := next((known[key] for key in keys if key in known and known[key] is not record), None):
            factor = record.timing.median_us / other.timing.median_us if other.timing is not None else math.nan
            changed = "" if factor == 1 else f", changed (medians {factor:.4f} apart)"
            yield f"{record.id} of {world_of(record)} has the samples of {other.id} of {world_of(other)}{changed}"
        for key in keys:
            known.setdefault(key, record)


def _by_ratio(values: Sequence[float]) -> tuple[object, ...]:
    """A key that is the same for samples that are all multiplied by one factor."""
    return ("ratio", *(round(math.log(value / values[0]) / _ALIKE) for value in values[1:]))


def _by_difference(values: Sequence[float]) -> tuple[object, ...]:
    """A key that is the same for samples that are all later by the same time."""
    span = values[-1] - values[0]
    shape = (round((value - values[0]) / span / _ALIKE) for value in values[1:-1])
    return ("difference", round(math.log(span) / _ALIKE), *shape)


def _alike(members: Sequence[Record]) -> Iterator[str]:
    """Records of one case whose samples go up and down together: those of two runs don't."""
    several = members if len({world_of(one) for one in members}) > 1 else ()
    ranked = ((record, ranks) for record in several if (ranks := _ranked(record)) is not None)
    for some in gathered((ranks[0].shape, (record, *ranks)) for record, ranks in ranked).values():
        both = np.stack([one[1].ravel() for one in some]), np.stack([one[2].ravel() for one in some])
        alike = np.minimum(*(rows @ rows.T / rows.shape[1] for rows in both))
        for at, to in zip(*np.nonzero(np.triu(alike, 1) > MOST_ALIKE), strict=True):
            one, other = some[at][0], some[to][0]
            if world_of(one) != world_of(other):
                says = f"{other.id} of {world_of(other)} has the samples of {world_of(one)}, a little changed"
                yield f"{says} (rank correlation {alike[at, to]:.3f})"


Series = NDArray[np.float64]


def _ranked(record: Record) -> tuple[Series, Series] | None:
    """The places of a record's samples in the order of their size, and those of their differences, rank by rank, with
    mean 0 and variance 1. A warm-up that all worlds have makes the first alike, and not the second."""
    rows = record.timing.samples_us if record.timing is not None else ()
    if not rows or sum(map(len, rows)) < LEAST_RANKED or len(rows[0]) < 3:
        return None
    values = np.array(rows)
    if np.any(np.ptp(values, axis=1) == 0):
        return None
    return _places(values), _places(np.diff(values, axis=1))


def _places(values: Series) -> Series:
    places = np.argsort(np.argsort(values, axis=1), axis=1).astype(np.float64)
    centred = places - places.mean(axis=1, keepdims=True)
    scaled: Series = centred / centred.std(axis=1, keepdims=True)
    return scaled


def _same_times(records: Iterable[Record]) -> Iterator[str]:
    """Records of one case in two worlds that took the same microseconds at the same milliseconds of a second, which
    moving them by hours leaves; of two worlds, the first."""
    known: dict[tuple[object, ...], Record] = {}
    told: set[tuple[str, str]] = set()
    for record in records:
        took = round(record.duration_s * 1e6)
        if took % 1000 == 0:  # without microseconds: alike by chance
            continue
        times = (datetime.fromisoformat(text).microsecond for text in (record.started, record.ended))
        other = known.setdefault((record.id, took, *times), record)
        names = world_of(other), world_of(record)
        if names[0] != names[1] and names not in told:
            told.add(names)
            yield f"{record.id} of {names[1]} took the microseconds of that of {names[0]}, at the same milliseconds"


def _out_of_order(material: Material) -> Iterator[str]:
    """Worlds that began before the time in their command's name: two that exchanged their times are found so. That one
    began late says nothing: commands may start at once, and the one that has more to compile runs later."""
    for name, world in material.worlds.items():
        found = _STAMP.match(world[0].request.command)
        try:
            stamp = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC) if found else None
        except ValueError:
            continue
        early_s = (stamp - min(datetime.fromisoformat(one.started) for one in world)).total_seconds() if stamp else 0.0
        if early_s > _STAMP_S:
            yield f"{name} has a record that began {early_s:,.0f} s before its command's name says"


def baselines(material: Material) -> Iterator[Point]:
    """Whether our kernels were timed in turns with every baseline of their size and session."""
    if not material.timed:
        yield untimed(material)
        return
    beside: dict[tuple[object, ...], list[Record]] = {}
    for record in material.timed:
        key = (world_of(record), record.request.job, record.case.op, record.case.dtype)
        beside.setdefault((*key, record.case.world_size, record.case.size_bytes), []).append(record)
    apart: list[str] = []
    alone = 0
    for members in beside.values():
        theirs = {one.case.algorithm for one in members if is_baseline(one)}
        for record in members:
            if is_baseline(record) or record.timing is None:
                continue
            missing = theirs - set(record.timing.interleaved_with)
            apart += [f"{record.id}: {', '.join(sorted(missing))} not in turns with it"] if missing else []
            alone += not theirs
    good = "our kernels were timed in turns with all baselines of their size and session"
    yield from held((*apart, *_times_apart(material), *_strangers(material)), good)
    if alone:
        yield Point(Outcome.NOT_CAPTURED, f"{counted(alone, 'timing')} of ours without any baseline beside it")


def _times_apart(material: Material) -> Iterator[str]:
    """Cases that took far longer in one world than in another, by the same code on the same type of GPU: something
    disturbed one of them, or its times are not its own. One sentence for each pair of worlds."""
    by_case = gathered(
        (_alike_in(record), (record.timing.median_us, world_of(record)))
        for record in material.timed
        if record.timing is not None
    )
    told: dict[tuple[str, str], list[str]] = {}
    for key, members in by_case.items():
        (low, quick), (high, slow) = min(members), max(members)
        if quick != slow and high > TIMES_APART * low:
            told.setdefault((slow, quick), []).append(f"{key[0]} takes {high:.4g} us and {low:.4g} us")
    for (slow, quick), cases in told.items():
        more = f", and {len(cases) - 1} more cases so" if cases[1:] else ""
        yield f"{cases[0]} in {slow} and in {quick}{more}: more than {TIMES_APART:g} times apart"


def _alike_in(record: Record) -> tuple[object, ...]:
    """What has to be the same in two worlds for their times to be near each other; the case's id first."""
    assert record.timing is not None
    timing, kernel, asked = record.timing, record.kernel, record.request.configuration or {}
    chosen = {key: asked.get(key) for key in ("timing", "fabric", "library")}
    chosen["variables"] = (record.environment.variables or {}).get("allowed")
    return (
        *(record.id, record.library, kernel.code_digest or kernel.ptx_digest if kernel is not None else ""),
        *(timing.mode, timing.window, timing.l2, record.fabric.description if record.fabric is not None else ""),
        json.dumps(chosen, sort_keys=True),
    )


def _strangers(material: Material) -> Iterator[str]:
    """The algorithms that a case was timed in turns with, and of which its command, which is here in full, has no
    record, and did not leave it out."""
    for name, world in material.worlds.items() if material.file_alone is None else ():
        known = {(record.case.op, record.case.algorithm) for record in world}
        not_run = [case for _, case in material.not_run.get(world[0].request.command, ())]
        for record in world if len(world) > 1 else ():
            for other in record.timing.interleaved_with if record.timing is not None else ():
                is_left = any(case.startswith(f"{record.case.op}-{other}-") for case in not_run)
                if (record.case.op, other) not in known and not is_left:
                    yield f"{record.id} of {name} was timed in turns with {other}, of which there is no record"
