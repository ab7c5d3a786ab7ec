"""Which candidate a table takes where several are as quick: the neighbouring size's, then the one of fewer blocks.

So a table has few ranges, and leaves multiprocessors to others where they gain nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

TIE = 0.02
"""A choice is at most this much slower than its size's quickest candidate."""

MEDIAN_TIE = 0.01
"""What the choices of a series of sizes are slower, in the median, is at most this."""


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate at one size: its name, what it took, and the number of blocks that it is launched with."""

    name: str
    value: float
    blocks: int


@dataclass(frozen=True, slots=True)
class _Way:
    """Choices up to some size: number of neighbours that lose between their sizes, of ranges, all their blocks, what
    they are slower in all."""

    lost: int
    ranges: int
    blocks: int
    slower: float
    chosen: tuple[Option, ...]

    @property
    def cost(self) -> tuple[int, int, int, float]:
        return self.lost, self.ranges, self.blocks, self.slower


Loses = Callable[[int, Option, Option], bool]
"""Whether the choices at a size, by its place in the series, and at the next one lose to another between the two."""


def chosen(
    series: Sequence[Sequence[Option]],
    tie: float = TIE,
    median: float = MEDIAN_TIE,
    loses: Loses = lambda at, one, other: False,
) -> list[Option]:
    """Return the choice at each size of a series, whose sizes are in order and have an option each at least.

    Of all choices that are no more than tie slower than their size's quickest, and than median in the median of the
    sizes, those are taken that lose least often between two sizes, then those with the fewest ranges, then those of the
    fewest blocks, then the quickest.
    """
    found = _fewest_ranges(series, tie, loses)
    if statistics.median(_slower(one, options) for one, options in zip(found, series, strict=True)) > median:
        found = _fewest_ranges(series, min(median, tie), loses)
    return list(found)


def _fewest_ranges(series: Sequence[Sequence[Option]], tie: float, loses: Loses) -> tuple[Option, ...]:
    """The cheapest way through all sizes: for each choice at a size the cheapest way to it is enough to know."""
    ways: list[_Way] = []
    for place, options in enumerate(series):
        following = []
        for one in options:
            slower = _slower(one, options)
            if slower > tie:
                continue
            if not ways:
                following.append(_Way(0, 1, one.blocks, slower, (one,)))
                continue
            longer = [
                _Way(
                    way.lost + loses(place - 1, way.chosen[-1], one),
                    way.ranges + (way.chosen[-1].name != one.name),
                    way.blocks + one.blocks,
                    way.slower + slower,
                    (*way.chosen, one),
                )
                for way in ways
            ]
            following.append(min(longer, key=lambda way: way.cost))
        ways = following
    return min(ways, key=lambda way: way.cost).chosen


def _slower(one: Option, options: Sequence[Option]) -> float:
    return one.value / min(other.value for other in options) - 1
