"""Does a series of times have two modes, and which? Of two modes a median says little: it may lie where no time does.

The test is Hartigan and Hartigan's dip (The Dip Test of Unimodality, Annals of Statistics 13, 1985): the dip is the
largest distance between the series' distribution and the nearest one with a single mode. The null hypothesis is the
uniform distribution, the hardest of the usual ones with one mode. A series is called bimodal if its dip is beyond the
99.9 % quantile of uniform series of its length, so that of 1,000 series with one mode about one is; and if its modes
lie at least LEAST_APART apart: clocks tick, and a dip also sees two neighbouring ticks.

The modes are the two groups that minimise the sum of squares of logarithms within groups, each named with its median
and its share. A group has at least LEAST_SHARE of the times, and what lies beyond that share at either end counts as
lying there: a few stragglers are a tail and no mode, and do not decide where the groups part.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

LEAST_APART = 0.01
"""Minimum ratio of two modes, less 1."""

LEAST_SHARE = 0.1
"""Minimum share of a mode."""

_QUANTILES = {
    8: 0.549,
    10: 0.567,
    15: 0.597,
    20: 0.617,
    30: 0.639,
    50: 0.654,
    100: 0.675,
    200: 0.700,
    500: 0.710,
    1000: 0.725,
}
"""The 99.9 % quantile of sqrt(n) * dip of n uniform numbers, from 40,000 simulated series of n = 8 to 5,000 of 1000."""


@dataclass(frozen=True, slots=True)
class Modes:
    """Two modes: the median of each group in microseconds, and how many times it has."""

    low_us: float
    high_us: float
    low_count: int
    high_count: int

    def text(self, what: str) -> str:
        """Return "12.1 us (5 of 10 worlds) and 14 us (5)"; what names the members of the series."""
        total = self.low_count + self.high_count
        return (
            f"{self.low_us:.4g} us ({self.low_count} of {total} {what}) and {self.high_us:.4g} us ({self.high_count})"
        )


def modes_of(times: Sequence[float]) -> Modes | None:
    """Return the two modes of positive times in microseconds; None for a series that is too short or has one mode."""
    count = len(times)
    if count < min(_QUANTILES):
        return None
    ordered = sorted(map(math.log, times))
    if dip(ordered) * math.sqrt(count) <= quantile(count):
        return None
    split = _split(ordered)
    groups = ordered[:split], ordered[split:]
    low, high = (math.exp(statistics.median(group)) for group in groups)
    return Modes(low, high, *map(len, groups)) if high / low - 1 >= LEAST_APART else None


def quantile(count: int) -> float:
    """Return the quantile for a number of times, between the lengths of the table by the square root of the length."""
    lengths = sorted(_QUANTILES)
    if count >= lengths[-1]:
        return _QUANTILES[lengths[-1]]
    above = bisect_left(lengths, count)
    if lengths[above] == count:
        return _QUANTILES[count]
    one, other = lengths[above - 1], lengths[above]
    share = (math.sqrt(count) - math.sqrt(one)) / (math.sqrt(other) - math.sqrt(one))
    return _QUANTILES[one] + share * (_QUANTILES[other] - _QUANTILES[one])


def dip(ordered: Sequence[float]) -> float:
    """Return the dip of one or more values in ascending order: from 1 / (2 n) for equal distances to 1/4 for two heaps.

    A modal interval is narrowed: within it the distribution lies between its greatest convex minorant and its least
    concave majorant; their largest distance is where one of its ends moves to, and what is then left outside must be
    convex below and concave above, at a cost that the dip is the maximum of.
    """
    count = len(ordered)
    low, high, found = 0, count - 1, 1.0  # in units of 1 / n
    while high > low:
        convex, concave = (_hull(ordered, low, high, is_convex) for is_convex in (True, False))
        gap, left, right = _widest(ordered, convex, concave)
        if gap <= found:
            break
        below = _excess(ordered, [one for one in convex if one <= left], is_convex=True)
        above = _excess(ordered, [one for one in concave if one >= right], is_convex=False)
        found = max(found, below, above)
        if (left, right) == (low, high):
            break
        low, high = left, right
    return found / (2 * count)


def _hull(ordered: Sequence[float], low: int, high: int, is_convex: bool) -> list[int]:
    """Return the indices at which the greatest convex minorant, or the least concave majorant, of the points
    (value, index) touches them, from low to high."""
    sign = 1 if is_convex else -1
    found: list[int] = []
    for index in range(low, high + 1):
        while len(found) > 1:
            one, other = found[-2], found[-1]
            rise = (other - one) * (ordered[index] - ordered[other])
            if sign * (rise - (index - other) * (ordered[other] - ordered[one])) < 0:
                break
            found.pop()
        found.append(index)
    return found


def _widest(ordered: Sequence[float], convex: Sequence[int], concave: Sequence[int]) -> tuple[float, int, int]:
    """Return the largest distance between both hulls, in units of 1 / n, and the interval between the touching points
    on either side of it. A step of the distribution is one unit, which the distance includes."""
    widest = 0.0, convex[0], concave[-1]
    for left in convex:
        at = bisect_left(concave, left)
        gap = _height(ordered, concave, left) - left + 1
        if gap > widest[0]:
            widest = gap, left, concave[at]
    for right in concave:
        at = bisect_left(convex, right)
        gap = right - _height(ordered, convex, right) + 1
        if gap > widest[0]:
            widest = gap, convex[at] if convex[at] == right else convex[at - 1], right
    return widest


def _height(ordered: Sequence[float], hull: Sequence[int], index: int) -> float:
    """Return the hull's height at a point's value."""
    at = bisect_left(hull, index)
    if hull[at] == index:
        return index
    one, other = hull[at - 1], hull[at]
    width = ordered[other] - ordered[one]
    return other if width == 0 else one + (other - one) * (ordered[index] - ordered[one]) / width


def _excess(ordered: Sequence[float], hull: Sequence[int], is_convex: bool) -> float:
    """Return the largest distance of the points from a hull that they lie on one side of, with the step's unit."""
    if len(hull) < 2:
        return 0.0
    sign = 1 if is_convex else -1
    inner = range(hull[0], hull[-1] + 1)
    return max(sign * (index - _height(ordered, hull, index)) for index in inner) + 1


def _split(ordered: Sequence[float]) -> int:
    """Return the number of values in the lower group."""
    count = len(ordered)
    least = math.ceil(LEAST_SHARE * count)
    low, high = ordered[least - 1], ordered[count - least]
    sums = [0.0, *accumulate(min(max(value, low), high) for value in ordered)]
    total = sums[-1]
    return max(
        range(least, count - least + 1),
        key=lambda at: sums[at] ** 2 / at + (total - sums[at]) ** 2 / (count - at),
    )
