"""An oracle of tensor maps: maps encoded word by word, and boxes moved one element after the other."""

import struct
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 9, "bf16": 10}
SIZES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2}
NARROW = {"b4x16": (11, 4, 4), "b4x16_p64": (12, 4, 8), "b6x16_p32": (13, 6, 8)}
"""Numbers of types, and bits of an element in global memory and, with its padding, in shared memory."""
NANS = {"f16": "f77f", "bf16": "f77f", "f32": "f77ff77f", "f64": "f77ff77ff77ff77f"}
"""As an H100 has them."""


@dataclass(frozen=True)
class Map:
    """The innermost dimension first; strides are in bytes, from the second dimension on."""

    element: str
    sizes: tuple
    strides: tuple
    box: tuple
    steps: tuple
    swizzle: int = 0
    nan: bool = False

    @property
    def counts(self):
        return tuple((extent + step - 1) // step for extent, step in zip(self.box, self.steps, strict=True))

    @property
    def tensor_bytes(self):
        """Up to the end of the last element."""
        steps = (SIZES[self.element], *self.strides)
        return sum((size - 1) * step for size, step in zip(self.sizes, steps, strict=True)) + SIZES[self.element]

    @property
    def box_bytes(self):
        total = SIZES[self.element]
        for one in self.counts:
            total *= one
        return total


@dataclass(frozen=True)
class NarrowMap(Map):
    @property
    def tensor_bytes(self):
        above = sum((size - 1) * step for size, step in zip(self.sizes[1:], self.strides, strict=True))
        return above + self.sizes[0] * NARROW[self.element][1] // 8

    @property
    def box_bytes(self):
        return int(np.prod(self.counts)) * NARROW[self.element][2] // 8

    def loaded(self, tensor, corner, shared):
        """As the function of that name, bit by bit: of 16 elements the padding is behind the last one."""
        _, bits, room = NARROW[self.element]
        box = [0] * (8 * self.box_bytes)
        for number, index in enumerate(product(*(range(count) for count in reversed(self.counts)))):
            at = [start + one for start, one in zip(corner, reversed(index), strict=True)]
            if not all(0 <= one < limit for one, limit in zip(at, self.sizes, strict=True)):
                continue
            there = 8 * sum(one * step for one, step in zip(at[1:], self.strides, strict=True)) + at[0] * bits
            here = number // 16 * 16 * room + number % 16 * bits
            for bit in range(bits):
                place, rest = divmod(here + bit, 8)
                place = swizzled(shared + place, self.swizzle) - shared
                box[8 * place + rest] = tensor[(there + bit) // 8] >> (there + bit) % 8 & 1
        return np.packbits(np.array(box, np.uint8), bitorder="little").tobytes()


def narrow_cases():
    for element, corner in product(NARROW, ((0, 0), (128, 1), (128, -2), (-128, 4))):
        bits = NARROW[element][1]
        sizes, row = (192 + 64 * (bits == 6), 5), 256 * bits // 8
        for swizzle in (0, 64 if element == "b4x16" else 128):
            yield NarrowMap(element, sizes, (row + 16,), (128, 4), (1, 1), swizzle), corner, 0 if swizzle else 128


def encoded(made, address):
    """The 128 bytes of a map, the second half as a host leaves it: anything."""
    rank, words = len(made.sizes), [0] * 16
    number = NARROW[made.element][0] if made.element in NARROW else TYPES[made.element]
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    modes = {0: 0, 32: 1, 64: 2, 128: 3}[made.swizzle]
    words[2] = 2 | rank - 1 << 4 | number << 7 | modes << 13 | made.nan << 15 | 2 << 17
    for at, stride in enumerate(made.strides):
        words[3 + at] = stride // 16 & 0xFFFFFFFF
        words[7] |= (stride // 16 >> 32) << 4 * at
    for at, size in enumerate(made.sizes):
        words[8 + at] = size - 1
    for at, step in enumerate(made.steps):
        words[13] |= step - 1 << 3 * at
    words[13] |= made.box[0] - 1 << 24
    for at, extent in enumerate(made.box[1:]):
        words[14] |= extent - 1 << 8 * at
    return struct.pack("<16I", *words) + bytes(range(64))


def places(made, corner, shared):
    """Of each element of a box at `corner`: its place in a box that lies at the byte `shared` of shared memory, and its
    place in the tensor, None out of bounds."""
    size = SIZES[made.element]
    steps = (size, *made.strides)
    boxes = product(*(range(count) for count in reversed(made.counts)))
    for number, index in enumerate(boxes):
        at = [start + step * one for start, step, one in zip(corner, made.steps, reversed(index), strict=True)]
        inside = all(0 <= one < limit for one, limit in zip(at, made.sizes, strict=True))
        there = sum(one * step for one, step in zip(at, steps, strict=True))
        yield swizzled(shared + number * size, made.swizzle) - shared, there if inside else None


def swizzled(address, swizzle):
    """In rows of 128 bytes the units of 16 change places with others: as many as the swizzle is wide, by the row."""
    row, rest = divmod(address, 128)
    unit, byte = divmod(rest, 16)
    return row * 128 + (unit ^ row % (swizzle // 16 or 1)) * 16 + byte


def loaded(made, tensor, corner, shared):
    """What a load leaves in shared memory."""
    if isinstance(made, NarrowMap):
        return made.loaded(tensor, corner, shared)
    size = SIZES[made.element]
    box = bytearray(made.box_bytes)
    fill = bytes.fromhex(NANS[made.element]) if made.nan else bytes(size)
    for here, there in places(made, corner, shared):
        box[here : here + size] = fill if there is None else tensor[there : there + size]
    return bytes(box)


def stored(made, tensor, corner, shared, box, change=None):
    """What a store of a box leaves of a tensor's bytes: elements of a unit of 16 bytes that begins inside are written,
    inside or not, as on an H100. change: of a reduction, from old and given bits to new ones."""
    size, after = SIZES[made.element], bytearray(tensor)
    unit = 16 // size
    rounded = replace(made, sizes=(-(-made.sizes[0] // unit) * unit, *made.sizes[1:]))
    for here, there in places(rounded, corner, shared):
        if there is not None:
            given = int.from_bytes(box[here : here + size], "little")
            old = int.from_bytes(after[there : there + size], "little")
            new = given if change is None else int(change(old, given))
            after[there : there + size] = new.to_bytes(size, "little")
    return bytes(after)


CHOICES = {
    "rank": (1, 2, 3, 4, 5),
    "element": tuple(TYPES),
    "swizzle": (0, 32, 64, 128),
    "row": ("whole", "half"),
    "corner": ("inside", "odd", "below", "beyond", "far"),
    "nan": (False, True),
    "step": (1, 2, 3),
    "shared": (0, 128, 640),
}


def pairs_of(case):
    named = sorted(case.items())
    return {(one, other) for at, one in enumerate(named) for other in named[at + 1 :]}


def pairwise_cases():
    """Cases in which each two choices of CHOICES come together at least once."""
    made = np.random.default_rng(5)
    missing = {
        pair
        for one, other in product(CHOICES, CHOICES)
        if one < other
        for pair in product(*([(name, value) for value in CHOICES[name]] for name in (one, other)))
    }
    cases = []
    while missing:
        drawn = [{name: values[made.integers(len(values))] for name, values in CHOICES.items()} for _ in range(60)]
        best = max(drawn, key=lambda case: len(missing & pairs_of(case)))
        if missing & pairs_of(best):
            cases.append(best)
            missing -= pairs_of(best)
    return cases


def case_of(rank, element, swizzle, row, corner, nan, step, shared):
    """A map, the corner of a box, and where the box lies in shared memory."""
    size, span = SIZES[element], swizzle or 64
    inner = (span // 2 if row == "half" and not swizzle else span) // size
    unit = 16 // size
    box = (inner, 4 * step - step // 2, 3, 2, 2)[:rank]
    steps = (1, step, 1, step, 1)[:rank]
    odd = corner != "inside"
    sizes = tuple(2 * extent + (3 if odd else 0) for extent in box)
    strides, reach = [], -(-sizes[0] * size // 16) * 16 + 16
    for extent in sizes[1:]:
        strides.append(reach)
        reach *= extent
    starts = {
        "inside": tuple(extent if at else unit for at, extent in enumerate(box)),
        "odd": (3 * unit, *(2 for _ in box[1:])),
        "below": tuple(-1 - at if at else -unit for at in range(rank)),
        "beyond": tuple(limit - 1 - at if at else (limit - 1) // unit * unit for at, limit in enumerate(sizes)),
        "far": (-64 * unit, *(1 for _ in box[1:])),
    }
    made = Map(element, sizes, tuple(strides), box, steps, swizzle, nan and element in NANS)
    return made, starts[corner], shared
