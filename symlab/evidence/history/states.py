"""States of the machine: GPUs whose clock stays at one of two levels for a while make times that look like changes.

Where the recorded clocks of a series' worlds lie in two groups, the difference of times where the clock changes is the
machine's, and is taken off before change points are looked for. A change of the code that came at the very world at
which the clock changed for good can't be told from it: it is named as a state, too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from symlab.evidence.history.series import Point

LEAST_APART = 0.01
"""Minimum ratio of two states' clocks, less 1."""

LEAST_WORLDS = 2
"""Minimum number of worlds of a state."""

NEAR = 8
"""Maximum number of worlds beside a change of state that are compared."""


@dataclass(frozen=True, slots=True)
class States:
    """Two states of a series' worlds: the median clock of each in MHz, the ratio of the times in the second over those
    in the first, and whether each world was in the second."""

    clocks_mhz: tuple[float, float]
    ratio: float
    is_second: tuple[bool, ...]

    @property
    def text(self) -> str:
        """ "two states of the machine (SM clock 1755 and 1980 MHz): times 0.886 apart"."""
        low, high = self.clocks_mhz
        return f"two states of the machine (SM clock {low:.0f} and {high:.0f} MHz): times {self.ratio:.3f} apart"

    def taken_off(self, times: Sequence[float]) -> list[float]:
        """Return the times as they were in the first state."""
        return [time / (self.ratio if second else 1.0) for time, second in zip(times, self.is_second, strict=True)]


def are_clocked(points: Sequence[Point]) -> bool:
    """Whether the clocks of all worlds were recorded, without which a state of the machine looks like a change."""
    return all(_clock_mhz(point) is not None for point in points)


def states_of(points: Sequence[Point]) -> States | None:
    """Return the two states of timed worlds; None where clocks are in one group, or were not recorded of all."""
    clocks = [_clock_mhz(point) for point in points]
    known = sorted(clock for clock in clocks if clock is not None)
    if len(known) < len(clocks) or len(known) < 2 * LEAST_WORLDS or known[0] <= 0:
        return None
    apart, least = max((after / before - 1, after) for before, after in pairwise(known))
    is_second = tuple(clock is not None and clock >= least for clock in clocks)
    if apart < LEAST_APART or not LEAST_WORLDS <= sum(is_second) <= len(known) - LEAST_WORLDS:
        return None
    groups = [[clock for clock in known if (clock >= least) == second] for second in (False, True)]
    ratio = math.exp(_step([math.log(point.us) for point in points if point.us is not None], is_second))
    return States((statistics.median(groups[0]), statistics.median(groups[1])), ratio, is_second)


def _step(logs: Sequence[float], is_second: Sequence[bool]) -> float:
    """Return the median difference of log times where the state changes, each of up to NEAR worlds on both sides: a
    change elsewhere has no part in it."""
    runs = [list(run) for _, run in groupby(range(len(logs)), key=is_second.__getitem__)]
    found = []
    for before, after in pairwise(runs):
        sides = [[logs[at] for at in before[-NEAR:]], [logs[at] for at in after[:NEAR]]]
        found.append((1 if is_second[after[0]] else -1) * (statistics.median(sides[1]) - statistics.median(sides[0])))
    return statistics.median(found)


def _clock_mhz(point: Point) -> float | None:
    """Return the median clock of a world's GPUs after its samples; None if it was not recorded."""
    found = [
        state["sm_mhz"]
        for record in point.records
        for device in (record.timing.devices if record.timing is not None else ())
        if isinstance(state := device.get("after"), dict) and type(state.get("sm_mhz")) in (int, float)
    ]
    return statistics.median(found) if found else None
