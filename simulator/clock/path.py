"""From the table of steps to the critical path of a launch, and to the timeline of its blocks."""

from __future__ import annotations

from simulator.clock.costs import KINDS
from simulator.clock.profile import Path, Segment, Span
from simulator.clock.running import Running
from simulator.clock.steps import KIND, START
from simulator.clock.timer import Timer

WAITS = frozenset({"hop", "own_hop", "switch_hop", "barrier", "cluster_barrier"})
"""Kinds of steps that wait for another warp."""
_WAITS = frozenset(KIND[name] for name in WAITS)


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


def _awaited(timer: Timer, row: int) -> tuple[int, int, int, int] | None:
    """Whom a step waited for: rank, block, warp and the PTX line of what that one did."""
    steps = timer.steps
    before = int(steps.before[row])
    if int(steps.kind[row]) not in _WAITS:
        return None
    done = timer.ledger[int(steps.stored[before])]
    return (*timer.place(int(steps.warp[before])), done.line if done is not None else 0)


def _segment(timer: Timer, row: int, began_us: float) -> Segment:
    steps = timer.steps
    before, instruction = int(steps.before[row]), timer.ledger[int(steps.stored[row])]
    awaited = _awaited(timer, row)
    is_other = awaited is not None and int(steps.warp[row]) != int(steps.warp[before])
    source = instruction.source.nearest if instruction is not None and instruction.source is not None else ""
    return Segment(
        KINDS[int(steps.kind[row])],
        *timer.place(int(steps.warp[row])),
        float(steps.time[before]) - began_us,
        float(steps.time[row]) - began_us,
        0 if is_other else int(steps.instructions[row]),
        int(steps.outstanding[row]),
        instruction.line if instruction is not None else 0,
        source,
        instruction.text if instruction is not None else "",
        awaited,
    )


def spans_of(timer: Timer, run: Running) -> tuple[Span, ...]:
    """Return the timeline of each block: the steps of that warp of it that took most of them, in their order."""
    spans: list[Span] = []
    for block in range(run.warps // run.per_block):
        chains = [
            _chain(timer, int(run.last[warp])) for warp in range(block * run.per_block, (block + 1) * run.per_block)
        ]
        longest = max(chains, key=len)
        spans += [_span(timer, row, run.began_us) for row in longest]
    return tuple(spans)


def _chain(timer: Timer, row: int) -> list[int]:
    """The steps of a warp up to its last one, in their order."""
    steps = timer.steps
    found = []
    while row and int(steps.kind[row]) != START:
        found.append(row)
        row = int(steps.own[row])
    return found[::-1]


def _span(timer: Timer, row: int, began_us: float) -> Span:
    steps = timer.steps
    instruction = timer.ledger[int(steps.stored[row])]
    awaited = _awaited(timer, row)
    return Span(
        *timer.place(int(steps.warp[row])),
        KINDS[int(steps.kind[row])],
        float(steps.time[int(steps.own[row])]) - began_us,
        float(steps.time[row]) - began_us,
        instruction.line if instruction is not None else 0,
        instruction.text if instruction is not None else "",
        awaited,
        None if awaited is None else float(steps.time[int(steps.before[row])]) - began_us,
    )
