"""Where did a series of times change its level? Change points with their interval, at a stated rate of false alarms.

A series has one time a world, in order of time (the world is the replicate, see reports/audit/statistics.py). Worlds of
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
point; then the intervals to its left and to its right are searched. Without any change, fewer than 5 in 100 pages name
one; so do fewer than 5 in 100 with a change of what lies beside it.

**The interval of the place** holds each place whose likelihood, with r at its best, is within the factor
exp(-PLACE / 2) of the best place's. The interval of the ratio is Student's, for the r that gives the widest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
    named: dict[int, tuple[int, int, float]] = {}
    for place, p, start, end in sorted(found, key=lambda one: one[1]):
        if p * tests < ALPHA and not any(start < at < end for at in named):
            named[start + place] = start, end, p * tests
    judged = [_described(logs, *one) for one in named.values()]
    return sorted((one for one in judged if abs(math.log(one.ratio)) > math.log1p(band)), key=lambda one: one.at)


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

    white, rest, steps, norms = _design(len(logs), correlation)
    whitened = rest @ (white @ logs)
    products = steps @ whitened
    floor = (len(logs) - 3) * (_LEAST_SPREAD * max(1 - correlation, 0.05)) ** 2
    squares = np.maximum(whitened @ whitened - products**2, floor)
    errors = np.sqrt(squares / (len(logs) - 3))
    return products / errors, products / norms, errors / norms, squares


@lru_cache(maxsize=4096)
def _design(length: int, correlation: float) -> tuple[Any, Any, Any, Any]:
    """Return, for an interval of that many worlds: what whitens it, what takes level and drift off, the whitened steps
    (a row for each place, of length 1), and their lengths before."""
    import numpy as np

    white = np.eye(length) - correlation * np.eye(length, k=-1)
    white[0] *= math.sqrt(1 - correlation**2)
    base = white @ np.stack([np.ones(length), np.arange(length) - (length - 1) / 2], axis=1)
    if correlation == 1:
        base = base[:, 1:]  # differences have no level
    rest = np.eye(length) - base @ np.linalg.pinv(base)
    places = np.arange(LEAST_SIDE, length - LEAST_SIDE + 1)
    steps = (np.arange(length)[None, :] >= places[:, None]).astype(float) @ white.T @ rest.T
    norms = np.linalg.norm(steps, axis=1)
    return white, rest, steps / norms[:, None], norms


def _described(logs: Any, start: int, end: int, p: float) -> Change:
    """Return the change point of an interval that has one."""
    import numpy as np
    from scipy import stats

    length = end - start
    fits = {one: _fits(logs[start:end], one) for one in CORRELATIONS}
    # The likelihood of differences has one datum less, and can't be compared with the others.
    costs = np.array([length * np.log(fits[one][3]) - math.log(1 - one**2) for one in CORRELATIONS if one < 1])
    best = int(np.argmin(costs.min(axis=0)))
    near = np.flatnonzero(costs.min(axis=0) <= costs.min() + PLACE)
    _, steps, _, _ = fits[CORRELATIONS[int(np.argmin(costs[:, best]))]]
    reach = float(stats.t.ppf(0.975, length - 3))
    first = start + LEAST_SIDE
    return Change(
        at=first + best,
        first=first + int(near[0]),
        last=first + int(near[-1]),
        ratio=math.exp(steps[best]),
        low=math.exp(min(step[best] - reach * error[best] for _, step, error, _ in fits.values())),
        high=math.exp(max(step[best] + reach * error[best] for _, step, error, _ in fits.values())),
        p=min(1.0, p),
    )
