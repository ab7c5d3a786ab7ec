"""How many calls a sample has, and on how many slots they take turns."""

from __future__ import annotations

from cases.record.timing import L2State

SAMPLE_US = 750.0
"""What a sample should last, where its number of calls is not given."""

FEWEST_CALLS, MOST_CALLS = 4, 50

HEAP_SHARE = 0.9
"""How much of the symmetric heap the slots of all contestants may take together."""


def expected_us(size_bytes: int) -> float:
    """A rough guess of what a call takes: the start of a collective, and the bytes at 200 GB/s."""
    return 15.0 + size_bytes / 200e3


def calls_for(size_bytes: int, given: int | None) -> int:
    """Calls a sample: as given, or as many as make it about SAMPLE_US long."""
    if given is not None:
        return given
    return min(max(round(SAMPLE_US / expected_us(size_bytes)), FEWEST_CALLS), MOST_CALLS)


def slots_for(one_slot_bytes: int, l2: str, l2_bytes: int, calls: int, budget_bytes: int) -> int:
    """Slots of a contestant: enough to be twice the L2 cache together, no more than calls or than the heap permits."""
    if l2 == L2State.hot:
        return 1
    one_slot_bytes = max(one_slot_bytes, 1)
    wanted = -(-2 * l2_bytes // one_slot_bytes)
    return max(1, min(wanted, calls, budget_bytes // (-(-one_slot_bytes // 512) * 512)))


def whole_turns(calls: int, slots: int, given: int | None) -> int:
    """The calls of a sample, changed so that every slot has as many, unless their number was given."""
    if given is not None or calls % slots == 0:
        return calls
    up = -(-calls // slots) * slots
    return up if up <= MOST_CALLS else calls // slots * slots
