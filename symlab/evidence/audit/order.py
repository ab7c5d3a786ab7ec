"""In which order the worlds of two sides ran, and what of the order a verdict on times needs.

Machines drift: they warm up, other jobs come and go, and neighbouring worlds resemble each other. Where all worlds of
one side ran before all of the other, drift and change look the same, and no test of the times can tell them apart.
Where they run in pairs, slow drift moves both sides alike. Which one of a pair comes first is drawn, by a seed that is
recorded: in a fixed order such as A B B A a disturbance that comes back every four worlds hits one side alone.

An order is a text with a letter for each world, in the order in which the worlds began: A for a world before, B for one
after.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby

BEFORE, AFTER = "A", "B"

LONGEST_RUN = 2
"""Maximum number of consecutive worlds of one side in sides that alternate. Runs of two are two pairs, A B B A."""

MOST_AHEAD = 1.0
"""Maximum difference of the two sides' mean places in sides that alternate; that of pairs is 1 at most. Linear
drift then adds at most the drift of one place, which is far below the spread that it gives each side."""

APART = "apart in time: the worlds of the two sides do not alternate in pairs, so drift can't be told from a change"
"""What is said where no verdict on times is given because of the order."""


_BLOCK = 8
"""Number of pairs of which half begin with either side: so a disturbance of every second world hits both alike."""


def pairs(count: int, seed: str) -> list[str]:
    """Return the order within a number of pairs of worlds, "AB" or "BA" each, as drawn by a seed. More pairs by the
    same seed begin with these."""
    source = random.Random(seed)
    found: list[str] = []
    while len(found) < count:
        found += source.sample([BEFORE + AFTER, AFTER + BEFORE] * (_BLOCK // 2), _BLOCK)
    return found[:count]


def in_pairs(order: str) -> bool:
    """Whether worlds ran in pairs of both sides, one pair after another."""
    return len(order) % 2 == 0 and all(set(order[at : at + 2]) == {BEFORE, AFTER} for at in range(0, len(order), 2))


def order_of(before: Mapping[str, datetime], after: Mapping[str, datetime]) -> str:
    """Return the order of two sides' worlds, see the module. Of worlds that began together those before come first."""
    places = [(at, BEFORE) for at in before.values()] + [(at, AFTER) for at in after.values()]
    return "".join(side for _, side in sorted(places))


def alternates(order: str) -> bool:
    """Return whether the sides alternate: short runs of one side, and neither side ahead of the other."""
    places = {side: [index for index, one in enumerate(order) if one == side] for side in (BEFORE, AFTER)}
    if not all(places.values()):
        return False
    longest = max(len(list(run)) for _, run in groupby(order))
    means = [sum(some) / len(some) for some in places.values()]
    return longest <= LONGEST_RUN and abs(means[0] - means[1]) <= MOST_AHEAD
