"""From the table of steps to the critical path of a launch."""

from __future__ import annotations

from simulator.clock.costs import KINDS
from simulator.clock.profile import Path, Segment
from simulator.clock.running import Running
from simulator.clock.steps import KIND, START
from simulator.clock.timer import Timer

_WAITS = frozenset(KIND[name] for name in ("hop", "own_hop", "switch_hop", "barrier", "cluster_barrier"))
"""Kinds of steps that wait for another warp."""


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
    before, instruction = int(steps.before[row]), timer.ledger[int(steps.stored[row])]
    return Segment(
        KINDS[int(steps.kind[row])],
        *timer.place(int(steps.warp[row])),
        float(steps.time[before]) - began_us,
        float(steps.time[row]) - began_us,
        instruction.line if instruction is not None else 0,
        _awaited(timer, row, before),
    )


def _awaited(timer: Timer, row: int, before: int) -> tuple[int, int, int, int] | None:
    """Whom a step waited for: rank, block, warp and the PTX line of what that one did."""
    steps = timer.steps
    if int(steps.kind[row]) not in _WAITS:
        return None
    done = timer.ledger[int(steps.stored[before])]
    return (*timer.place(int(steps.warp[before])), done.line if done is not None else 0)
