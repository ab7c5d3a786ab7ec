"""The simulator's sums against their parts: a record has both, the sums over all launches and what each of them did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cases.record.record import Record

MOST_LAUNCHES = 1 << 32
"""Maximum number of launches that a span may name: more have no meaning, and their sums would take no end."""

_SPAN = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")

_PEER, _MULTICAST = ("peer_read", "peer_write"), ("multicast_reduce", "multicast_store")


def counted_apart(record: Record) -> Iterator[str]:
    """Yield a sentence for each sum that its parts, the case or the check contradict. Older records have no parts."""
    counters = record.counters
    of, parts = counters.get("of"), counters.get("launches")
    if not isinstance(of, dict) or not isinstance(parts, list):
        return
    if of.get("ranks") != record.case.world_size:
        yield f"counters of {of.get('ranks')} ranks, the case has {record.case.world_size}"
    if record.check is not None and "checked" in of and of["checked"] != (launches := _asked_for(record)):
        yield f"counters say {of['checked']} launches were checked, {launches} are right"
    try:
        _must_be_counts(counters, parts)
        yield from _sums(counters, parts)
        yield from _links(counters)
    except (KeyError, TypeError, ValueError, AttributeError):
        yield "counters are not what the simulator writes"


def _asked_for(record: Record) -> Any:
    """Return the number of launches that counters say were checked: the check's; under stress the configuration's."""
    assert record.check is not None
    asked = (record.request.configuration or {}).get("launches", record.check.launches)
    return record.check.launches if record.case.stress == "none" else asked


def _must_be_counts(counters: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> None:
    """Raise TypeError if a value that is added or multiplied is no integer: a text times a number is a long text."""
    values = [counters["of"]["launches"], counters["instructions"], *counters["links"].values()]
    kinds = [*counters["accesses"].values()]
    for part in parts:
        values += [part["instructions"]["min"], part["instructions"]["max"]]
        if "phases" in part:
            values.append(part["waits"]["max"])
            kinds += [kind for phase in part["phases"] for kind in phase.values() if isinstance(kind, dict)]
    values += [value for kind in kinds for key, value in kind.items() if key in ("count", "bytes")]
    if odd := [value for value in values if type(value) is not int]:
        raise TypeError(f"{odd[0]!r} is no integer")


def _sums(counters: Mapping[str, Any], parts: list[Mapping[str, Any]]) -> Iterator[str]:
    numbers = [_length(str(part["launches"])) for part in parts]
    if sum(numbers) != counters["of"]["launches"]:
        yield f"counters of {counters['of']['launches']} launches, their parts are of {sum(numbers)}"
    low, high = (
        sum(n * part["instructions"][end] for n, part in zip(numbers, parts, strict=True)) for end in ("min", "max")
    )
    if not low <= counters["instructions"] <= high:
        yield f"{counters['instructions']:,} instructions in all, the launches have {low:,} to {high:,}"
    if not all("phases" in part for part in parts):
        return
    waits = sum(n * part["waits"]["max"] for n, part in zip(numbers, parts, strict=True))
    for kind, total in counters["accesses"].items():
        for what in ("count", "bytes"):
            known = sum(
                n * phase.get(kind, {}).get(what, 0)
                for n, part in zip(numbers, parts, strict=True)
                for phase in part["phases"]
            )
            # Looks while a lane waits are in the sums and in no phase; what looks is a signal or an own read.
            can_wait = kind in ("signal", "own_read", "peer_read") and waits
            if total[what] < known or (total[what] > known and not can_wait):
                yield f"{total[what]:,} {kind} ({what}) in all, the phases have {known:,}"


def _links(counters: Mapping[str, Any]) -> Iterator[str]:
    """What peers read and wrote went over links; with signals, which may be a rank's own, nothing else did."""
    accesses = counters["accesses"]
    if any(accesses[kind]["count"] for kind in _MULTICAST):
        return
    over_links = sum(counters["links"].values())
    moved = sum(accesses[kind]["bytes"] for kind in _PEER)
    if not moved <= over_links <= moved + accesses["signal"]["bytes"]:
        yield f"{over_links:,} B over links, peers read and wrote {moved:,} B"


def _length(spans: str) -> int:
    """Return how many numbers "0-4, 7" names. Raises ValueError if it is nothing like it, or names too many."""
    number = 0
    for span in spans.split(","):
        if (ends := _SPAN.fullmatch(span.strip(" "))) is None:
            raise ValueError(f"'{span[:20]}' names no launches")
        number += int(ends[2] or ends[1]) - int(ends[1]) + 1
    if not 0 <= number <= MOST_LAUNCHES:
        raise ValueError(f"{number:,} launches; a record has at most {MOST_LAUNCHES:,}")
    return number
