"""The table of steps: each step of a warp that took time or that others may wait for is a row, numbered from 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.clock.costs import KINDS
from simulator.observe.lanes import Ids

Times = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int32]
At = Any
"""Warps of a launch: a slice, or their numbers."""
START = -1
"""The kind of the first step of a warp; of others the place in KINDS."""
KIND = {name: place for place, name in enumerate(KINDS)}
LONG_AGO = -1.0
"""The time of row 0, which stands for what happened before the launch."""


class Steps:
    """Columns of the table. time: when the step is over; before: the step that it waited for; warp: the
    number of the warp among those of all launches under way."""

    def __init__(self) -> None:
        self.count = 1
        self._make(1 << 12)
        self.time[0] = LONG_AGO

    def _make(self, size: int) -> None:
        columns = {name: getattr(self, name)[: self.count] for name in _COLUMNS} if self.count > 1 else {}
        for name, dtype in _COLUMNS.items():
            column = np.zeros(size, dtype)
            if columns:
                column[: self.count] = columns[name]
            setattr(self, name, column)
        self.time[0] = LONG_AGO

    def add(self, count: int, **columns: Any) -> int:
        """Add rows; a column is an array of count elements or one value. Returns the number of the first."""
        first, end = self.count, self.count + count
        if end > len(self.time):
            self._make(max(end, 2 * len(self.time)))
        for name, values in columns.items():
            getattr(self, name)[first:end] = values
        self.count = end
        return first

    def clear(self) -> None:
        """Forget all rows: nothing that runs refers to one."""
        self.count = 1

    time: Times
    before: Rows
    warp: Rows
    kind: npt.NDArray[np.int8]


_COLUMNS: dict[str, Any] = {
    "time": np.float64,
    "before": np.int32,
    "warp": np.int32,
    "kind": np.int8,
}


class Warps:
    """The warps of some lanes. at: their numbers, as a slice where they are neighbours. starts: where in the lanes each
    warp begins; None: all have their 32 lanes, or whole warps of the launch's block do. lanes: how many."""

    __slots__ = ("at", "count", "lanes", "sizes", "starts")

    def __init__(self, lanes: range | Ids, block: int) -> None:
        self.lanes = len(lanes)
        per_block = -(-block // WARP)
        if isinstance(lanes, range) and block % WARP == 0:
            first, last = lanes.start // WARP, (lanes.stop - 1) // WARP
            self.at: At = slice(first, last + 1)
            self.count = last + 1 - first
            if lanes.start % WARP == 0 and lanes.stop % WARP == 0:
                self.starts: Ids | None = None
                self.sizes: Ids | int = WARP
                return
            numbers = np.arange(lanes.start, lanes.stop) // WARP
        else:
            ids = np.arange(lanes.start, lanes.stop) if isinstance(lanes, range) else lanes
            if block % WARP == 0:
                numbers = ids // WARP
            else:
                blocks, threads = np.divmod(ids, block)
                numbers = blocks * per_block + threads // WARP
        new = np.flatnonzero(np.diff(numbers)) + 1
        self.starts = np.concatenate([np.zeros(1, np.int64), new])
        self.sizes = np.diff(np.append(self.starts, len(numbers)))
        each = numbers[self.starts]
        self.count = len(each)
        is_run = int(each[-1]) - int(each[0]) + 1 == len(each)
        self.at = slice(int(each[0]), int(each[-1]) + 1) if is_run else each

    def most(self, values: Any) -> Any:
        """Return the largest of each warp's values, which are one a lane."""
        if self.starts is None:
            return values.reshape(self.count, WARP).max(axis=1)
        return np.maximum.reduceat(values, self.starts)

    def any(self, values: Any) -> Any:
        """Return whether a lane's value holds, for each warp."""
        if self.starts is None:
            return values.reshape(self.count, WARP).any(axis=1)
        return np.logical_or.reduceat(values, self.starts)

    def spread(self, values: Any) -> Any:
        """Return for each lane its warp's value."""
        return np.repeat(values, self.sizes)

    def first(self, values: Any) -> Any:
        """Return each warp's first lane's value."""
        return values[::WARP] if self.starts is None else values[self.starts]

    @property
    def numbers(self) -> Ids:
        """The warps' numbers."""
        at = self.at
        return np.arange(at.start, at.stop) if isinstance(at, slice) else at


WARP = 32
