"""Which of several contestants to take at which size: ranges of bytes, a threshold, and what they lose on sizes left
out.

A contestant's times are a mapping from bytes to microseconds. Between two measured sizes a time is taken to be a
straight line over bytes, a delay and a bandwidth, so two contestants change places where their lines cross. Of the
published records, such a line between two neighbours misses the size between them by 1.9 % (median of 578), a power of
the size by 6.7 %.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Times = Mapping[int, float]
"""Microseconds by bytes."""

TIE = 0.01
"""A contestant is kept while it is at most this share slower than the fastest: the next world may turn that."""

TARGET = 0.02
"""The regret on sizes left out that a table is to have at most."""

FEWEST_SIZES = 4
"""With fewer sizes there are no sizes to leave out: two remain at least on one side of each."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Regret:
    """What choices made without a size lose at it, as shares of the fastest time there: the mean over sizes, the worst,
    and the size of that in bytes."""

    mean: float
    worst: float
    worst_bytes: int

    @property
    def is_within_target(self) -> bool:
        return self.worst <= TARGET


def winners(times: Mapping[Key, Times], sizes: Sequence[int]) -> dict[int, Key]:
    """Return the contestant to take at each size. All contestants have times at all sizes, which ascend.

    It is the fastest; but the one of the size before is kept while it is within TIE of that.
    """
    found: dict[int, Key] = {}
    before: Key | None = None
    for size in sizes:
        fastest = min(times, key=lambda one: times[one][size])
        if before is None or times[before][size] > times[fastest][size] * (1 + TIE):
            before = fastest
        found[size] = before
    return found


def crossing(one: Times, other: Times, low: int, high: int) -> int:
    """Return the bytes, from low to high - 1, up to which `one` is taken, if `other` is from there on.

    Where neither leads at one end only, it is the geometric mean. Raises ValueError unless low < high.
    """
    if low >= high:
        raise ValueError(f"{low} to {high} bytes is no range")
    lead_low_us, lead_high_us = (other[size] - one[size] for size in (low, high))
    if lead_low_us > 0 > lead_high_us:
        place = low + (high - low) * lead_low_us / (lead_low_us - lead_high_us)
    else:
        place = math.sqrt(max(low, 1) * high)
    return min(max(int(place), low), high - 1)


def choice_at(times: Mapping[Key, Times], sizes: Sequence[int], wanted: int) -> Key:
    """Return what the table of these sizes takes at any size: that of its range; beyond the ends that of the end."""
    chosen = winners(times, sizes)
    if wanted <= sizes[0]:
        return chosen[sizes[0]]
    for low, high in itertools.pairwise(sizes):
        if low <= wanted <= high:
            one, other = chosen[low], chosen[high]
            return one if one == other or wanted <= crossing(times[one], times[other], low, high) else other
    return chosen[sizes[-1]]


def regret_of(times: Mapping[Key, Times], sizes: Sequence[int]) -> Regret:
    """Return what tables made without each size in turn lose there. Raises ValueError for fewer than FEWEST_SIZES."""
    lost = {}
    for size in _enough(sizes):
        taken = choice_at(times, [one for one in sizes if one != size], size)
        lost[size] = times[taken][size] / min(one[size] for one in times.values()) - 1
    return _regret(lost)


def _enough(sizes: Sequence[int]) -> Sequence[int]:
    if len(sizes) < FEWEST_SIZES:
        raise ValueError(f"{len(sizes)} sizes (RECORDS), give records of {FEWEST_SIZES} sizes or more")
    return sizes


def _regret(lost: Mapping[int, float]) -> Regret:
    """The regret of shares lost by size."""
    worst = max(lost, key=lambda size: lost[size])
    return Regret(sum(lost.values()) / len(lost), lost[worst], worst)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Up to up_to_bytes the own way is taken, above it the other. 0: never. in_use: the regret at the sizes that it was
    chosen from, which one threshold can't bring to 0 where the own way wins in the middle only."""

    up_to_bytes: int
    in_use: Regret


def threshold_of(own: Times, other: Times, sizes: Sequence[int]) -> Threshold:
    """Return the threshold whose worst loss at these sizes is the least, then whose mean is. It is never above the
    largest size: beyond it nothing was measured."""
    places = [0, *(crossing(own, other, low, high) for low, high in itertools.pairwise(sizes)), sizes[-1]]
    return min((Threshold(place, _lost(own, other, sizes, place)) for place in places), key=_loss)


def _loss(one: Threshold) -> tuple[float, float]:
    return round(one.in_use.worst, 9), round(one.in_use.mean, 9)


def _lost(own: Times, other: Times, sizes: Sequence[int], place: int) -> Regret:
    return _regret({size: _share(own, other, size, place) for size in sizes})


def _share(own: Times, other: Times, size: int, place: int) -> float:
    """What is lost at a size under a threshold."""
    return (own if size <= place else other)[size] / min(own[size], other[size]) - 1


def threshold_regret(own: Times, other: Times, sizes: Sequence[int]) -> Regret:
    """Return what thresholds made without each size in turn lose there; without the largest, nothing is said of it, so
    it is not left out. Raises ValueError for fewer than FEWEST_SIZES."""
    lost = {}
    for size in _enough(sizes)[:-1]:
        place = threshold_of(own, other, [one for one in sizes if one != size]).up_to_bytes
        lost[size] = _share(own, other, size, place)
    return _regret(lost)
