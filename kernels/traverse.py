"""Which bytes of a buffer a thread and a rank work on: grid-stride loops over vectors, and slices by rank."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute

VECTOR_BYTES = 16


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


@cute.jit
def slice_of(
    size: cutlass.Int64, rank: cutlass.Int32, world_size: cutlass.Constexpr
) -> tuple[cutlass.Int64, cutlass.Int64]:
    """Byte range (begin, end) of a rank's slice of the full vectors in size bytes.

    Slices are contiguous, in rank order, and differ by one vector at most; kernels/all_reduce/shares.py says the same
    for the host.
    """
    vectors = cutlass.Uint64(size) >> 4
    share = vectors // world_size
    longer = cutlass.Int64(vectors - share * world_size)
    place = cutlass.Int64(rank)
    extra = cutlass.select_(place < longer, place, longer)
    begin = cutlass.Int64(share) * place + extra
    count = cutlass.Int64(share) + cutlass.Int64(place < longer)
    return begin * VECTOR_BYTES, (begin + count) * VECTOR_BYTES
