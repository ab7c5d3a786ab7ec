"""The layout of inboxes, said for the host: units, slots, tiles, and what lies in them before the first launch.

The device's half, and what all of it is for, is kernels/dsl/inbox.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.case import Case
from kernels.spec import Workspace

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


FEW_RANKS = 8
"""Worlds of up to this number of ranks have memory for more banks, and so for fewer grants: Rounds.many."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How launches take the banks of an inbox in turn (kernels/dsl/rounds.py).

    banks: how many; grant_every: launches from one grant to the next. Both are powers of two. slots: of a unit; where
    it has one alone, banks are set back a launch later, and peers have to wait for that. many: what worlds of more than
    FEW_RANKS have instead, where an inbox with a row for each rank would grow too large; None: the same.
    """

    banks: int
    grant_every: int
    slots: int
    many: Rounds | None = None

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

    def among(self, world_size: int) -> Rounds:
        """Return those of a world of this number of ranks."""
        return self.many if self.many is not None and world_size > FEW_RANKS else self

    def choices(self, case: Case, max_blocks: int) -> dict[str, Any]:
        """Return what the device half takes."""
        own = self.among(case.world_size)
        made = {"banks": own.banks, "grant_every": own.grant_every, "max_blocks": max_blocks}
        return {**made, "without_barriers": True}

    def workspaces(self, case: Case, count: int, rows: int, max_blocks: int) -> tuple[Workspace, ...]:
        """Return an inbox for messages of count units in rows, and what each block knows of the last launch."""
        fill = sentinel(case.itemsize) if self.is_set_back else b""
        made = inbox("inbox", count, rows, self.among(case.world_size).banks, self.slots, fill)
        return (made, turns(max_blocks)) if self.is_set_back else (made,)


FLAGGED = Rounds(banks=16, grant_every=8, slots=2, many=Rounds(banks=4, grant_every=2, slots=2))
"""Of words beside flags. Two banks and a grant a launch would do, but a grant's release at system scope takes longer
than all else that the launch does: 1 KiB of all_reduce/lamport took 0.25 us more than without grants where they were
given in every fourth launch, 0.07 in every eighth, 0.05 in every sixteenth (2 H100, 27 November 2026). A fence at each
launch's begin for a relaxed grant took 1.4. Words beside flags have not been measured so."""

IN_LINES = Rounds(banks=8, grant_every=4, slots=2, many=Rounds(banks=4, grant_every=2, slots=2))
"""Of lines. They are for larger messages than the other two, so they have fewer banks, which a GPU's L2 cache holds."""

SET_BACK = Rounds(banks=16, grant_every=8, slots=1, many=Rounds(banks=8, grant_every=4, slots=1))
"""Of data that is its own sign. Twice the banks would save 0.03 us, and take twice the memory."""
