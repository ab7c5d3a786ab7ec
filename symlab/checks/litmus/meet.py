"""Which threads can meet at which barrier: all ways in which arrivals at named barriers form groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Arriving = tuple[int, int]
"""A thread, and the number of its event."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """bar.sync (is_waiting) or bar.arrive of one thread, at a barrier of its block that waits for count threads."""

    event: Arriving
    name: int
    count: int | None
    is_waiting: bool
    block: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Meeting:
    """One way in which threads meet: pairs of events that synchronize, and events of threads that wait for ever."""

    met: frozenset[tuple[Arriving, Arriving]]
    blocked: frozenset[Arriving]


@dataclass(frozen=True, slots=True)
class _State:
    """How far each thread is, who has arrived at barriers that are not complete, and who has met."""

    positions: tuple[int, ...]
    arrived: frozenset[Arrival]
    met: frozenset[tuple[Arriving, Arriving]]


def meetings(arrivals: Sequence[Sequence[Arrival]]) -> frozenset[Meeting]:
    """Return all ways in which threads meet, whose arrivals are given in program order.

    A barrier is complete when its number of threads has arrived; then it starts again for those that come later.
    """
    found: set[Meeting] = set()
    start = _State((0,) * len(arrivals), frozenset(), frozenset())
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        stuck = {one.event[0]: one.event for one in state.arrived if one.is_waiting}
        going = [
            thread
            for thread, position in enumerate(state.positions)
            if thread not in stuck and position < len(arrivals[thread])
        ]
        if not going:
            found.add(Meeting(state.met, frozenset(stuck.values())))
        for thread in going:
            following = _arrived(state, thread, arrivals[thread][state.positions[thread]])
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return frozenset(found)


def _arrived(state: _State, thread: int, one: Arrival) -> _State:
    """The state after one arrival."""
    positions = tuple(position + (number == thread) for number, position in enumerate(state.positions))
    here = {other for other in state.arrived if (other.block, other.name) == (one.block, one.name)} | {one}
    assert one.count is not None, "the number of threads is filled in before they meet"
    if len(here) < one.count:
        return _State(positions, state.arrived | {one}, state.met)
    pairs = {(a.event, b.event) for a in here for b in here if a != b and b.is_waiting}
    return _State(positions, state.arrived - here, state.met | pairs)
