"""Messages in lines: how whole warps take a buffer for an inbox whose form is Lines (kernels/dsl/inbox.py).

A warp takes a tile at a time: 960 bytes of the message, which are four groups of 15 units, a group for eight lanes. Of
its group lane l of eight has units l and 7 + l, and the last lane unit 14 alone. So every unit is loaded, reduced and
stored by one lane, as 16 bytes where the buffer begins at such a boundary, and no payload moves between lanes.

An offset is that of the lane's first slot in a row of the inbox, were its tiles 512 bytes apart: a tile's number times
512, and 16 for each lane before. So offsets go on from lane to lane as those of units do, and kernels/dsl/one_way.py
works with both. The end is one of whole tiles: a message is filled up with zeros, and all lanes of a warp go the same
way around every access to an inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from kernels.dsl import device
from kernels.dsl.messages import Message, load_part, store_part, vector_or_zeros
from kernels.dsl.slots import LINE_LANES, LINE_TILE_BYTES, TILE_BYTES, UNIT_BYTES, WARP
from kernels.dsl.traverse import halves, when

if TYPE_CHECKING:
    from kernels.dsl.frame import Frame

GROUP_BYTES = 15 * UNIT_BYTES
SECOND_BYTES = 7 * UNIT_BYTES
"""From a lane's first unit in its group to its second one."""


class LineMessage(Message):
    """A rank's input or output as tiles. count is that of slots: 32 for each tile. Made while a kernel is traced."""

    def __init__(self, frame: Frame, address: Any, size: Any = None) -> None:
        super().__init__(frame, address, size)
        lane = frame.thread & (WARP - 1)
        place = lane & (LINE_LANES - 1)
        self.is_last = place == LINE_LANES - 1
        self.second = (lane // LINE_LANES) * GROUP_BYTES + place * UNIT_BYTES + SECOND_BYTES
        tiles = cutlass.Uint32(self.size) // LINE_TILE_BYTES
        self.full = Int32(tiles) * TILE_BYTES
        self.count = Int32(cutlass.Uint32(self.size + (LINE_TILE_BYTES - 1)) // LINE_TILE_BYTES) * WARP

    def places(self, at: Any) -> tuple[Any, Any]:
        """The byte offsets in the message of a lane's units. The last lane's are the same."""
        second = (at >> 9) * LINE_TILE_BYTES + self.second
        return cutlass.select_(self.is_last, second, second - SECOND_BYTES), second

    def load(self, at: Any, whole: bool) -> list[Any]:
        """The eight words of a lane's two units. whole: all of the tile is there, and aligned to 16 bytes."""
        if whole:
            return [word for place in self.places(at) for word in device.load_vector(self.at(place))]
        parts = [self._part(place) for place in self.places(at)]
        return [word for part in parts for word in part]

    def _part(self, place: Any) -> list[Any]:
        words = unit_or_zeros(self.at(place), self.size - place, self.aligned, self.frame.itemsize)
        return list(words)

    def store(self, at: Any, words: Sequence[Any], whole: bool) -> None:
        """The other way."""
        first, second = self.places(at)
        there = ~self.is_last
        if whole:
            device.store_vector(self.at(first), (words[0], words[1], words[2], words[3]))
            vector = (words[4], words[5], words[6], words[7])
            when(there, lambda: device.store_vector(self.at(second), vector))
            return
        itemsize = self.frame.itemsize
        for place, part, present in (
            (first, words[:4], self.size - first),
            (second, words[4:], cutlass.select_(there, self.size - second, Int32(0))),
        ):
            store_unit(self.at(place), part, present, self.aligned, itemsize)

    def first(self, begin: Any, end: Any, index: Any) -> tuple[Any, list[Any]]:
        """Whether the first tile of lane index in [begin, end) has no unit that is cut short, and its words."""
        at = begin + index * UNIT_BYTES
        is_ready = self._is_ready(at, end)
        words = [
            word
            for place in self.places(at)
            for word in vector_or_zeros(self.at(place), is_ready & (place < self.size))
        ]
        return is_ready, words

    def _is_ready(self, at: Any, end: Any) -> Any:
        """Whether all units of a tile are whole or not there at all: the same for all lanes of a warp."""
        return self.aligned & (at < end) & (((self.size & (UNIT_BYTES - 1)) == 0) | (at < self.full))

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
        """Call body with offsets of tiles in [begin, end), for lane index of lanes, and whether they are whole.

        Arguments are as in Message.units; a lane's first tile is left out if first says that it is ready.
        """
        index, lanes = Int32(index), Int32(lanes)
        aligned = self.aligned if beside is None else self.aligned & beside.aligned
        full = cutlass.select_(aligned, cutlass.select_(end < self.full, end, self.full), begin)
        place, step = begin + index * UNIT_BYTES, lanes * UNIT_BYTES
        if after_first:
            place = cutlass.select_(self._is_ready(place, end), place + step, place)
        each_tile(place, full, end, step, self.frame.unroll, body)


@cute.jit
def each_tile(
    begin: cutlass.Int32,
    full: cutlass.Int32,
    end: cutlass.Int32,
    step: cutlass.Int32,
    unroll: cutlass.Constexpr,
    body: cutlass.Constexpr,
) -> None:
    """Call body with lists of offsets begin, begin + step, .. and whether they are below full: unroll at a time, then
    half as many, ..; those from full to end one by one."""
    offset = begin
    widths = halves(unroll)
    for i in cutlass.range_constexpr(len(widths)):
        width = widths[i]
        while offset + step * (width - 1) < full:
            body([offset + step * j for j in range(width)], True)
            offset += step * width
    while offset < end:
        body([offset], False)
        offset += step


@cute.jit
def unit_or_zeros(
    address: cutlass.Int64, present: cutlass.Int32, aligned: cutlass.Boolean, itemsize: cutlass.Constexpr
) -> tuple[cutlass.Int32, cutlass.Int32, cutlass.Int32, cutlass.Int32]:
    """A unit's words, of which only the first bytes may be there; zeros for the others."""
    a, b, c, d = cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0), cutlass.Int32(0)
    if aligned & (present >= UNIT_BYTES):
        a, b, c, d = device.load_vector(address)
    else:
        a, b, c, d = load_part(address, present, itemsize)
    return a, b, c, d


@cute.jit
def store_unit(
    address: cutlass.Int64,
    words: cutlass.Constexpr,
    present: cutlass.Int32,
    aligned: cutlass.Boolean,
    itemsize: cutlass.Constexpr,
) -> None:
    """The other way: the bytes that are there."""
    if aligned & (present >= UNIT_BYTES):
        device.store_vector(address, (words[0], words[1], words[2], words[3]))
    else:
        store_part(address, words, present, itemsize)
