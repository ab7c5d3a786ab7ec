"""Arrays that nothing uses any more, for the next ones of their size: the first use of fresh memory costs more than
most of what the checker does with it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
_LEAST = 1024
_MOST_BYTES = 1 << 31
_LARGE_BYTES = 1 << 24


class Spare:
    """Arrays of numbers by length. kept_bytes: of all of them."""

    def __init__(self) -> None:
        self.arrays: dict[int, list[Numbers]] = {}
        self.kept_bytes = 0

    def zeros(self, count: int) -> Numbers:
        """Return an array of zeros; a large one may have numbers that were given as meaningless."""
        if not self.arrays.get(count):
            return np.zeros(count, np.int64)
        found = self.arrays[count].pop()
        self.kept_bytes -= found.nbytes
        if found.nbytes <= _LARGE_BYTES:
            found.fill(0)
        return found

    def give(self, array: Numbers, is_meaningless: bool = False) -> None:
        """Take an array that nothing else holds. is_meaningless: what is in it counts as much as zeros; large arrays,
        of which only a part may ever have been touched, are kept only then."""
        is_large = array.nbytes > _LARGE_BYTES
        if len(array) < _LEAST or array.base is not None or (is_large and not is_meaningless):
            return
        if self.kept_bytes + array.nbytes <= _MOST_BYTES:
            self.arrays.setdefault(len(array), []).append(array)
            self.kept_bytes += array.nbytes
