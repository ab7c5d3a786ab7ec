"""What fused kernels have in common: launches counted in device memory, flags of tiles, waits for other ranks.

State. A word counts launches, and so is the number that this launch's flags have. Who reads it: all threads, first. Who
writes it: the last block to begin, when all have read it. A launch may have any number of blocks, and flags are never
reset: they hold the number of the last launch that set them, and waits compare the difference as a signed number.

Assumption: all blocks of all ranks run at once, or will without help of others. Blocks wait for other ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.dsl import bulk, device, tensor_maps
from kernels.dsl.device import assemble
from kernels.dsl.rank_barriers import Watch, wait_for
from kernels.dsl.status import TILES
from kernels.matmul import matmul
from kernels.matmul.matmul import DEFAULT, GROUP, Matmul
from kernels.matmul.tuning import WORKERS, Tuning

PUSHING = replace(
    DEFAULT, stages=3, chunks=4, in_flight=8, reason="of 13 on 2 H200 within 1 % of the fastest, from 4096 rows on"
)
PIECE_ROWS = 16
"""Rows of C that one copy stores."""

FEW = "of three numbers of columns the fastest on 2 H200 at 10 of 11 shapes, see kernels/fused.py"

STATE_WORDS = 3
"""Words of the state: launches, blocks that have begun, blocks of all launches so far."""

PARTS, WHOLE = 0, 1
"""Kinds of flags: a rank's part of a sum has come to the owner; the owner's tile is there."""


@dsl_user_op
def count_block(address: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Add 1 to a word, and return what it was; orders what blocks did before against who comes last."""
    text = "atom.acq_rel.gpu.global.add.u32 $0, [$1], 1;"
    return Int32(assemble(text, "=r,l", [Int64(address)], T.i32(), memory=True, loc=loc, ip=ip))


@dsl_user_op
def count_at_peer(address: Any, *, loc: Any = None, ip: Any = None) -> None:
    """Release reduction, system scope: adds 1 to a word of another rank."""
    text = "red.release.sys.global.add.u32 [$0], 1;"
    assemble(text, "l", [Int64(address)], None, memory=True, loc=loc, ip=ip)


class FusedMatmul(Matmul):
    """A matmul of several ranks. A shard is the block of rows of one rank."""

    piece_rows = PIECE_ROWS
    tells_own = False
    """Whether other ranks are told of this one's own tiles."""

    def __init__(self, dtype: Any, world_size: int, tuning: Tuning = PUSHING) -> None:
        super().__init__(dtype, tuning)
        self.shards = world_size

    def begin(self, words: list[Any]) -> None:
        """words: rank, patience (ns), addresses of status, of the state, of the flags, and of the table of all ranks'
        flags; then those of the kernel."""
        self.rank, patience, status, self.state, self.flags, self.flags_of, *self.more = words
        self.watch = Watch(self.rank, cute.arch.block_idx()[0], status, patience)
        self.number = device.load_word(self.state) + 1
        self.total = device.load_word(self.state + 8) + cute.arch.grid_dim()[0]

    @cute.jit
    def met(self, thread: Int32) -> None:
        if thread == 0:  # noqa: SIM102 - both are conditions of the device
            if count_block(self.state + 4) == cute.arch.grid_dim()[0] - 1:
                device.store_word(self.state, self.number)
                device.store_word(self.state + 4, Int32(0))
                device.store_word(self.state + 8, self.total)

    def half_tiles(self, sizes: Any) -> Any:
        """What a shard's tiles have together: a warpgroup's rows of each."""
        rows, columns = self.tiles(sizes)
        return rows * columns * (self.tuning.cluster * WORKERS)

    def half_tile(self, place: Any, sizes: Any, group: Any) -> Any:
        """Which of them this is."""
        return (place[0] * self.tiles(sizes)[1] + place[1]) * WORKERS + group

    def flag(self, flags: Any, kind: int, source: Any, half: Any, sizes: Any) -> Any:
        """Where another rank signals a rank that a half tile has come; each kind of flag has its own."""
        return flags + (Int64(kind * self.shards + source) * self.half_tiles(sizes) + half) * 4

    def after(self, rank: Any, steps: Any) -> Any:
        """The rank that comes a number of ranks later."""
        return (rank + steps) % self.shards

    def store_piece(self, targets: Any, corner: Any, piece: Any, shard: Any) -> None:
        for one in targets:
            self.pace()
            tensor_maps.store(one, corner, piece)
            bulk.end_group()

    def pace(self) -> None:
        """Wait until few enough pieces are under way. Stores that the link can't take at once hold up the matmul's own
        loads, and the less the smaller they are."""
        bulk.await_written(self.tuning.in_flight - 1)

    @cute.jit
    def tell(self, place: Any, sizes: Any, group: Int32) -> None:
        """All of a tile's rows are stored: when they are written, signal a part of a sum to its owner, an own tile to
        all others, if they have to know (tells_own)."""
        bulk.await_written()
        half, shard = self.half_tile(place, sizes, group), place[2]
        if shard != self.rank:
            device.signal(self.flag_at(shard, PARTS, half, sizes), self.number)
        elif cutlass.const_expr(self.tells_own):
            for step in cutlass.range_constexpr(1, self.shards):
                peer = self.after(self.rank, step)
                device.signal(self.flag_at(peer, WHOLE, half, sizes), self.number)

    def flag_at(self, peer: Any, kind: int, half: Any, sizes: Any) -> Any:
        """Where this rank tells another."""
        return self.flag(device.load_address(self.flags_of, peer), kind, self.rank, half, sizes)

    @cute.jit
    def await_one(self, kind: cutlass.Constexpr, source: Int32, half: Int32, sizes: Any) -> None:
        """Wait until another rank has told a half tile."""
        wait_for(self.flag(self.flags, kind, source, half, sizes), self.number, source, TILES, self.watch)

    @cute.jit
    def await_all(self, kind: cutlass.Constexpr, sizes: Any) -> None:
        """By the threads of all blocks that multiply: wait until other ranks have told all half tiles."""
        count = self.half_tiles(sizes)
        workers = WORKERS * GROUP
        index = cute.arch.block_idx()[0] * workers + cute.arch.thread_idx()[0] - GROUP
        while index < count * (self.shards - 1):
            self.await_one(kind, self.after(self.rank, 1 + index // count), index % count, sizes)
            index += cute.arch.grid_dim()[0] * workers


def tunings_like(first: Tuning) -> tuple[Tuning, ...]:
    """Return tunings by columns of a tile: first, and the matmul's own with copies to other ranks as in first."""
    pieces, in_flight = first.piece_bytes, first.in_flight
    rest = [replace(one, piece_bytes=pieces, in_flight=in_flight, reason=FEW) for one in matmul.TUNINGS[1:]]
    return (first, *rest)


def shards_last(matrix: Any) -> Any:
    """A matrix of (shards, rows, columns) as (rows, columns, shards), which lies as before."""
    return cute.make_tensor(matrix.iterator, cute.select(matrix.layout, mode=[1, 2, 0]))


def address(pointer: Any) -> Any:
    """The address that a pointer is, as kernels take it."""
    return Int64(pointer.toint())
