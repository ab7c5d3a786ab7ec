"""How well the median of samples is known: an interval by their order, whatever their distribution is."""

from __future__ import annotations

import math


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
