"""Counts per peer on the device: ranks exchange what each sends to each, and know then where every message lies.

A rank's row is what it sends to each rank, world_size int64. Block b of a rank has all ranks' rows in its part of the
workspace "rows", because blocks wait for blocks of their own number alone, and writes what follows from them to its
part of "places": where the message to each rank begins in the own input, and where in that rank's output. A rank's
message begins there behind those of all ranks before it.

The workspaces are those of kernels/dsl/count_rooms.py. Rows are read between find's beginning and the block's barrier
at its end: a rank may overwrite its row at others as soon as they have sent or told it anything after that.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from cases.sends import ROOM
from kernels.dsl import device
from kernels.dsl.count_rooms import COUNT_BYTES
from kernels.dsl.frame import Frame


class Counted:
    """A launch's counts. Made while a kernel is traced."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.row_bytes = frame.world_size * COUNT_BYTES
        block = cutlass.Int64(frame.block)
        self.of_block = block * (frame.world_size * self.row_bytes)
        self.places = frame.address("places") + block * (2 * self.row_bytes)

    def _row(self, rows: Any, rank: Any) -> Any:
        """Where a rank's row begins in the own block's part of a workspace "rows"."""
        return rows + self.of_block + cutlass.Int64(rank) * self.row_bytes

    def store_row(self) -> None:
        """Store the own row at all ranks, each by the thread of its number. A release to that rank afterwards makes the
        row visible to it."""
        frame = self.frame

        def each() -> None:
            _copy(frame.counts, self._row(frame.peer("rows", frame.thread), frame.rank), frame.world_size)

        frame.when(frame.thread < frame.world_size, each)

    @property
    def own_row(self) -> Any:
        """Where the own row begins, as an address of this rank."""
        return self._row(self.frame.address("rows"), self.frame.rank)

    def find(self) -> None:
        """Note where messages begin, once the rows of all ranks are there and the block knows it. Ends with a barrier
        of the block."""
        frame = self.frame
        rows = frame.address("rows")

        def each() -> None:
            before = _sum(self._row(rows, frame.rank), frame.thread, COUNT_BYTES)
            column = self._row(rows, 0) + cutlass.Int64(frame.thread) * COUNT_BYTES
            there = _sum(column, frame.rank, self.row_bytes)
            place = self.places + cutlass.Int64(frame.thread) * (2 * COUNT_BYTES)
            device.store_long(place, before)
            device.store_long(place + COUNT_BYTES, there)

        frame.when(frame.thread < frame.world_size, each)
        cute.arch.sync_threads()

    def message(self, rank: Any) -> tuple[Any, Any, Any]:
        """Return where the message to a rank begins in the own input and in that rank's output, and its size, in bytes
        (Int64). After find.

        A message that goes beyond that rank's room is empty: its place follows from the row of an earlier launch,
        which is there where a rank never came and the wait for it was given up.
        """
        frame = self.frame
        place = self.places + cutlass.Int64(rank) * (2 * COUNT_BYTES)
        count = device.load_long(frame.counts + cutlass.Int64(rank) * COUNT_BYTES)
        before, there = device.load_long(place), device.load_long(place + COUNT_BYTES)
        room = cutlass.Int64(frame.numel) * ROOM
        count = cutlass.select_(there <= room - count, count, cutlass.Int64(0))
        start, there, size = (one * frame.itemsize for one in (before, there, count))
        return start, there, size


@cute.jit
def _copy(source: cutlass.Int64, target: cutlass.Int64, count: cutlass.Constexpr) -> None:
    number = cutlass.Int64(0)
    while number < count:
        device.store_long(target + number * COUNT_BYTES, device.load_long(source + number * COUNT_BYTES))
        number += 1


@cute.jit
def _sum(start: cutlass.Int64, count: cutlass.Int32, step_bytes: cutlass.Constexpr) -> cutlass.Int64:
    """The sum of count Int64 that lie step_bytes apart."""
    found = cutlass.Int64(0)
    number = cutlass.Int32(0)
    while number < count:
        found += device.load_long(start + cutlass.Int64(number) * step_bytes)
        number += 1
    return found
