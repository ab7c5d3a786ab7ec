"""What an op moves: elements of a rank's input and output, its bus factor, and whose input an output must be.

The catalogue has the same in kernels/*/collective.py, which reports may not import; a test compares both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cases.record.case import RecordedCase

ITEMSIZES = {"bool": 1}
"""Bytes of an element, of data types whose names don't say it."""


@dataclass(frozen=True, slots=True)
class Op:
    """counts: elements of one rank's input and output, from numel and the number of ranks. bus_factor: from the number
    of ranks. source: the rank whose input a rank's output equals, from the rank, the number of ranks and the root; None
    if an output is not one rank's input. root_only: no rank but the root gets an output. room: size of the buffers in
    multiples of what a rank gets on average."""

    counts: Callable[[int, int], tuple[int, int]]
    bus_factor: Callable[[int], float]
    source: Callable[[int, int, int], int] | None = None
    root_only: bool = False
    room: int = 1


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


OPS = {
    "all_gather": Op(lambda numel, ranks: (numel // ranks, numel), _share),
    "all_reduce": Op(lambda numel, ranks: (numel, numel), lambda ranks: 2 * (ranks - 1) / ranks),
    "all_to_all": Op(lambda numel, ranks: (numel, numel), _share),
    "all_to_all_v": Op(lambda numel, ranks: (2 * numel, 2 * numel), _share, room=2),
    "barrier": Op(lambda numel, ranks: (numel, numel * ranks), lambda ranks: 0.0),
    "broadcast": Op(lambda numel, ranks: (numel, numel), lambda ranks: 1.0, source=lambda rank, ranks, root: root),
    "reduce": Op(lambda numel, ranks: (numel, numel), lambda ranks: 1.0, root_only=True),
    "reduce_scatter": Op(lambda numel, ranks: (numel, numel // ranks), _share),
    "send_recv": Op(
        lambda numel, ranks: (numel, numel),
        lambda ranks: 1.0,
        source=lambda rank, ranks, root: (rank - 1) % ranks,
    ),
}


def op_of(case: RecordedCase) -> Op | None:
    """Return what the case's op moves; None of an op that is unknown here, such as a custom one."""
    return OPS.get(case.op) if itemsize(case.dtype) else None


def itemsize(dtype: str) -> int:
    """Return the bytes of an element: bfloat16 has 2, float8_e4m3fn 1. 0 if the name does not say."""
    digits = re.match(r"[a-z]+([0-9]{1,3})", dtype)
    return int(digits[1]) // 8 if digits else ITEMSIZES.get(dtype, 0)


def counts_of(case: RecordedCase) -> tuple[int, int] | None:
    """Return the elements of one rank's input and output; None of an op or a data type that is unknown here."""
    op = op_of(case)
    return None if op is None else op.counts(case.size_bytes // itemsize(case.dtype), case.world_size)


def checked_elements(case: RecordedCase) -> int | None:
    """Return the number of elements that all ranks are given by one launch; None if the op is unknown here."""
    op, counts = op_of(case), counts_of(case)
    if op is None or counts is None:
        return None
    return counts[1] * (1 if op.root_only else case.world_size) // op.room


def slot_bytes(case: RecordedCase) -> int | None:
    """Return the bytes of a rank's input and output together, which in place share one buffer."""
    counts = counts_of(case)
    if counts is None:
        return None
    elements = max(counts) if case.placement == "in_place" else sum(counts)
    return elements * itemsize(case.dtype)
