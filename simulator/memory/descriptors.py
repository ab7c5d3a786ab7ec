"""Matrix descriptors: the 64 bits that say how wgmma and tcgen05.mma find a matrix in shared memory.

A row of a matrix is 16 bytes along the depth, or, of one that is transposed, 8 elements along the other direction. Rows
of 16 bytes form units of 8; units, and what repeats a swizzle's pattern, are as far apart as two strides say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

ROW_BYTES = 16
DEPTH_BYTES = 32
"""What one wgmma reads of a row of a matrix that is not transposed."""
SPANS = (0, 128, 64, 32)
"""Bytes of a swizzle, by a descriptor's mode."""
_UNIT_ROWS = 8
_FIELD = (1 << 14) - 1

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """start, leading and stride in bytes; base: the number of 128-byte rows that a swizzle's pattern begins behind its
    natural boundary; swizzle_bytes: 0, 32, 64 or 128."""

    start: int
    leading: int
    stride: int
    base: int
    swizzle_bytes: int

    @staticmethod
    def of(bits: int) -> Descriptor:
        """Read the 64 bits."""
        start, leading, stride = (ROW_BYTES * (bits >> at & _FIELD) for at in (0, 16, 32))
        return Descriptor(start, leading, stride, bits >> 49 & 7, SPANS[bits >> 62])


def refused(bits: int) -> str:
    """Return why a descriptor of tcgen05 can't be read, "" if it can. It has a version and other modes in bits that
    those of wgmma leave zero."""
    if bits >> 46 & 3 != 1:
        return f"is of version {bits >> 46 & 3} (bits 46 and 47), and that of tcgen05 is 1"
    return "" if not bits >> 61 & 1 and not bits >> 52 & 1 else "has a mode that the simulator does not have"


@lru_cache(maxsize=4096)
def extent_of(bits: int, rows: int, is_transposed: bool, element_bytes: int = 2) -> tuple[int, int]:
    """Return the first and the end of the bytes that places_of says."""
    places = places_of(bits, rows, is_transposed, element_bytes)
    return int(places.min()), int(places.max()) + ROW_BYTES


@lru_cache(maxsize=4096)
def places_of(bits: int, rows: int, is_transposed: bool, element_bytes: int = 2) -> Offsets:
    """Return where the rows of 16 bytes of a matrix begin in shared memory, as (rows, 2); of a transposed one (depth,
    rows of 16 bytes)."""
    one = Descriptor.of(bits)
    width = one.swizzle_bytes // ROW_BYTES
    if is_transposed:
        depth, across = DEPTH_BYTES // element_bytes, rows * element_bytes // ROW_BYTES
        row, column = np.arange(depth)[:, None], np.arange(across)
        inner, outer = (one.leading, one.stride) if width else (one.stride, one.leading)
        span = max(width, 1)
        along = column % span * ROW_BYTES + column // span * inner
    else:
        row, column = np.arange(rows)[:, None], np.arange(DEPTH_BYTES // ROW_BYTES)
        outer, span = one.stride, max(width, 1)
        along = column * (ROW_BYTES if width else one.leading)
    found: Offsets = one.start + along + row % _UNIT_ROWS * span * ROW_BYTES + row // _UNIT_ROWS * outer
    if width:
        found = found ^ ((found >> 3) - (one.base << 4) & one.swizzle_bytes - ROW_BYTES)
    found.flags.writeable = False
    return found
