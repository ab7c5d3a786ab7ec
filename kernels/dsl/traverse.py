"""Which bytes of a buffer a thread and a rank work on: vectors within bounds of 16 bytes, the elements at both ends,
and slices by rank.

A buffer may begin anywhere that an element may. It is walked along the 16-byte boundaries of one address, its anchor:
the elements before the first boundary and after the last are its edges, fewer than 16 bytes each. Buffers whose
addresses differ by a multiple of 16 bytes meet the same boundaries; where another does not, its side of each vector
is loaded or stored element by element.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.shares import LINE_BYTES, VECTOR_BYTES


@cute.jit
def each_vector(
    begin: cutlass.Int64,
    end: cutlass.Int64,
    step: cutlass.Int64,
    unroll: cutlass.Constexpr,
    body: cutlass.Constexpr,
) -> None:
    """Call body with lists of byte offsets begin, begin + step, .. below end: unroll at a time, then half as many, ..

    What body does for one list can overlap, so unroll sets how many independent accesses a thread has in flight. The
    rest goes by halves, not one by one: a thread with 3 of 4 offsets left would wait three times for the links.
    """
    offset = begin
    widths = halves(unroll)
    for i in cutlass.range_constexpr(len(widths)):
        width = widths[i]
        while offset + step * (width - 1) < end:
            body([offset + step * j for j in range(width)])
            offset += step * width


def halves(width: int) -> list[int]:
    """width, its half, .. 1; rounded down."""
    return [width, *halves(width // 2)] if width > 1 else [1]


class Span:
    """Bytes [begin, end) of a buffer whose byte 0 is at the address anchor. Made while a kernel is traced.

    Its vectors are the 16-byte units in [first, last), aligned at the anchor; its edges are what lies around them.
    """

    def __init__(self, anchor: Any, begin: Any, end: Any) -> None:
        self.begin, self.end = begin, end
        self.first, self.last = bounds(anchor, begin, end)

    def part(self, first: Any, last: Any) -> Span:
        """The vectors in bytes [first, last) of it, boundaries both."""
        made = Span.__new__(Span)
        made.begin = made.first = first
        made.last = made.end = last
        return made

    def vectors(self, index: Any, lanes: Any, unroll: int, body: Any) -> None:
        """Call body with lists of the byte offsets of the vectors of lane index of lanes."""
        each_vector(self.first + index * VECTOR_BYTES, self.last, lanes * VECTOR_BYTES, unroll, body)

    def edges(self, index: Any, itemsize: int, body: Any) -> None:
        """Call body with the byte offset of an element of the edges, for the first lanes one each; 30 at most."""
        offset = self.begin + index * itemsize
        at_edge(offset, self.first, self.last, self.end, body)


@cute.jit
def at_edge(
    offset: cutlass.Int64, first: cutlass.Int64, last: cutlass.Int64, end: cutlass.Int64, body: cutlass.Constexpr
) -> None:
    place = offset
    if place >= first:
        place += last - first
    if place < end:
        body(place)


def bounds(anchor: Any, begin: Any, end: Any) -> tuple[Any, Any]:
    """The first and the last 16-byte boundary of anchor in bytes [begin, end); both end where there is none."""
    first = begin + (-(anchor + begin) & (VECTOR_BYTES - 1))
    first = cutlass.select_(first < end, first, end)
    return first, first + ((end - first) & -VECTOR_BYTES)


@cute.jit
def slice_of(
    first: cutlass.Int64, last: cutlass.Int64, rank: cutlass.Int32, world_size: cutlass.Constexpr
) -> tuple[cutlass.Int64, cutlass.Int64]:
    """Byte range (begin, end) of a rank's slice of the vectors in bytes [first, last).

    Slices are contiguous, in rank order, and differ by one vector at most; kernels/shares.py says the same for the
    host.
    """
    vectors = cutlass.Uint64(last - first) >> 4
    share = vectors // world_size
    longer = cutlass.Int64(vectors - share * world_size)
    place = cutlass.Int64(rank)
    extra = cutlass.select_(place < longer, place, longer)
    begin = cutlass.Int64(share) * place + extra
    count = cutlass.Int64(share) + cutlass.Int64(place < longer)
    return first + begin * VECTOR_BYTES, first + (begin + count) * VECTOR_BYTES


def line_slice_of(first: cutlass.Int64, last: cutlass.Int64, number: cutlass.Int32, count: int) -> tuple[Any, Any]:
    """The same of slices, count of them, that begin whole lines after first (kernels/shares.py: line_slices)."""
    size = last - first
    begin = cutlass.Int64(cutlass.Uint64(size * number) // count) & -LINE_BYTES
    end = cutlass.Int64(cutlass.Uint64(size * (number + 1)) // count) & -LINE_BYTES
    return first + begin, first + cutlass.select_(number == count - 1, size, end)


@cute.jit
def when(condition: cutlass.Boolean, body: cutlass.Constexpr) -> None:
    """Call body where the condition holds."""
    if condition:
        body()


@cute.jit
def either(condition: cutlass.Boolean, yes: cutlass.Constexpr, no: cutlass.Constexpr) -> None:
    """Call the one or the other."""
    if condition:
        yes()
    else:
        no()
