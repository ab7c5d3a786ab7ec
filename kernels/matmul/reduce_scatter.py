"""matmul_reduce_scatter and matmul_all_reduce: the sum of all ranks' products, tiles pushed out of the epilogue.

Each rank multiplies its A (all rows, its part of the depth) and B. The rows of C are divided into shards, one a rank:
its owner. A shard has tiles of its own, so its number of rows is any.

ReduceScatter (inboxes). A rank computes the shards of the ranks after it, in order, and its own last. Tiles of others
are rounded to C's type and pushed into the owner's inbox by bulk stores, as registers have them, so that the owner's
same thread reads back 16 bytes at a time. The owner adds the inboxes to its own tile in registers, and writes C. While
an own tile is multiplied, the thread that will store it waits for the parts of the others, and copies the first to
where the sum will be in shared memory.

AllReduce. The same, and the owner stores the finished tile into C of all ranks. A rank is done when all have come. The
link is what takes longest, so each tile comes for all ranks before the next one: finished tiles leave from the start.

ReduceScatterByAdding. A rank computes its own shard first and stores it to C; then it adds its tiles of the others to
theirs where they are, by cp.reduce.async.bulk.tensor. It needs no inbox and no pass over one. What it gives up: each
addition rounds to C's type, and their order is free, so that results of more than two ranks differ from run to run.

Order and scope. Who stored a warpgroup's rows of a tile signals them by a flag, released at system scope after
cp.async.bulk.wait_group 0 (not .read: that says only that shared memory was read). The thread that will
store the sum acquires the flags and has a proxy fence; the mbarrier on which its copy of the first part is counted
passes them on to those that add. Of tiles of others these arrive themselves, so that each turn has a phase. Who adds by
copies acquires the flag and has a proxy fence, too.

Repeated launches. There are two inboxes, which launches take in turn. A rank that begins launch n + 2 has got tiles
of all ranks in launch n + 1, so they have ended launch n and read that inbox. C of another rank is written only when
that rank has signalled a tile of the same launch.

Numerics. Inboxes: every rank's sum is rounded once to C's type, added in float32 in the order owner + 1, owner + 2, ..
owner, and rounded: the same bits always.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import bulk, device, tensor_maps
from kernels.dsl.arithmetic import Reduction
from kernels.matmul import ranks
from kernels.matmul.matmul import GROUP, sizes_of
from kernels.matmul.ranks import PARTS, WHOLE, FusedMatmul, address, shards_last
from kernels.matmul.tuning import CHUNK_BYTES, COLUMNS, WORKERS, Tuning


def half_tiles(rows: int, columns: int, tuning: Tuning) -> int:
    """Return the number of flags of a kind for each rank. rows: of a shard."""
    down = -(-rows // (tuning.cluster * WORKERS * 64)) * tuning.cluster
    return down * -(-columns // tuning.columns) * WORKERS


def inbox_bytes(rows: int, columns: int, world_size: int, tuning: Tuning) -> int:
    """Return the size of both inboxes of a rank. rows: of a shard."""
    return 2 * world_size * half_tiles(rows, columns, tuning) * (tuning.columns // COLUMNS) * CHUNK_BYTES


TUNING = replace(ranks.PUSHING, piece_bytes=128, in_flight=2, reason="on 2 H200 faster than larger pieces, by 1 to 6 %")
TUNINGS = ranks.tunings_like(TUNING)
"""Of ReduceScatter."""

TUNINGS_OF_OTHERS = ranks.tunings_like(ranks.PUSHING)


class ReduceScatter(FusedMatmul):
    """C (rows, columns) of the own shard, from inboxes."""

    copies_parts = True
    """Whether parts of others are copied to where the sum will be: all chunks of a tile are there."""

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: cute.Tensor,
        inbox: cute.Pointer,
        inboxes: cute.Pointer,
        flags: cute.Pointer,
        flags_of: cute.Pointer,
        state: cute.Pointer,
        status: cute.Pointer,
        rank: Int32,
        patience: Int64,
        blocks: Int32,
    ) -> None:
        """a: (ranks, rows, depth), b: (columns, depth), c: (rows, columns). inboxes, flags_of: tables of all ranks'."""
        words = [rank, patience, *map(address, (status, state, flags, flags_of, inbox, inboxes))]
        self.launch_sharded(a, b, [c], words, blocks)

    def launch_sharded(
        self, a: Any, b: Any, targets: list[Any], words: list[Any], blocks: Any, stream: Any = ()
    ) -> None:
        a = shards_last(a)
        maps = [self.target(one) for one in targets]
        self.launch_with([self.source(a)], b, maps, sizes_of(a, b), words, blocks, stream)

    def __init__(self, dtype: Any, world_size: int, tuning: Tuning = TUNING) -> None:
        super().__init__(dtype, world_size, tuning)
        if self.copies_parts and tuning.chunks * COLUMNS != tuning.columns:
            raise ValueError(f"{tuning.chunks} chunks (chunks) do not hold a tile's {tuning.columns} columns: give all")

    def begin(self, words: list[Any]) -> None:
        super().begin(words)
        self.arrived = cute.arch.alloc_smem(cutlass.Int64, WORKERS, 8)
        self.make_barriers()

    @cute.jit
    def make_barriers(self) -> None:
        if cute.arch.thread_idx()[0] == 0:
            for group in cutlass.range_constexpr(WORKERS):
                cute.arch.mbarrier_init(self.arrived + group, 1)

    def shard(self, step: Any) -> Any:
        return self.after(self.rank, step + 1)

    def corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        return column, row, shard

    @cute.jit
    def finish(self, sums: Any, chunks: Any, filled: Any, place: Any, sizes: Any, group: Int32, turn: Int32) -> None:
        half = self.half_tile(place, sizes, group)
        if place[2] != self.rank:
            if cute.arch.thread_idx()[0] % GROUP == 0:
                cute.arch.mbarrier_arrive(self.arrived + group)
            for at in cutlass.range_constexpr(self.columns // COLUMNS):
                self.fill_as_held(self.rounded(sums, at), chunks, filled, at, group, turn)
        else:
            self.fold(sums, chunks, filled, half, sizes, group, turn)

    @cute.jit
    def before_storing(self, place: Any, chunks: Any, sizes: Any, group: Int32) -> None:
        """Wait for the parts of an own tile, and copy the first of them to where the sum will be."""
        if place[2] == self.rank:
            half, arrived = self.half_tile(place, sizes, group), self.arrived + group
            for step in cutlass.range_constexpr(1, self.shards):
                self.await_one(PARTS, self.after(self.rank, step), half, sizes)
            bulk.fence_proxies()
            part = self.part(self.more[0], self.after(self.rank, 1), half, sizes)
            size_bytes = self.tuning.chunks * CHUNK_BYTES
            cute.arch.mbarrier_arrive_and_expect_tx(arrived, size_bytes)
            bulk.load(Int32(chunks.toint()) + group * size_bytes, part, size_bytes, arrived.toint())

    def part(self, inbox: Any, source: Any, half: Any, sizes: Any) -> Any:
        """Where a rank's inbox has a half tile of another in this launch."""
        row = (self.number & 1) * self.shards + source
        chunks = self.columns // COLUMNS
        return inbox + (Int64(row) * self.half_tiles(sizes) + half) * (chunks * CHUNK_BYTES)

    def fill_as_held(self, words: Any, chunks: Any, filled: Any, at: int, group: Any, turn: Any) -> None:
        """64 columns of a warpgroup's rows, as its registers have them."""
        thread = cute.arch.thread_idx()[0] % GROUP

        def put(chunk: Any) -> None:
            for vector in range(len(words) // 4):
                place = chunk + (vector * GROUP + thread) * 16
                tensor_maps.store_shared_vector(place, words[4 * vector : 4 * vector + 4])

        self.fill_with(put, chunks, filled, at, group, turn)

    @cute.jit
    def store_chunk(self, targets: Any, chunk: Int32, place: Any, at: Any, sizes: Any, group: Int32) -> None:
        if place[2] != self.rank:
            half = self.half_tile(place, sizes, group)
            inbox = self.part(device.load_address(self.more[1], place[2]), self.rank, half, sizes)
            offset, piece_bytes = Int32(0), self.tuning.piece_bytes
            while offset < CHUNK_BYTES:
                self.pace()
                bulk.store(inbox + at * CHUNK_BYTES + offset, chunk + offset, piece_bytes)
                bulk.end_group()
                offset += piece_bytes
        else:
            FusedMatmul.store_chunk(self, targets, chunk, place, at, sizes, group)

    def fold(self, sums: Any, chunks: Any, filled: Any, half: Any, sizes: Any, group: Any, turn: Any) -> None:
        """Add what came from others, and fill the chunks with the sum. Loads are a chunk ahead."""
        total = Reduction(self.name, "float32", "sum", self.shards)
        thread = cute.arch.thread_idx()[0] % GROUP
        places = [(vector * GROUP + thread) * 16 for vector in range(COLUMNS // 16)]
        sources = [self.after(self.rank, step) for step in range(2, self.shards)]
        parts = [self.part(self.more[0], one, half, sizes) for one in sources]

        def load(at: int) -> list[list[Any]]:
            """The words of the other ranks but the first."""
            return [
                [word for place in places for word in device.load_vector(one + at * CHUNK_BYTES + place)]
                for one in parts
            ]

        count = self.columns // COLUMNS
        # A chunk that was read was filled by all threads in the turn before, so that turn's phase of arrived is over.
        _, read, parity = self.chunk_at(chunks, filled, 0, group, turn)
        cute.arch.mbarrier_wait(read + WORKERS * self.tuning.chunks, parity ^ 1)
        cute.arch.mbarrier_wait(self.arrived + group, turn & 1)
        ahead = load(0)
        for at in range(count):
            chunk, _, _ = self.chunk_at(chunks, filled, at, group, turn)
            first = [word for place in places for word in tensor_maps.load_shared_vector(chunk + place)]
            self.meet_group(group)
            contributions, ahead = [first, *ahead, self.rounded(sums, at)], load(at + 1) if at + 1 < count else []
            folded = total.start(contributions[0])
            for one in contributions[1:]:
                folded = total.add(folded, one)
            self.fill(total.finish(folded), chunks, filled, at, group, turn)


class AllReduce(ReduceScatter):
    """C (ranks, rows, columns), all of it on all ranks."""

    tells_own = True
    in_turns = True

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: list[cute.Tensor],
        inbox: cute.Pointer,
        inboxes: cute.Pointer,
        flags: cute.Pointer,
        flags_of: cute.Pointer,
        state: cute.Pointer,
        status: cute.Pointer,
        rank: Int32,
        patience: Int64,
        blocks: Int32,
    ) -> None:
        """c: that of all ranks."""
        words = [rank, patience, *map(address, (status, state, flags, flags_of, inbox, inboxes))]
        self.launch_sharded(a, b, [shards_last(one) for one in c], words, blocks)

    def target_corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        return column, row, shard

    def end(self, sizes: Any) -> None:
        self.await_all(WHOLE, sizes)


class ReduceScatterByAdding(ReduceScatter):
    """C (rows, columns) of the own shard, to which others add."""

    copies_parts = False

    tells_own = True

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: list[cute.Tensor],
        flags: cute.Pointer,
        flags_of: cute.Pointer,
        state: cute.Pointer,
        status: cute.Pointer,
        rank: Int32,
        patience: Int64,
        blocks: Int32,
    ) -> None:
        """c: that of all ranks."""
        words = [rank, patience, *map(address, (status, state, flags, flags_of))]
        self.launch_sharded(a, b, c, words, blocks)

    def shard(self, step: Any) -> Any:
        return self.after(self.rank, step)

    def finish(self, sums: Any, chunks: Any, filled: Any, place: Any, sizes: Any, group: Any, turn: Any) -> None:
        FusedMatmul.finish(self, sums, chunks, filled, place, sizes, group, turn)

    @cute.jit
    def before_storing(self, place: Any, chunks: Any, sizes: Any, group: Int32) -> None:
        if place[2] != self.rank:
            self.await_one(WHOLE, place[2], self.half_tile(place, sizes, group), sizes)
            bulk.fence_proxies()

    def store_chunk(self, targets: Any, chunk: Any, place: Any, at: int, sizes: Any, group: Any) -> None:
        FusedMatmul.store_chunk(self, targets, chunk, place, at, sizes, group)

    @cute.jit
    def store_piece(self, targets: Any, corner: Any, piece: Int32, shard: Int32) -> None:
        self.pace()
        for owner in cutlass.range_constexpr(self.shards):
            if shard == owner:
                if shard == self.rank:
                    tensor_maps.store(targets[owner], corner, piece)
                else:
                    tensor_maps.store(targets[owner], corner, piece, True)
        bulk.end_group()

    def end(self, sizes: Any) -> None:
        self.await_all(PARTS, sizes)
