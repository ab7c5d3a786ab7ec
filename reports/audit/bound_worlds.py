"""Worlds against each other: one that is there twice, worlds out of order in time, two at once on the same GPUs, and
the limit of the link, which the same GPUs have in all worlds."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from cases.record.record import LinkLimit, Record
from reports.audit.contradiction import Contradiction
from reports.audit.statistics import world_of

CLOCKS, WORLDS, BASELINES, BOUND = 7, 13, 14, 15

LEAST_SAMPLES = 10
"""Minimum number of samples, over all ranks, to call two series one: fewer may be alike by chance."""

LIMITS_APART = 0.1
"""Maximum difference of the link's limit in two worlds on the same GPUs, as a share of their median. Measured on two
and four H200: below 1 %."""

TIMES_APART = 2.0
"""Maximum ratio of a case's medians in two worlds of the same code, library and type of GPU. Between the published
worlds it is 1.13 at most."""

_ALIKE = 1e-6
"""Maximum difference, as a share, of series that are one: copies are rounded when they are written."""

_STAMP = re.compile("([0-9]{8}T[0-9]{6})Z-")

_STAMP_S = 2.0
"""Maximum time by which a record may begin before the second in its command's name."""


def contradictions(worlds: Mapping[str, Sequence[Record]]) -> Iterator[Contradiction]:
    """Yield what the worlds of a set say against each other. worlds: their records by name."""
    records = [record for members in worlds.values() for record in members]
    yield from (Contradiction(WORLDS, sentence) for sentence in _same_records(records))
    yield from (Contradiction(WORLDS, sentence) for sentence in _out_of_order(worlds))
    yield from (Contradiction(CLOCKS, sentence) for sentence in _at_once(worlds))
    yield from (Contradiction(BOUND, sentence) for sentence in _limits(worlds))
    yield from (Contradiction(BASELINES, sentence) for sentence in _times_apart(worlds))


def same_samples(records: Iterable[Record]) -> Iterator[str]:
    """Yield a sentence for each timing whose samples are those of another one: as they are, in another order, all
    multiplied by one factor, or all later by the same time. Clocks never give that."""
    known: dict[tuple[object, ...], Record] = {}
    for record in records:
        if record.timing is None:
            continue
        values = sorted(value for row in record.timing.samples_us for value in row)
        if len(values) < LEAST_SAMPLES or values[0] == values[-1]:
            continue  # no clock gives one time again and again
        keys = [_by_ratio(values), _by_difference(values)]
        others = [known[key] for key in keys if key in known]
        if others and others[0] is not record:
            yield f"{record.id} of {world_of(record)} has the samples of {_other(record, others[0])}"
        for key in keys:
            known.setdefault(key, record)


def _other(record: Record, other: Record) -> str:
    case = "" if other.id == record.id else f"{other.id} of "
    assert record.timing is not None
    assert other.timing is not None
    factor = record.timing.median_us / other.timing.median_us
    changed = "" if record.timing.samples_us == other.timing.samples_us else f", changed (medians {factor:.4f} apart)"
    return f"{case}{world_of(other)}{changed}"


def _by_ratio(values: Sequence[float]) -> tuple[object, ...]:
    """A key that is the same for samples that are all multiplied by one factor."""
    return ("ratio", len(values), *(round(math.log(value / values[0]) / _ALIKE) for value in values[1:]))


def _by_difference(values: Sequence[float]) -> tuple[object, ...]:
    """A key that is the same for samples that are all later by the same time."""
    span = values[-1] - values[0]
    return ("difference", len(values), round(math.log(span) / _ALIKE), *(
        round((value - values[0]) / span / _ALIKE) for value in values[1:-1]
    ))  # fmt: skip


def _same_records(records: Iterable[Record]) -> Iterator[str]:
    """One case that began and ended at the same milliseconds in two worlds, and took the same microseconds."""
    known: dict[tuple[object, ...], Record] = {}
    for record in records:
        key = (record.id, record.started, record.ended, record.duration_s)
        other = known.setdefault(key, record)
        if world_of(other) != world_of(record):
            yield f"{record.id} of {world_of(record)} ran at the very time of that of {world_of(other)}"


def began(world: Sequence[Record]) -> datetime:
    """Return when the first of a world's records began."""
    return min(datetime.fromisoformat(record.started) for record in world)


def ended(world: Sequence[Record]) -> datetime:
    """Return when the last of a world's records ended."""
    return max(datetime.fromisoformat(record.ended) for record in world)


