"""What a matmul is compiled for and launched with, and its name behind that of an algorithm.

"inbox@c256s3k4p128f2x1m8b132" is inbox with tiles of 256 columns, 3 stages, 4 chunks, pieces of 128 bytes, 2 in flight,
clusters of 1 block, panels of 8 tiles along m, and at most 132 blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

COLUMNS = 64
"""Columns of a box: 128 bytes, the longest row that is swizzled."""

ROW_BYTES = 128

WORKERS = 2
"""Warpgroups that multiply."""

GROUP_ROWS = 64
"""Rows of a wgmma."""

CHUNK_BYTES = GROUP_ROWS * ROW_BYTES
"""What a warpgroup writes out at a time: 64 rows and columns."""

SHARED_BYTES = 227 << 10
"""The most shared memory of a block."""

BLOCKS = 132
"""SMs of an H100 or H200: the most blocks that run at once."""

_NAMED = re.compile(
    "".join(f"{mark}([1-9]\\d{{0,5}})" for mark in "cskpfx") + r"([mn])([1-9]\d{0,5})b([1-9]\d{0,5})", re.ASCII
)
FORM = (
    "c<columns>s<stages>k<chunks>p<bytes of a piece>f<pieces in flight>x<blocks of a cluster>, m or n with <tiles of a "
    "panel>, and b<blocks>, such as inbox@c256s3k4p128f2x1m8b132"
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a matmul is compiled for. columns: of a tile of 128 rows, a multiple of 64 to 256. stages: pieces of 64
    columns of A and B in shared memory. chunks: of 64 columns of C, which each warpgroup has there to write out; with
    as many as a tile has, all of it is written while the next one is multiplied. piece_bytes, in_flight: of a copy of A
    or of parts of a sum to another rank (C goes by rows), and how many a thread has under way. cluster: blocks of a
    cluster, 1 or 2. along, panel: the tile order. blocks: the most that are launched, an SM each; the code does not
    depend on them."""

    columns: int = 256
    stages: int = 4
    chunks: int = 2
    piece_bytes: int = 2 << 10
    in_flight: int = 1
    cluster: int = 1
    along: str = "m"
    panel: int = 8
    blocks: int = BLOCKS
    reason: str = "the fastest of 11 at most shapes on H200: 1.00 to 1.03 of cuBLAS's rate from 4096 rows on"

    def __post_init__(self) -> None:
        if self.columns % COLUMNS or not COLUMNS <= self.columns <= 256:
            raise ValueError(f"a tile has 64, 128, 192 or 256 columns, not {self.columns} (columns)")
        if self.cluster not in (1, 2) or self.along not in ("m", "n") or self.panel < 1:
            raise ValueError(f"{self.name}: cluster is 1 or 2, along m or n, panel 1 or more")
        if self.chunks < 1 or self.columns // COLUMNS % self.chunks or self.in_flight < 1:
            raise ValueError(f"{self.name}: chunks divide a tile's {self.columns // COLUMNS}, in_flight is 1 or more")
        if self.piece_bytes < 16 or self.piece_bytes % 16 or CHUNK_BYTES % self.piece_bytes:
            raise ValueError(f"{self.name}: piece_bytes is 16 times a power of two, {CHUNK_BYTES} at most")
        if not self.cluster <= self.blocks <= BLOCKS:
            raise ValueError(f"{self.name}: blocks are {self.cluster} (cluster) to {BLOCKS}")
        if self.stages < 2 or self.shared_bytes > SHARED_BYTES:
            raise ValueError(
                f"{self.stages} stages and {self.chunks} chunks (stages, chunks) take {self.shared_bytes} bytes of "
                f"{SHARED_BYTES}; give fewer, but 2 stages"
            )

    @property
    def stage_bytes(self) -> int:
        return (WORKERS * GROUP_ROWS + self.columns) * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.stage_bytes + 16) + WORKERS * self.chunks * (CHUNK_BYTES + 16) + 1024

    @property
    def name(self) -> str:
        """Return what stands behind the @ of a name with this tuning."""
        copies = f"p{self.piece_bytes}f{self.in_flight}x{self.cluster}{self.along}{self.panel}b{self.blocks}"
        return f"c{self.columns}s{self.stages}k{self.chunks}{copies}"

    def values(self) -> dict[str, Any]:
        """Return the tuning as plain values, for records."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "reason"}


def tuning_named(name: str) -> Tuning:
    """Return the tuning that a name such as "inbox@c256s3k4p128f2x1m8b132" says. ValueError, in one line, for another
    form, and for a tuning that no matmul has."""
    match = _NAMED.fullmatch(name.partition("@")[2])
    if match is None:
        raise ValueError(f"{name!r} names no tuning of a matmul: give {FORM}")
    words = zip(fields(Tuning), match.groups(), strict=False)
    values: dict[str, Any] = {one.name: int(word) if word.isdigit() else word for one, word in words}
    try:
        return Tuning(**values, reason="on trial")
    except ValueError as error:
        raise ValueError(f"{name!r} names no tuning of a matmul: {error}") from None
