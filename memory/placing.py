"""Where a symmetric heap puts an allocation: one description for the simulator's heaps and for counting without any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HeapRules:
    """How a fabric places allocations: each takes whole granules and begins at a multiple of granule_bytes, or of its
    own alignment if that is larger; gap_bytes stay free behind each.
    """

    granule_bytes: int
    gap_bytes: int


SIMULATED = HeapRules(granule_bytes=256, gap_bytes=4096)
"""The simulator's. The gap is there so that an access beyond an allocation's end meets no other allocation."""

NVSHMEM = HeapRules(granule_bytes=512, gap_bytes=0)
"""The library's, measured by tests/memory/test_nvshmem_facts.py."""


def first_fit(
    spans: Sequence[tuple[int, int]], heap_bytes: int, size_bytes: int, alignment_bytes: int, rules: HeapRules
) -> tuple[int | None, int]:
    """Return the lowest offset at which size_bytes fit beside spans, or None, and the largest size that fits (bytes).

    spans are the (start, end) offsets of live allocations, ascending. The second value is the largest of the free
    places that were looked at: with an offset it says nothing of those behind it.
    """
    step = max(alignment_bytes, rules.granule_bytes)
    position, largest = 0, 0
    for start, end in [*spans, (heap_bytes, heap_bytes)]:
        position = -(-position // step) * step
        largest = max(largest, start - position)
        if position + size_bytes <= start:
            return position, largest
        position = end + rules.gap_bytes
    return None, max(largest, 0)


class CountingPool:
    """Stands in for a SymmetricPool where memory is counted before any world exists: it holds none.

    peak_bytes is the smallest heap in which all that was allocated has its place, in whole granules.
    """

    def __init__(self, rules: HeapRules) -> None:
        self._rules = rules
        self._next_bytes = 0
        self.peak_bytes = 0

    def bytes(self, size_bytes: int, *, name: str, alignment_bytes: int = 256) -> Any:
        """Count what SymmetricPool.bytes would take; there is no tensor."""
        granule = self._rules.granule_bytes
        step = max(alignment_bytes, granule)
        start = -(-self._next_bytes // step) * step
        self.peak_bytes = start + -(-size_bytes // granule) * granule
        self._next_bytes = self.peak_bytes + self._rules.gap_bytes
