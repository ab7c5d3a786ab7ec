"""From the table of steps to the critical path of a launch."""

from __future__ import annotations

from simulator.clock.costs import KINDS
from simulator.clock.profile import Path, Segment
from simulator.clock.running import Running
from simulator.clock.steps import START
from simulator.clock.timer import Timer


def path_of(timer: Timer, run: Running, row: int) -> Path:
    """Return the way back from a step to the beginning of its launch, as it went forward."""
    steps = timer.steps
    segments = []
    while row:
        before = int(steps.before[row])
        if int(steps.kind[row]) != START:
            segments.append(_segment(timer, row, run.began_us))
        elif float(steps.time[row]) <= run.began_us:
            break
        row = before
    return Path(tuple(reversed(segments)))


def _segment(timer: Timer, row: int, began_us: float) -> Segment:
    steps = timer.steps
    ends = (float(steps.time[one]) - began_us for one in (int(steps.before[row]), row))
    return Segment(KINDS[int(steps.kind[row])], *timer.place(int(steps.warp[row])), *ends)
