"""Where a case's input and output lie: how many bytes, beginning where, on every rank. Arithmetic, no memory.

Out of place they are two payloads. In place they share one payload of max(counts) elements, in which each begins where
the collective says (Collective.in_place): with some ops at another place on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from cases.case import Case
from cases.ops import collective


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes from start to end of a payload; input_start is where they lie in the rank's input, None if they
    don't."""

    start: int
    end: int
    input_start: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """A case's payloads in bytes.

    payloads_bytes: the input's and the output's size, or the size of the one payload that they share. Each payload
    begins offset_bytes after a boundary of 16 bytes, which vector accesses of kernels count on. input_starts and
    output_starts say for each rank where in its payload its input and its output begin; out of place that is 0.
    outputs_bytes are the sizes of the ranks' outputs: with counts per peer a rank may get less than there is room for.
    """

    payloads_bytes: tuple[int, ...]
    input_bytes: int
    outputs_bytes: tuple[int, ...]
    input_starts: tuple[int, ...]
    output_starts: tuple[int, ...]
    offset_bytes: int

    @property
    def in_place(self) -> bool:
        return len(self.payloads_bytes) == 1

    def kept(self, rank: int, has_output: bool) -> tuple[tuple[Piece, ...], ...]:
        """For each payload of a rank, in order, the pieces that a launch must leave as they were.

        They are all but the output; without one (has_output, see Collective.gives), all.
        """
        if not self.in_place:
            got = (0, self.outputs_bytes[rank] if has_output else 0)
            rest = _pieces(self.payloads_bytes[1], (0, 0), got)
            return _pieces(self.input_bytes, (0, self.input_bytes), (0, 0)), rest
        source, target = self.input_starts[rank], self.output_starts[rank]
        written = (target, target + self.outputs_bytes[rank]) if has_output else (0, 0)
        return (_pieces(self.payloads_bytes[0], (source, source + self.input_bytes), written),)


def _pieces(size_bytes: int, given: tuple[int, int], written: tuple[int, int]) -> tuple[Piece, ...]:
    """What of a payload is not written, cut where the given bytes, those of the input, begin and end."""
    cuts = sorted({0, size_bytes, *given, *written})
    return tuple(
        Piece(start, end, start - given[0] if given[0] <= start < given[1] else None)
        for start, end in pairwise(cuts)
        if not (written[0] <= start and end <= written[1])
    )


def layout_of(case: Case) -> Layout:
    """The layout of a case.

    ValueError for a case in place whose op has no such form.
    """
    op = collective(case.op)
    counts = op.elements(case)
    input_bytes, output_bytes = (count * case.itemsize for count in counts)
    payloads_bytes: tuple[int, ...] = (input_bytes, output_bytes)
    starts = [(0, 0)] * case.world_size
    if case.placement == "in_place":
        if op.in_place is None:
            raise ValueError(f"{case.op} has no form in place: {case.id}")
        payloads_bytes = (max(payloads_bytes),)
        starts = [op.in_place(case.numel, case.world_size, rank) for rank in range(case.world_size)]
    return Layout(
        payloads_bytes=payloads_bytes,
        input_bytes=input_bytes,
        outputs_bytes=tuple(op.received(case, rank) * case.itemsize for rank in range(case.world_size)),
        input_starts=tuple(source * case.itemsize for source, _ in starts),
        output_starts=tuple(target * case.itemsize for _, target in starts),
        offset_bytes=case.offset * case.itemsize,
    )


def slot_bytes(case: Case) -> int:
    """Input and output of one slot, together; in place they are one buffer."""
    return sum(layout_of(case).payloads_bytes)
