"""Tensor memory: of each block 128 lanes x 512 columns of 4 bytes, which tcgen05 allocates by columns.

An address has the lane in its upper 16 bits and the column in the lower ones. Each block has a memory of its own, as if
it were alone on its multiprocessor. What was allocated and never written is poison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.memory.space import LaneFault
from simulator.observe.events import TENSOR_COLUMNS, TENSOR_LANES

LANES, COLUMNS = TENSOR_LANES, TENSOR_COLUMNS
LANE_SHIFT = 16
SIZES = (32, 64, 128, 256, 512)
"""Numbers of columns that an allocation may have."""

Ids = npt.NDArray[np.int64]


def split(address: int) -> tuple[int, int]:
    """Lane and column of an address."""
    return address >> LANE_SHIFT & 0xFFFF, address & 0xFFFF


@dataclass(slots=True)
class TensorMemory:
    """The memories of a batch's blocks. words, written: of blocks that have allocated; owned: by block, the size of
    each allocation by its first column."""

    words: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    written: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)
    owned: dict[int, dict[int, int]] = field(default_factory=dict)

    def allocate(self, blocks: Sequence[int], columns: int) -> int:
        """Return the first of that number of columns, which were free in all of the blocks; -1 without any."""
        busy = np.zeros(COLUMNS, np.bool_)
        for block in blocks:
            for first, count in self.owned.get(block, {}).items():
                busy[first : first + count] = True
        free = (first for first in range(0, COLUMNS, columns) if not busy[first : first + columns].any())
        start = next(free, -1)
        for block in blocks if start >= 0 else ():
            if block not in self.words:
                self.words[block] = np.zeros((LANES, COLUMNS), np.uint32)
                self.written[block] = np.zeros((LANES, COLUMNS), np.bool_)
            self.written[block][:, start : start + columns] = False
            self.owned.setdefault(block, {})[start] = columns
        return start

    def free(self, block: int, address: int, columns: int) -> None:
        """Give an allocation back. Raises LaneFault unless it is one."""
        if self.owned.get(block, {}).get(address) != columns:
            raise LaneFault(0, f"tcgen05.dealloc of {columns} columns at {address:#x}: {self._told(block)}")
        del self.owned[block][address]

    def read(self, block: int, lanes: Any, columns: Any, what: str) -> npt.NDArray[np.uint32]:
        """The words at lanes and columns, which are broadcast. Raises LaneFault for poison, and what is not
        allocated."""
        self.check(block, lanes, columns, what)
        good = self.written[block][lanes, columns]
        if not good.all():
            lane, column = (np.broadcast_to(one, good.shape)[~good][0] for one in (lanes, columns))
            text = f"{what} of tensor memory that was never written (poison): lane {lane}, column {column}"
            raise LaneFault(0, text)
        found: npt.NDArray[np.uint32] = self.words[block][lanes, columns]
        return found

    def write(self, block: int, lanes: Any, columns: Any, words: Any, what: str) -> None:
        """Give words to lanes and columns."""
        self.check(block, lanes, columns, what)
        self.words[block][lanes, columns] = words
        self.written[block][lanes, columns] = True

    def check(self, block: int, lanes: Any, columns: Any, what: str) -> None:
        """Raise LaneFault for cells that are not allocated."""
        used, last = np.unique(columns), int(np.max(lanes))
        owned = np.zeros(1 << LANE_SHIFT, np.bool_)
        for first, count in self.owned.get(block, {}).items():
            owned[first : first + count] = True
        if not owned[used].all() or last >= LANES:
            where = f"columns {used[0]} to {used[-1]}" if last < LANES else f"lane {last}"
            raise LaneFault(0, f"{what} of tensor memory at {where}: {self._told(block)}")

    def _told(self, block: int) -> str:
        found = self.owned.get(block, {})
        listed = ", ".join(f"{count} columns from {first} on" for first, count in sorted(found.items()))
        return f"the block has allocated {listed or 'none'}"
