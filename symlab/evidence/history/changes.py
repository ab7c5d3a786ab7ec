"""Where did a series of times change its level? Change points with their interval, at a stated rate of false alarms.

A series has one time a world, in order of time (the world is the replicate, see audit/statistics.py). Worlds of
one series are apart in time, so that no test can tell a change from drift as well as worlds that alternate can: a
machine that warms up, or another job beside it, looks like a slower commit. What can be asked is whether one step
stands out from the drift and the noise around it.

**The model** of an interval of worlds is log time = level + drift * place + step + noise. The noise is an AR(1) process
of unknown lag-1 correlation r. For each place of the step and each r of CORRELATIONS both sides are whitened
(Prais-Winsten; for r = 1 differences), and the step has Student's t. Its p-value is the largest over all r, so that
neither independent outliers (r = 0 sees through them) nor slow drift (r = 1 does) make a step. For stationary
increments of any kind the test at r = 1 alone already bounds it: it asks if one increment stands out from the others.

**The family** is all places of all intervals of all series: p-values are multiplied by their number (Bonferroni).
Intervals are the whole series, and from it down halves that overlap by half ("seeded", Kovacs and others, Biometrika
110, 2023), so that a time that goes up and comes back down is found. The smallest p-value below ALPHA is a change
point, then the smallest of the intervals that hold no change point yet, and so on. After that, each part between two
change points is searched as a whole, down to LEAST_WORLDS worlds. A part without a change costs no more tests than the
intervals around the change points leave unused, so that the family is large enough for it. A change point that was
found in an interval with others is judged again between them, and dropped if it does not stand out there: of a
staircase the middle of a stair is none. Without any change, fewer than 5 in 100 pages name one; of pages with a change,
fewer than 5 in 100 name one more.

**What it can't find**: a change with fewer than LEAST_SIDE worlds to the next one or to an end of the series; and
changes of which none stands out in an interval of the family, because the others are its noise or its drift. A stair of
even steps is drift. A time that goes up and down is found where 8 worlds or more lie between its changes, up to five of
them; nine of them are noise.

**The interval of the place** holds each place whose likelihood, with r at its best, is within the factor
exp(-PLACE / 2) of the best place's. The interval of the ratio is Student's, for the r that gives the widest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

ALPHA = 0.05
"""Probability that a page without any change names one."""

LEAST_SIDE = 4
"""Minimum number of worlds on each side of a change point within its interval."""

LEAST_WORLDS = 2 * LEAST_SIDE
"""Minimum number of worlds of a series that is searched."""

_LEAST_PART = 2 * LEAST_WORLDS
"""Minimum number of worlds of an interval that is not the whole series: in many short intervals chance makes clean
steps, above all of worlds with two modes."""

CORRELATIONS = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 1.0)
"""Lag-1 correlations of the noise that a change point has to stand out from, each of them."""

PLACE = 8.0
"""Twice the largest difference of log-likelihoods of a place in the interval. Simulated changes then lie in it at
least 95 times in 100."""

_LEAST_SPREAD = 1e-3
"""The noise counts as at least 0.1 %: clocks tick, and equal readings are not without noise."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level. It came before the world with the number at (from 0), and after the one before; first and last
    are the ends of the 95 % interval of at. ratio is the time after over that before, with drift taken off; low and
    high are its 95 % interval. p is corrected for all places of all series."""

    at: int
    first: int
    last: int
    ratio: float
    low: float
    high: float
    p: float


def family(length: int) -> int:
    """Return the number of tests of a series."""
    return sum(end - start - LEAST_WORLDS + 1 for start, end in _intervals(length))


def changes(times: Sequence[float], tests: int | None = None, band: float = 0.0) -> list[Change]:
    """Return the change points of a series, in order. Times are positive, one a world, in order of time.

    tests: the number of tests of all series that are judged together; None for this one alone. band: changes of a
    smaller share are not named.
    """
    import numpy as np

    logs = np.log(np.asarray(times, dtype=float))
    tests = family(len(times)) if tests is None else tests
    spans = _intervals(len(times))
    found = [(*_best(logs[start:end]), start, end) for start, end in spans]
    named: list[_Found] = []
    for place, p, start, end in sorted(found, key=lambda one: one[1]):
        if p * tests < ALPHA and not any(start < one.at < end for one in named):
            named.append(_Found(start + place, start, end, p * tests))
    named = _settled(logs, _with_parts(logs, named, tests), tests)
    judged = [_described(logs, one) for one in named]
    return [one for one in judged if abs(math.log(one.ratio)) > math.log1p(band)]


@dataclass(frozen=True, slots=True)
class _Found:
    """A place that stands out in the interval from start to end, with its corrected p-value."""

    at: int
    start: int
    end: int
    p: float


def _with_parts(logs: Any, named: list[_Found], tests: int) -> list[_Found]:
    """Return the places, and those of the parts between them, in order. Without a place there is no part."""
    if not named:
        return []
    found = list(named)
    parts = list(pairwise([0, *sorted(one.at for one in named), len(logs)]))
    while parts:
        start, end = parts.pop()
        if end - start < LEAST_WORLDS:
            continue
        place, p = _best(logs[start:end])
        if p * tests < ALPHA:
            found.append(_Found(start + place, start, end, p * tests))
            parts += [(start, start + place), (start + place, end)]
    return sorted(found, key=lambda one: one.at)


def _settled(logs: Any, found: list[_Found], tests: int) -> list[_Found]:
    """Return the places that stand out in an interval without any other of them, in order."""
    kept, number = list(found), 0
    while number < len(kept):
        one = kept[number]
        start = max(one.start, kept[number - 1].at if number else 0)
        end = min(one.end, kept[number + 1].at if number + 1 < len(kept) else len(logs))
        if (start, end) == (one.start, one.end):
            number += 1
            continue
        place, p = _best(logs[start:end])
        if p * tests < ALPHA:
            kept[number] = _Found(start + place, start, end, p * tests)
        else:
            del kept[number]
        number = 0  # the place has moved or is gone: look at its neighbours again
    return kept


def _intervals(length: int) -> list[tuple[int, int]]:
    """Return the intervals of a series that are searched, the longest first."""
    found: list[tuple[int, int]] = []
    size = length
    while size >= (LEAST_WORLDS if size == length else _LEAST_PART):
        count = 1 if size == length else math.ceil(2 * length / size) - 1
        step = (length - size) / max(1, count - 1)
        found += [(round(step * index), round(step * index) + size) for index in range(count)]
        size = math.ceil(size / 2)
    return list(dict.fromkeys(found))


def _best(logs: Any) -> tuple[int, float]:
    """Return the place of an interval with the smallest p-value, and that p-value."""
    import numpy as np
    from scipy import stats

    smallest = np.min([np.abs(_fits(logs, one)[0]) for one in CORRELATIONS], axis=0)
    place = int(np.argmax(smallest))
    return place + LEAST_SIDE, float(2 * stats.t.sf(smallest[place], len(logs) - 3))


def _fits(logs: Any, correlation: float) -> tuple[Any, Any, Any, Any]:
    """Return of each place of an interval the step's t, the step, its standard error, and the sum of squares."""
    import numpy as np

    level, norms = _design(len(logs), correlation)
    white = _whitened(logs, correlation)
    white = white - level @ (level.T @ white)
    products = _with_steps(white, correlation) / norms
    floor = (len(logs) - 3) * (_LEAST_SPREAD * max(1 - correlation, 0.05)) ** 2
    squares = np.maximum(white @ white - products**2, floor)
    errors = np.sqrt(squares / (len(logs) - 3))
    return products / errors, products / norms, errors / norms, squares


