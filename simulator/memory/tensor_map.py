"""Tensor maps: the 128 bytes that say how a tensor lies in global memory and which box of it a copy moves.

The layout is that of CUDA's hosts. It is no public one: it was read off the maps that CuTe DSL 4.8.1's host code makes
for known tensors (kernels/hosting.py runs it), and off the words and bits that ptxas 13.0 lets tensormap.replace
change. CUDA's driver 580 gives an H100 the same first half for all tensors of the tests, but for bits of _KINDS. A
tensor may have up to 5 dimensions; the innermost comes first in all that is listed here.

What an H100 and an H200 showed on 28 November 2026 that no manual says: a box begins at a multiple of 16 bytes of a
row, and to store it may not begin before the tensor: otherwise the instruction is illegal. Stores, and on the H200
reductions, change units of 16 bytes whole, if their first byte is inside. NaN is 7ff7 for each 2 bytes, whatever the
type. Rows of a box that are shorter than the swizzle lie as far apart as it is long.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

MAP_ALIGNMENT, MAP_BYTES = 64, 128
READ_BYTES = 64
"""How many of a map's bytes say something; the others need not be written."""
UNIT_BYTES = 16
"""Of which addresses, strides and rows of a box are multiples; a swizzle moves units of it."""
_KINDS = (0, 2)  # in the lowest 4 bits of the word of modes: of CUDA's driver 580 for an H100, of CuTe DSL's host code
_TYPES = (
    *("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16"),
    *("b4x16", "b4x16_p64", "b6x16_p32", "tf32", "tf32.ftz"),
)
_BITS = {"u8": 8, "u16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64, "f16": 16, "f32": 32, "f64": 64, "bf16": 16}
_BITS |= {"b4x16": 4, "b4x16_p64": 4, "b6x16_p32": 6}
_PADDED = {"b4x16_p64": 8, "b6x16_p32": 4}
"""Types of which 16 elements have 16 bytes in shared memory, the upper ones padding (zeros here), and bytes that are
moved together."""
_PADDED_ELEMENTS = 128
"""What coordinates and boxes of these are multiples of in the innermost dimension."""
_WITH_NANS = ("f16", "bf16", "f32", "f64")
_NAN = bytes.fromhex("f77f")
"""What fills elements out of bounds where the map asks for NaN, repeated."""
_SPANS = (0, 32, 64, 128)

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """address: where the tensor begins, as its rank sees it. element: the PTX type. sizes: of the tensor, in elements;
    strides: of all dimensions but the innermost, in bytes; box: in elements; steps: of each dimension, how far elements
    of a box are apart. swizzle_bytes: 0 (none), 32, 64 or 128. nan: what is out of bounds is NaN, not zero."""

    address: int
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle_bytes: int = 0
    nan: bool = False

    @property
    def element_bits(self) -> int:
        """In global memory."""
        return _BITS[self.element]

    @property
    def is_padded(self) -> bool:
        return self.element in _PADDED

    @property
    def row_bytes(self) -> int:
        """Of a row of the box in shared memory."""
        return self.box[0] if self.is_padded else self.box[0] * self.element_bits // 8

    def wrong_corner(self, coordinates: tuple[int, ...], stores: bool) -> str:
        """Return why a box that is loaded or stored can't begin at coordinates, in elements; "" if it can."""
        unit = _PADDED_ELEMENTS if self.is_padded else UNIT_BYTES * 8 // self.element_bits
        if coordinates[0] % unit:
            text = f"a copy from element {coordinates[0]} on by a map of {self.element}"
            return f"{text}; it takes multiples of {unit}, {unit * self.element_bits // 8} bytes"
        if stores and min(coordinates) < 0:
            return f"a copy to global memory from coordinates {coordinates} on; they may not be negative"
        return ""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many elements of each dimension a copy moves."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """What a copy counts on its mbarrier: all of the box, out of bounds or not."""
        return int(np.prod(self.counts[1:])) * self.row_bytes

    @property
    def fill(self) -> npt.NDArray[np.uint8]:
        """The bytes of an element that is out of bounds."""
        size = -(-self.element_bits // 8)
        return np.frombuffer(_NAN * (size // 2) if self.nan else bytes(size), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """What a copy moves of a tensor: units of unit_bytes, each from or to there (bytes from where the tensor begins)
    and places (bytes from where the box begins in shared memory). Units out of bounds are left out; in shared memory
    they become `fill` (an element's bytes). stretches: (begin, size) of what is touched in global memory.
    swizzle_bytes: the map's."""

    there: Offsets
    places: Offsets
    unit_bytes: int
    fill: npt.NDArray[np.uint8]
    stretches: list[tuple[int, int]]
    swizzle_bytes: int

    def part(self, low: int, high: int) -> tuple[list[tuple[int, int]], Offsets]:
        """Return what lies at the bytes from low to high of the box: the stretches of global memory (begin, size) and
        the places of their units, one after another."""
        inside = (self.places >= low) & (self.places < high)
        if inside.all():
            return self.stretches, self.places
        return stretches(self.there[inside], self.unit_bytes), self.places[inside]


def stretches(offsets: Offsets, unit_bytes: int) -> list[tuple[int, int]]:
    """Return (begin, size) of the bytes of units, joined where one follows the other in the list."""
    if not len(offsets):
        return []
    starts = np.flatnonzero(np.concatenate([[True], np.diff(offsets) != unit_bytes]))
    counts = np.diff(np.append(starts, len(offsets)))
    return list(zip(offsets[starts].tolist(), (counts * unit_bytes).tolist(), strict=True))


@lru_cache(maxsize=256)
def decoded(content: bytes) -> TensorMap:
    """Return what the first READ_BYTES of a map say. Raises ValueError for one that hardware or the simulator does not
    take; the message is about the copy."""
    (address,), words = struct.unpack_from("<Q", content), struct.unpack("<16I", content[:READ_BYTES])
    modes = words[2]
    if modes & 15 not in _KINDS or not any(content[:READ_BYTES]):
        raise ValueError("a tensor copy by 128 bytes that are no tensor map, let the host encode one")
    rank = (modes >> 4 & 7) + 1
    if rank > 5:
        raise ValueError(f"a tensor map of {rank} dimensions; it has 1 to 5")
    number = modes >> 7 & 15
    element = _TYPES[number] if number < len(_TYPES) else f"type {number}"
    if element not in _BITS:
        raise ValueError(f"a tensor map of {element}: the simulator has {', '.join(_BITS)}")
    if modes >> 11 & 3:
        raise ValueError("a tensor map with interleaved channels: the simulator has those without")
    if modes >> 22 & 3:
        raise ValueError("a tensor map that swizzles units of more than 16 bytes: the simulator has those of 16")
    strides = [(words[3 + at] | (words[7] >> 4 * at & 15) << 32) * UNIT_BYTES for at in range(rank - 1)]
    box = [1 + (words[13] >> 24), *(1 + (words[14] >> 8 * at & 255) for at in range(rank - 1))]
    steps = [1, *(1 + (words[13] >> 3 * at & 7) for at in range(1, rank))]  # the innermost one counts if interleaved
    sizes = [1 + one for one in words[8 : 8 + rank]]
    lists = (tuple(sizes), tuple(strides), tuple(box), tuple(steps))
    made = TensorMap(address, element, *lists, _SPANS[modes >> 13 & 3], bool(modes >> 15 & 1))
    if wrong := _wrong(made):
        raise ValueError(wrong)
    return made


def _wrong(made: TensorMap) -> str:
    """Return what a map has beyond the limits, "" if nothing."""
    row = made.row_bytes
    span = made.swizzle_bytes
    if made.address % UNIT_BYTES:
        return f"a tensor map of a tensor at {made.address:#x}: not aligned to {UNIT_BYTES} bytes"
    if row % UNIT_BYTES:
        return f"a tensor map with rows of {row} bytes in its box; they are multiples of {UNIT_BYTES}"
    if span and row > span:
        return f"a tensor map with rows of {row} bytes in its box; a swizzle of {span} bytes takes at most {span}"
    if span and row < span:
        return f"a tensor map with rows of {row} bytes in its box: the simulator swizzles whole rows of {span}"
    if made.nan and made.element not in _WITH_NANS:
        return f"a tensor map of {made.element} that fills with NaN: only floats have it"
    if made.is_padded and made.box[0] != _PADDED_ELEMENTS:
        return f"a tensor map of {made.element} with {made.box[0]} elements in a row; it has {_PADDED_ELEMENTS}"
    return ""


def tile_at(made: TensorMap, coordinates: tuple[int, ...], shared_address: int, stores: bool = False) -> Tile:
    """Return what a load or a store moves of the box at coordinates, in elements. shared_address: where the box lies in
    the block's shared memory, which decides how its bytes are swizzled."""
    first, extent, count = (one * made.element_bits // 8 for one in (coordinates[0], made.sizes[0], made.box[0]))
    unit = UNIT_BYTES if stores or extent % UNIT_BYTES == 0 else -(-made.element_bits // 8)
    unit = _PADDED.get(made.element, unit)
    within = np.arange(0, count, unit)
    row = first + within
    if made.is_padded:
        within = within // (2 * made.element_bits) * UNIT_BYTES + within % (2 * made.element_bits)
    there, inside = row, (row >= 0) & (row < extent)
    rest = zip(coordinates[1:], made.sizes[1:], made.strides, made.counts[1:], made.steps[1:], strict=True)
    for start, limit, stride, many, step in rest:
        index = start + step * np.arange(many, dtype=np.int64)
        there = (index * stride)[:, None] + there
        inside = ((index >= 0) & (index < limit))[:, None] & inside
        there, inside = there.reshape(-1), inside.reshape(-1)
    kept = np.flatnonzero(inside)
    places = shared_address + kept // len(row) * made.row_bytes + within[kept % len(row)]
    if made.swizzle_bytes:
        places = places ^ (places >> 3 & (made.swizzle_bytes - UNIT_BYTES))
    there = there[kept]
    return Tile(there, places - shared_address, unit, made.fill, stretches(there, unit), made.swizzle_bytes)
