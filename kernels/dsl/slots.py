"""The layout of inboxes, said for the host: units, slots, tiles, and what lies in them before the first launch.

The device's half, and what all of it is for, is kernels/dsl/inbox.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.spec import Case, Workspace

UNIT_BYTES = 16
"""Payload that is stored, awaited and reduced together; a slot has as many bytes, and a unit one or two slots."""

WARP = 32

TILE_BYTES = WARP * UNIT_BYTES
"""The first slots of 32 units, one a thread of a warp; where units have second slots, those lie behind them."""


LINE_BYTES, LINE_LANES = 128, 8
"""What a warp stores and loads at once by the assumption warp_128, and the lanes that share it: 16 bytes each."""

LINE_TILE_BYTES = 2 * (TILE_BYTES // LINE_BYTES) * (LINE_BYTES - 8)
"""Payload of a tile in lines: of each of its eight lines all but 8 bytes."""


def in_lines(count: int) -> int:
    """Return how many units' slots a message of count units takes in lines: whole tiles, a thread for each slot."""
    return -(-count * UNIT_BYTES // LINE_TILE_BYTES) * WARP


def sentinel(itemsize: int) -> bytes:
    """Return 8 bytes of -0.0 in a floating-point type of the given size in bytes."""
    return (bytes(itemsize - 1) + b"\x80") * (8 // itemsize)


def units(case: Case) -> int:
    """Units of a message of all of the case's elements."""
    return -(-case.size_bytes // UNIT_BYTES)


def chunk_units(case: Case) -> int:
    """Units of a message of one rank's chunk of them."""
    return -(-case.size_bytes // case.world_size // UNIT_BYTES)


def lanes(case: Case, count: int, groups: int = 1) -> int:
    """Threads that count units take in each group of blocks, and behind them whole warps for one a rank, without data:
    those signal."""
    signalling = -(-case.world_size // WARP) * WARP if case.world_size > 1 else 0
    return groups * (count + signalling)


def turns(max_blocks: int) -> Workspace:
    """What each block that there may be knows of the last launch."""
    return Workspace("turns", max_blocks)


def inbox(name: str, count: int, rows: int, banks: int, slots: int = 1, fill: bytes = b"") -> Workspace:
    """An inbox for messages of count units: tiles, in each all banks, in each all rows."""
    tiles = max(-(-count * UNIT_BYTES // TILE_BYTES), 1)
    return Workspace(name, tiles * banks * rows * slots * TILE_BYTES // 4, fill=fill)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How launches take the banks of an inbox in turn (kernels/dsl/rounds.py).

    banks: how many; grant_every: launches from one grant to the next. Both are powers of two. slots: of a unit; where
    it has one alone, banks are set back a launch later, and peers have to wait for that.
    """

    banks: int
    grant_every: int
    slots: int

    def __post_init__(self) -> None:
        for name, value in (("banks", self.banks), ("grant_every", self.grant_every)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name} of rounds is {value}: give a power of two")
        least = self.grant_every + (2 if self.is_set_back else 1)
        if self.banks < least:
            raise ValueError(
                f"rounds with a grant in every {self.grant_every}. launch take {least} banks, not {self.banks}"
            )

    @property
    def is_set_back(self) -> bool:
        """Whether what was read is overwritten with the sign of nothing."""
        return self.slots == 1

    def choices(self, max_blocks: int) -> dict[str, Any]:
        """Return what the device half takes."""
        made = {"banks": self.banks, "grant_every": self.grant_every, "max_blocks": max_blocks}
        return {**made, "without_barriers": True}

    def workspaces(self, case: Case, count: int, rows: int, max_blocks: int) -> tuple[Workspace, ...]:
        """Return an inbox for messages of count units in rows, and what each block knows of the last launch."""
        fill = sentinel(case.itemsize) if self.is_set_back else b""
        made = inbox("inbox", count, rows, self.banks, self.slots, fill)
        return (made, turns(max_blocks)) if self.is_set_back else (made,)


FLAGGED = Rounds(banks=4, grant_every=2, slots=2)
"""Of words beside flags. Two banks and a grant a launch would do, with no room between a grant and who needs it."""

SET_BACK = Rounds(banks=8, grant_every=4, slots=1)
"""Of data that is its own sign. Four banks would do with a grant in every launch. Then the same threads have a release
and an acquire between GPUs one after the other in each launch, and it ends with them: so reduce_scatter at 1 KiB took
2.76 us, and 2.26 with flags, where no launch has both (2 H200, 2026-11-22). Here a launch in four has the one, another
in four the other, and waits for a grant that was given two launches ago."""
