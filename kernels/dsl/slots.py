"""The layout of inboxes, said for the host: units, slots, tiles, and what lies in them before the first launch.

The device's half, and what all of it is for, is kernels/dsl/inbox.py.
"""

from __future__ import annotations

from kernels.spec import Case, Workspace

UNIT_BYTES = 16
"""Payload that is stored, awaited and reduced together; a slot has as many bytes, and a unit one or two slots."""

TILE_BYTES = 512
"""The first slots of 32 units, one a thread of a warp; where units have second slots, those lie behind them."""


def sentinel(itemsize: int) -> bytes:
    """Return 8 bytes of -0.0 in a floating-point type of the given size in bytes."""
    return (bytes(itemsize - 1) + b"\x80") * (8 // itemsize)


def units(case: Case) -> int:
    """Units of a message of all of the case's elements."""
    return -(-case.size_bytes // UNIT_BYTES)


def turns(max_blocks: int) -> Workspace:
    """What each block that there may be knows of the last launch."""
    return Workspace("turns", max_blocks)


def inbox(name: str, count: int, rows: int, banks: int, slots: int = 1, fill: bytes = b"") -> Workspace:
    """An inbox for messages of count units: tiles, in each all banks, in each all rows."""
    tiles = max(-(-count * UNIT_BYTES // TILE_BYTES), 1)
    return Workspace(name, tiles * banks * rows * slots * TILE_BYTES // 4, fill=fill)
