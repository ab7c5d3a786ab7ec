"""What one launch of a recorded case moves, by what its op means."""

from __future__ import annotations

from cases.case import Case, Placement
from cases.ops import COLLECTIVES, Collective
from cases.sends import ROOM

_BY_NAME = {one.op: one for one in COLLECTIVES}


def op_of(case: Case) -> Collective | None:
    """Return what the case's op means; None of an op that is unknown here, such as a custom one."""
    return _BY_NAME.get(case.op)


def checked_elements(case: Case) -> int | None:
    """Return the number of elements that all ranks are given by one launch; None if the op is unknown here.

    Of counts per peer, which a record may claim to be of any number of ranks, the total is that of uniform ones."""
    op = op_of(case)
    if op is None:
        return None
    each = op.counts(case.numel, case.world_size)[1] // (1 if op.sends is None else ROOM)
    return each * (case.world_size if op.is_for_all else 1)


def slot_bytes(case: Case) -> int | None:
    """Return the bytes of a rank's input and output together, which in place share one buffer."""
    op = op_of(case)
    if op is None:
        return None
    counts = op.counts(case.numel, case.world_size)
    return (max(counts) if case.placement == Placement.in_place else sum(counts)) * case.itemsize