@lru_cache(maxsize=128)
def _design(length: int, correlation: float) -> tuple[Any, Any]:
    """Return, for an interval of that many worlds: an orthonormal basis of level and drift, whitened (a column each),
    and the lengths of the whitened steps without these. Both take memory in proportion to length."""
    import numpy as np

    base = np.stack([np.ones(length), np.arange(length) - (length - 1) / 2], axis=1)
    base = _whitened(base[:, 1:] if correlation == 1 else base, correlation)  # differences have no level
    level = np.linalg.qr(base)[0]
    after = length - 1 - np.arange(LEAST_SIDE, length - LEAST_SIDE + 1)
    squares = 1 + (1 - correlation) ** 2 * after - (_with_steps(level, correlation) ** 2).sum(axis=1)
    return level, np.sqrt(squares)


def _whitened(values: Any, correlation: float) -> Any:
    """Return values (a row for each world), each less what the correlation tells of it from the one before."""
    import numpy as np

    first = math.sqrt(1 - correlation**2) * values[:1]
    return np.concatenate([first, values[1:] - correlation * values[:-1]])


def _with_steps(white: Any, correlation: float) -> Any:
    """Return the inner product of each place's whitened step with whitened values, a row for each place.

    A whitened step is 0 before its place, 1 at it, and 1 less the correlation after it.
    """
    import numpy as np

    sums = np.cumsum(white[::-1], axis=0)[::-1]  # of each world and all after it
    places = slice(LEAST_SIDE, len(white) - LEAST_SIDE + 1)
    return (correlation * white + (1 - correlation) * sums)[places]


def _described(logs: Any, found: _Found) -> Change:
    """Return the change point of an interval that has one."""
    import numpy as np
    from scipy import stats

    length = found.end - found.start
    fits = {one: _fits(logs[found.start : found.end], one) for one in CORRELATIONS}
    # The likelihood of differences has one datum less, and can't be compared with the others.
    costs = np.array([length * np.log(fits[one][3]) - math.log(1 - one**2) for one in CORRELATIONS if one < 1])
    best = int(np.argmin(costs.min(axis=0)))
    near = np.flatnonzero(costs.min(axis=0) <= costs.min() + PLACE)
    _, steps, _, _ = fits[CORRELATIONS[int(np.argmin(costs[:, best]))]]
    reach = float(stats.t.ppf(0.975, length - 3))
    first = found.start + LEAST_SIDE
    return Change(
        at=first + best,
        first=first + int(near[0]),
        last=first + int(near[-1]),
        ratio=math.exp(steps[best]),
        low=math.exp(min(step[best] - reach * error[best] for _, step, error, _ in fits.values())),
        high=math.exp(max(step[best] + reach * error[best] for _, step, error, _ in fits.values())),
        p=min(1.0, found.p),
    )
