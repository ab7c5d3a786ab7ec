"""Runs that are copies of other runs: the samples of another world as they are or a little changed, or its times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from cases.record.record import Record
from reports.audit.bound_worlds import same_samples
from reports.audit.statistics import world_of

MOST_ALIKE = 0.95
"""Rank correlation, sample by sample, from which one series is a copy of another. Between the published worlds it is
0.45 at most; a copy whose samples were changed by a tenth of their spread has 0.99."""

LEAST_SAMPLES = 40
"""Minimum number of samples, over all ranks, for that: shorter series may be alike by chance."""

_MILLISECOND = 1000
"""In microseconds, in which durations are kept; times of day are kept in milliseconds."""


def copies(records: Sequence[Record]) -> Iterator[str]:
    """Yield a sentence for each record that is a copy of another world's, changed or not."""
    yield from same_samples(records)
    yield from _at_one_time(records)
    by_case: dict[str, list[Record]] = {}
    for record in records:
        by_case.setdefault(record.id, []).append(record)
    for members in by_case.values():
        yield from _alike(members)


def _at_one_time(records: Iterable[Record]) -> Iterator[str]:
    """Records of one case that took the same microseconds at the same milliseconds; of two worlds, the first."""
    known: dict[tuple[object, ...], Record] = {}
    told: set[tuple[str, str]] = set()
    for record in records:
        ran_at = _ran_at(record)
        if ran_at is None:
            continue
        other = known.setdefault((record.id, *ran_at), record)
        names = world_of(other), world_of(record)
        if names[0] != names[1] and names not in told:
            told.add(names)
            yield f"{record.id} of {names[1]} took the microseconds of that of {names[0]}, at the same milliseconds"


def _ran_at(record: Record) -> tuple[object, ...] | None:
    """How long a record took, with the parts of its times below a second, which moving them by hours leaves; None for
    one that has no microseconds, for these may be alike by chance."""
    took = round(record.duration_s * 1e6)
    if took % _MILLISECOND == 0:
        return None
    times = (datetime.fromisoformat(text).microsecond for text in (record.started, record.ended))
    return took, *times


def _alike(members: Sequence[Record]) -> Iterator[str]:
    """Records of one case whose samples go up and down together: those of two runs don't."""
    by_shape: dict[tuple[int, ...], list[tuple[Record, Series, Series]]] = {}
    for record in members if len({world_of(one) for one in members}) > 1 else ():
        if (ranked := _ranked(record)) is not None:
            by_shape.setdefault(ranked[0].shape, []).append((record, *ranked))
    for some in by_shape.values():
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
    if not rows or sum(map(len, rows)) < LEAST_SAMPLES or len({len(row) for row in rows}) > 1 or len(rows[0]) < 3:
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