def stamp_of(name: str) -> datetime | None:
    """Return the time in a command's name, when it was started; None if it has none."""
    found = _STAMP.match(name)
    try:
        return datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


def _out_of_order(worlds: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Worlds that began before the time in their command's name: two that exchanged their times are found so. That one
    began late says nothing: commands may start at once, and the one that has more to compile runs later."""
    for name, world in worlds.items():
        stamp = stamp_of(world[0].request.command)
        if stamp is None:
            continue
        early_s = (stamp - began(world)).total_seconds()
        if early_s > _STAMP_S:
            says = f"{name} has a record that began {early_s:,.0f} s before its command's name says"
            yield f"worlds out of order in time: {says}"


def _at_once(worlds: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Two worlds that were timed on the same GPU at the same time disturbed each other, or one of them never ran."""
    spans: dict[str, list[tuple[datetime, datetime, str]]] = {}
    for name, world in worlds.items():
        timed = [record for record in world if record.timing is not None]
        for uuid in sorted({uuid for record in timed for uuid in gpus_of(record)}):
            here = [record for record in timed if uuid in gpus_of(record)]
            spans.setdefault(uuid, []).append((began(here), ended(here), name))
    found = {
        f"{one[2]} and {other[2]} were timed on the same GPU at the same time"
        for members in spans.values()
        for one, other in pairwise(sorted(members))
        if other[0] < one[1]
    }
    yield from sorted(found)


def gpus_of(record: Record) -> frozenset[str]:
    """Return the UUIDs of the GPUs that a timing says its ranks had."""
    devices = record.timing.devices if record.timing is not None else ()
    states = (state for one in devices for state in one.values() if isinstance(state, dict))
    return frozenset(str(state["uuid"]) for state in states if "uuid" in state)


def _times_apart(worlds: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Cases that took far longer in one world than in another, by the same code on the same type of GPU: something
    disturbed one of them, or its times are not its own. One sentence for each pair of worlds."""
    by_case: dict[tuple[object, ...], list[tuple[float, str]]] = {}
    for name, world in worlds.items():
        for record in world:
            if record.timing is not None:
                by_case.setdefault(_alike_in(record), []).append((record.timing.median_us, name))
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


def _limits(worlds: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """The link's limit: one in each job of a world, and nearly the same in all worlds on the same GPUs. A timing of a
    world without a limit is held to that of the others."""
    alike: dict[tuple[object, ...], list[tuple[LinkLimit, str]]] = {}
    by_job: dict[tuple[str, int, int], set[LinkLimit]] = {}
    for name, world in worlds.items():
        for record in world:
            if record.timing is None or record.timing.limit is None:
                continue
            limit = record.timing.limit
            by_job.setdefault((name, record.request.job, record.case.world_size), set()).add(limit)
            alike.setdefault((gpus_of(record), record.case.world_size, limit.size_bytes), []).append((limit, name))
    for (command, job, ranks), found in by_job.items():
        if len(found) > 1:
            said = f"{len(found)} limits of the link on {ranks} ranks"
            yield f"job {job + 1} of {command} has {said}, and one is measured"
    for members in alike.values():
        yield from _spread(members)
    yield from _without(worlds)


def _spread(members: Sequence[tuple[LinkLimit, str]]) -> Iterator[str]:
    for what in ("push_gbps", "pull_gbps"):
        values = {name: getattr(limit, what) for limit, name in members}
        middle = statistics.median(values.values())
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        if values[high] - values[low] > LIMITS_APART * middle:
            says = f"{what} {values[low]:.1f} in {low} and {values[high]:.1f} in {high}"
            yield f"the link's limit is not one, on the same GPUs: {says}"


def _without(worlds: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Timings without a limit whose bus bandwidth is above that which other worlds measured on as many ranks."""
    known: dict[int, float] = {}
    timed = [record for world in worlds.values() for record in world if record.timing is not None]
    for record in timed:
        if record.timing is not None and record.timing.limit is not None:
            ranks = record.case.world_size
            known[ranks] = max(known.get(ranks, 0.0), record.timing.limit.gbps)
    for record in timed:
        assert record.timing is not None
        limit = known.get(record.case.world_size)
        if record.timing.limit is None and limit is not None:
            busbw = record.timing.busbw_gbps(record.case.size_bytes)
            if busbw > limit:
                yield f"{record.id} has no limit of its own, and {busbw:.1f} GB/s, above the {limit:.1f} of others"
