"""Messages: buffers as units of 16 bytes that travel together, wherever the buffer begins and ends.

Units are counted from the buffer's first byte, so they are the same on all ranks; the last one may be cut short. Where
the buffer begins at a 16-byte boundary they are vectors, else they are loaded and stored by elements.

Offsets, sizes and numbers of units are Int32: kernels with inboxes are for messages of a few MiB. The elements' way
stands behind one branch, which is the same for all threads: a message that begins at a boundary and has whole units
alone passes by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import device
from kernels.dsl.slots import UNIT_BYTES
from kernels.dsl.traverse import halves, slice_of, when

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame


class Message:
    """A rank's input or output as units, the last of which may be cut short. Made while a kernel is traced."""

    def __init__(self, frame: Frame, address: Any, size: Any = None) -> None:
        """size: its bytes, if they are not the case's."""
        self.frame = frame
        self.address = address
        self.size = Int32(frame.size if size is None else size)
        self.aligned = (Int32(address) & (UNIT_BYTES - 1)) == 0
        self.count = (self.size + (UNIT_BYTES - 1)) >> 4

    def at(self, place: Any) -> Any:
        """The address of a byte of the message."""
        return self.address + Int64(place)

    def load(self, at: Any, whole: bool) -> list[Any]:
        """The words of the unit at a byte offset. whole: it is not cut short, and the message aligned to 16 bytes."""
        if whole:
            return list(device.load_vector(self.at(at)))
        return load_part(self.at(at), self.size - at, self.frame.itemsize)

    def store(self, at: Any, words: Sequence[Any], whole: bool) -> None:
        """The other way."""
        if whole:
            device.store_vector(self.at(at), (words[0], words[1], words[2], words[3]))
        else:
            store_part(self.at(at), words, self.size - at, self.frame.itemsize)

    def first(self, begin: Any, end: Any, index: Any) -> tuple[Any, list[Any]]:
        """Whether the first unit of lane index in bytes [begin, end) is whole, and its words; zeros if it is not."""
        full = cutlass.select_(end > self.size, self.size & -UNIT_BYTES, end)
        at = begin + index * UNIT_BYTES
        is_whole = self.aligned & (at < full)
        return is_whole, list(vector_or_zeros(self.at(at), is_whole))

    def slice(self, rank: Any) -> tuple[Any, Any]:
        """The byte range of a rank's slice of the units; the last one's end is where the last unit would end."""
        begin, end = slice_of(Int64(0), Int64(self.count * UNIT_BYTES), rank, self.frame.world_size)
        return Int32(begin), Int32(end)

    def units(
        self,
        begin: Any,
        end: Any,
        index: Any,
        lanes: Any,
        body: Callable[[Sequence[Any], bool], None],
        beside: Message | None = None,
        after_first: bool = False,
    ) -> None:
        """Call body with byte offsets of units in [begin, end), for lane index of lanes, and whether they are whole.

        Where the message, or the one beside it, is not aligned, they come one by one and none is called whole.
        after_first: without a lane's first unit, if that is whole.
        """
        index, lanes = Int32(index), Int32(lanes)
        aligned = self.aligned if beside is None else self.aligned & beside.aligned
        size, step = self.size, lanes * UNIT_BYTES
        full = cutlass.select_(end > size, size & -UNIT_BYTES, end)
        fast = cutlass.select_(aligned, full, begin)
        place = begin + index * UNIT_BYTES
        each_unit(place + step if after_first else place, fast, step, self.frame.unroll, lambda at: body(at, True))

        def by_elements() -> None:
            free = (full - begin) >> 4  # the first lane without a whole unit, where there is one
            rest = cutlass.select_(index == cutlass.select_(free < lanes, free, Int32(0)), full, end)
            each_unit(cutlass.select_(aligned, rest, place), end, step, 1, lambda at: body(at, False))

        when(~aligned | (full < end), by_elements)


@cute.jit
def each_unit(
    begin: cutlass.Int32,
    end: cutlass.Int32,
    step: cutlass.Int32,
    unroll: cutlass.Constexpr,
    body: cutlass.Constexpr,
) -> None:
    """traverse.each_vector for a message's offsets."""
    offset = begin
    widths = halves(unroll)
    for i in cutlass.range_constexpr(len(widths)):
        width = widths[i]
        while offset + step * (width - 1) < end:
            body([offset + step * j for j in range(width)])
            offset += step * width


@cute.jit
def vector_or_zeros(
    address: cutlass.Int64, there: cutlass.Boolean
) -> tuple[cutlass.Int32, cutlass.Int32, cutlass.Int32, cutlass.Int32]:
    a, b, c, d = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
    if there:
        a, b, c, d = device.load_vector(address)
    return a, b, c, d


def load_part(address: Any, present_bytes: Any, itemsize: int) -> list[Any]:
    """A unit's words by elements, of which only the first bytes may be there; zeros for the others."""
    words = [Int32(0)] * 4
    for at in range(0, UNIT_BYTES, itemsize):
        lower, upper = element_or_zero(address + at, at < present_bytes, itemsize)
        words[at // 4] = words[at // 4] | (lower << (8 * (at % 4)) if at % 4 else lower)
        if itemsize == 8:
            words[at // 4 + 1] = upper
    return words


@cute.jit
def element_or_zero(
    address: cutlass.Int64, there: cutlass.Boolean, itemsize: cutlass.Constexpr
) -> tuple[cutlass.Int32, cutlass.Int32]:
    lower, upper = cutlass.Int32(0), cutlass.Int32(0)
    if there:
        if cutlass.const_expr(itemsize == 8):
            lower, upper = device.load_pair(address)
        else:
            lower = device.load_element(address, itemsize)[0]
    return lower, upper


def store_part(address: Any, words: Sequence[Any], present_bytes: Any, itemsize: int) -> None:
    """The other way: the elements that are there."""
    for at in range(0, UNIT_BYTES, itemsize):
        shift = 8 * (at % 4)
        first = words[at // 4]
        element = [first, words[at // 4 + 1]] if itemsize == 8 else [first >> shift if shift else first]
        when(at < present_bytes, partial(device.store_element, address + at, element, itemsize))
