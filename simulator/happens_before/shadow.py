"""Shadow memory: the last accesses to each piece of an allocation, or of the shared memory of a launch.

The unit of an allocation is what its narrowest access so far needs, from 16 bytes down to 1: so accesses of different
threads to bytes of one word are told apart. Of each unit it keeps an epoch (clocks.py) of the last weak write, the last
strong write, and of each rank the last weak and the last strong read; in launches that declare an assumption, also the
last strong read that took data on its strength. Reads of several threads that nothing orders are kept as those of a
warp or of a block; those of several blocks of one rank in a list beside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.happens_before.spare import Spare

Epochs = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int64]
MOST_UNIT_BYTES = 16
ROW_BYTES = 1 << 18
"""More than the shared memory of a block on any GPU."""
LEAST_PIECE = 8
"""Accesses that follow each other in shorter pieces are looked at one by one."""
WRITE, READ = "write", "read"


@dataclass(frozen=True, slots=True)
class Kept:
    """Which accesses an array of epochs is about. rank: of reads, the reader's (Shadow.readers); -1 of writes. takes:
    of strong reads, whether they are those that took data on the strength of an assumption (Accesses._takes)."""

    kind: str
    is_strong: bool
    rank: int = -1
    takes: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Pieces of `each` units of a shadow, as rows of a matrix. numbers: the rows; start: where row 0 begins; firsts:
    the first unit of each piece; are_apart: no two are the same."""

    firsts: Ids
    each: int
    start: int
    numbers: Ids
    are_apart: bool = True

    @staticmethod
    def of(firsts: Ids, each: int, units: int) -> Tiles | None:
        """Return the pieces that begin at these units; None if they are not rows of one matrix."""
        if each < 1 or len(firsts) < 2:
            return None
        start = int(firsts[0]) % each
        numbers, left = np.divmod(firsts - start, each)
        if left.any() or int(numbers.min()) < 0 or int(numbers.max()) >= (units - start) // each:
            return None
        ordered = np.sort(numbers)
        return Tiles(firsts, each, start, numbers, not (ordered[1:] == ordered[:-1]).any())

    @staticmethod
    def split(firsts: Ids, each: int, units: int) -> Tiles | None:
        """Return the pieces that begin at these units, in smaller ones if only so they are rows of one matrix."""
        part = int(np.gcd.reduce(firsts - firsts[0], initial=each))
        if part < each:
            if part < LEAST_PIECE:
                return None
            firsts = (firsts[:, None] + np.arange(0, each, part)).ravel()
        return Tiles.of(firsts, part, units)

    def some(self, at: Any, are_apart: bool) -> Tiles:
        """Return some of the pieces."""
        return Tiles(self.firsts[at], self.each, self.start, self.numbers[at], are_apart)

    def matrix(self, epochs: Epochs) -> Epochs:
        """Return epochs of all units as the matrix, of which pieces are rows."""
        rows = (len(epochs) - self.start) // self.each
        return epochs[self.start : self.start + rows * self.each].reshape(rows, self.each)

    def units(self, positions: Ids) -> Ids:
        """Return the units at positions of all that the pieces have."""
        found: Ids = self.firsts[positions // self.each] + positions % self.each
        return found


def taken(epochs: Any, places: Any) -> Any:
    """Return what an array has at places, one after another."""
    return places.matrix(epochs)[places.numbers].ravel() if isinstance(places, Tiles) else epochs[places]


def put(epochs: Any, places: Any, values: Any) -> None:
    """Give an array values at places."""
    if isinstance(places, Tiles):
        is_one = np.ndim(values) == 0
        places.matrix(epochs)[places.numbers] = values if is_one else values.reshape(-1, places.each)
    else:
        epochs[places] = values


def piece_of(index: Ids, width: int) -> int:
    """Return how many accesses of width bytes each follow each other, if they come in long pieces of one size; else 0.

    All pieces are that long, and some follow each other as well."""
    breaks = np.flatnonzero(index[1:] - index[:-1] != width) + 1
    if not len(breaks) or len(breaks) * LEAST_PIECE > len(index):
        return 0
    piece = int(np.gcd.reduce(breaks, initial=len(index)))
    return piece if piece >= LEAST_PIECE else 0


@dataclass(slots=True, eq=False)
class Shadow:
    """The shadow of size_bytes at start. name: the tensor's; unit: bytes; kept: epochs by what they are about.

    links: by unit, what the last strong write released (0: nothing). proxies: bit p is set once an access went through
    proxy p. others: reads that a later one of the same rank did not replace, as what they are about, units and epochs;
    hidden: strong writes and reads whose place a later one took that others may be morally strong with, and weak writes
    of one value by other lanes of the last one's warp. narrowest,
    widest: scopes of the strong accesses so far; elements: the sum of the different sizes of their elements. latest: no
    epoch of this kind, beside or hidden either, has a later stamp.
    """

    name: str
    start: int
    size_bytes: int
    unit: int = MOST_UNIT_BYTES
    kept: dict[Kept, Epochs] = field(default_factory=dict)
    links: npt.NDArray[np.int32] | None = None
    proxies: int = 0
    others: list[tuple[Kept, Ids, Epochs]] = field(default_factory=list)
    hidden: list[tuple[Kept, Ids, Epochs]] = field(default_factory=list)
    narrowest: int = 3
    widest: int = 0
    elements: int = 0
    latest: dict[Kept, int] = field(default_factory=dict)
    row_bytes: int = 0
    """Of shared memory: how much of the shadow is one block's; of tensors of several ranks: one rank's, 1 << n."""
    ranks: int = 1
    """How many ranks' tensors it is the shadow of, all of one name and size: rank r's begins at r * row_bytes."""
    spare: Spare = field(default_factory=Spare)

    def byte_of(self, unit: int) -> int:
        """Return the byte that a finding names: blocks' shared memory has places of ROW_BYTES there."""
        row, byte = divmod(unit * self.unit, self.row_bytes) if self.row_bytes else (0, unit * self.unit)
        return byte if self.ranks > 1 else row * ROW_BYTES + byte

    def readers(self, ranks: Any, units: Any) -> Any:
        """Return what Kept.rank is of reads of units by ranks. Of several ranks' tensors: how many ranks the reader
        comes after the tensor's, as all ranks often read their own, or the next one's, at once."""
        if self.ranks == 1:
            return ranks
        return (ranks - units // (self.row_bytes // self.unit)) % self.ranks

    @property
    def units(self) -> int:
        return -(-self.size_bytes // self.unit)

    def epochs(self, kept: Kept) -> Epochs:
        """Return the epochs of all units, made if there were none so far."""
        found = self.kept.get(kept)
        if found is None:
            found = self.kept[kept] = self.spare.zeros(self.units)
        return found

    def close(self, settled: int) -> None:
        """Give up all entries: what it is about is gone. settled: everybody knows all up to this stamp, so that such
        entries mean nothing to accesses to come."""
        for kept, epochs in self.kept.items():
            self.spare.give(epochs, self.latest.get(kept, 0) <= settled)
        self.kept, self.latest, self.others, self.hidden, self.links = {}, {}, [], [], None

    def note(self, kept: Kept, stamp: int) -> None:
        """Note the stamp of epochs that are entered."""
        if self.latest.get(kept, 0) < stamp:
            self.latest[kept] = stamp

    def link_array(self) -> npt.NDArray[np.int32]:
        """Return the links of all units."""
        if self.links is None:
            self.links = np.zeros(self.units, np.int32)
        return self.links

    def refine(self, width: int) -> None:
        """Make units small enough for accesses of width bytes."""
        unit = width & -width
        if unit >= self.unit:
            return
        factor = self.unit // unit
        self.unit = unit
        for kept, epochs in self.kept.items():
            self.kept[kept] = np.repeat(epochs, factor)[: self.units]
        if self.links is not None:
            self.links = np.repeat(self.links, factor)[: self.units]
        for beside in (self.others, self.hidden):
            beside[:] = [
                (kept, (units[:, None] * factor + np.arange(factor)).ravel(), np.repeat(epochs, factor))
                for kept, units, epochs in beside
            ]

    def places(self, offsets: Ids, width: int, is_affine: bool, piece: int = 0) -> Any:
        """Return the units of accesses of width bytes at offsets: a slice, Tiles, or an array of width / unit for each.

        piece: how many accesses each follow each other."""
        self.refine(width)
        if piece > 1 and not is_affine:
            tiles = Tiles.split(offsets[::piece] // self.unit, piece * width // self.unit, self.units)
            if tiles is not None:
                return tiles
        if is_affine:
            first = int(offsets[0]) // self.unit
            return slice(first, first + len(offsets) * width // self.unit)
        first_units = offsets // self.unit
        each = width // self.unit
        if each == 1:
            return first_units
        return (first_units[:, None] + np.arange(each)).ravel()

    @property
    def is_uniform(self) -> bool:
        """Return whether all strong accesses so far have one scope and elements of one size."""
        return self.narrowest == self.widest and self.elements & self.elements - 1 == 0
