"""How well the median of samples is known: an interval by their order, whatever their distribution is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MOST_PARTS = 10
"""With timing.precision at most this many times timing.samples are taken."""


def median_interval(count: int) -> tuple[int, int]:
    """Return the places, from 0, of the ordered samples between which the median lies with at least 95 %; the first and
    the last of fewer than six samples, which have less."""
    total, below = 2**count, 0
    place = 0
    while place < count // 2:
        below += math.comb(count, place)
        if 2 * below > 0.05 * total:
            break
        place += 1
    place = max(place - 1, 0)
    return place, count - 1 - place


def half_width(samples: Sequence[float]) -> float:
    """Return half the median's 95 % interval as a share of the median; infinite for fewer than six samples, which are
    too few for 95 %."""
    if len(samples) < 6:
        return math.inf
    ordered = sorted(samples)
    low, high = median_interval(len(ordered))
    return (ordered[high] - ordered[low]) / 2 / statistics.median(ordered)
