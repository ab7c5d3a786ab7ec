"""matmul_reduce_scatter and matmul_all_reduce: the sum of all ranks' products, tiles pushed out of the epilogue.

Each rank multiplies its A (all rows, its part of the depth) and B. The rows of C are divided into shards, one a rank:
its owner. A shard has tiles of its own, so its number of rows is any.

ReduceScatter (inboxes). A rank computes the shards of the ranks after it, in order, and its own last. Tiles of others
are rounded to C's type and pushed into the owner's inbox: a bulk store of 8 KiB for 64 columns of a warpgroup, as
its registers have them, so that the owner's same thread reads back 16 bytes at a time. The owner adds the inboxes to
its own tile in registers, and writes C.

AllReduce. The same, and the owner stores the finished tile into C of all ranks. A rank is done when all have come. The
link is what takes longest, so each tile comes for all ranks before the next one: finished tiles leave from the start.

ReduceScatterByAdding. A rank computes its own shard first and stores it to C; then it adds its tiles of the others to
theirs where they are, by cp.reduce.async.bulk.tensor. It needs no inbox and no pass over one. What it gives up: each
addition rounds to C's type, and their order is free, so that results of more than two ranks differ from run to run.

Order and scope. A warpgroup signals what it stored by a flag for its rows of the tile, released at system scope after
cp.async.bulk.wait_group 0 (not .read: that says only that shared memory was read) by the thread that stored it. The
flag is set when the warpgroup has the next tile, so that no thread waits for the link. The warpgroup that needs the
rows acquires the flag by one thread and passes it on by its barrier; before it adds by a copy it has a proxy fence.

Repeated launches. There are two inboxes, which launches take in turn. A rank that begins launch n + 2 has got tiles
of all ranks in launch n + 1, so they have ended launch n and read that inbox. C of another rank is written only when
that rank has signalled a tile of the same launch.

Numerics. Inboxes: every rank's sum is rounded once to C's type, added in float32 in the order owner + 1, owner + 2, ..
owner, and rounded: the same bits always.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import bulk, device, tensor_maps
from kernels.dsl.arithmetic import Reduction
from kernels.dsl.tensor_maps import COLUMNS
from kernels.matmul.matmul import CHUNK_BYTES, GROUP, WORKERS, Tuning, sizes_of
from kernels.matmul.ranks import PARTS, WHOLE, FusedMatmul, address, shards_last


def half_tiles(rows: int, columns: int, tuning: Tuning) -> int:
    """Return the number of flags of a kind for each rank. rows: of a shard."""
    down = -(-rows // (tuning.cluster * WORKERS * 64)) * tuning.cluster
    return down * -(-columns // tuning.columns) * WORKERS


def inbox_bytes(rows: int, columns: int, world_size: int, tuning: Tuning) -> int:
    """Return the size of both inboxes of a rank. rows: of a shard."""
    return 2 * world_size * half_tiles(rows, columns, tuning) * (tuning.columns // COLUMNS) * CHUNK_BYTES


class ReduceScatter(FusedMatmul):
    """C (rows, columns) of the own shard, from inboxes."""

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

    def shard(self, step: Any) -> Any:
        return self.after(self.rank, step + 1)

    def corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        return column, row, shard

    @cute.jit
    def finish(self, sums: Any, targets: Any, chunks: Any, place: Any, sizes: Any, group: Int32, told: Int32) -> Int32:
        self.tell(told, sizes, group)
        half, owner = self.half_tile(place, sizes, group), place[2]
        if owner != self.rank:
            self.push(sums, chunks, self.part(device.load_address(self.more[1], owner), self.rank, half, sizes), group)
        else:
            if cute.arch.thread_idx()[0] % GROUP == 0:
                for step in cutlass.range_constexpr(1, self.shards):
                    self.await_one(PARTS, self.after(self.rank, step), half, sizes)
            self.meet_group(group)
            self.fold(sums, targets, chunks, place, half, sizes, group)
        return self.told(half, owner)

    def part(self, inbox: Any, source: Any, half: Any, sizes: Any) -> Any:
        """Where a rank's inbox has a half tile of another in this launch."""
        row = (self.number & 1) * self.shards + source
        chunks = self.columns // COLUMNS
        return inbox + (Int64(row) * self.half_tiles(sizes) + half) * (chunks * CHUNK_BYTES)

    @cute.jit
    def push(self, sums: Any, chunks: Any, target: Int64, group: Int32) -> None:
        """Store a warpgroup's rows as its registers have them."""
        thread = cute.arch.thread_idx()[0] % GROUP
        for at in cutlass.range_constexpr(self.columns // COLUMNS):
            words = self.rounded(sums, at)
            chunk = self.free_chunk(chunks, at, group)
            for vector in cutlass.range_constexpr(len(words) // 4):
                place = chunk + (vector * GROUP + thread) * 16
                tensor_maps.store_shared_vector(place, words[4 * vector : 4 * vector + 4])
            self.chunk_full(group)
            if thread == 0:
                bulk.store(target + at * CHUNK_BYTES, chunk, CHUNK_BYTES)
                bulk.end_group()

    def fold(self, sums: Any, targets: Any, chunks: Any, place: Any, half: Any, sizes: Any, group: Any) -> None:
        """Add what came from others, and write the sum. Loads are a chunk ahead."""
        total = Reduction(self.name, "float32", "sum", self.shards)
        thread = cute.arch.thread_idx()[0] % GROUP
        sources = [self.after(self.rank, step) for step in range(1, self.shards)]
        parts = [self.part(self.more[0], one, half, sizes) + thread * 16 for one in sources]

        def load(at: int) -> list[list[Any]]:
            """The words of all other ranks."""
            offsets = [at * CHUNK_BYTES + vector * GROUP * 16 for vector in range(COLUMNS // 16)]
            return [[word for offset in offsets for word in device.load_vector(one + offset)] for one in parts]

        count = self.columns // COLUMNS
        ahead = load(0)
        for at in range(count):
            contributions, ahead = [*ahead, self.rounded(sums, at)], load(at + 1) if at + 1 < count else []
            folded = total.start(contributions[0])
            for one in contributions[1:]:
                folded = total.add(folded, one)
            self.write(total.finish(folded), targets, chunks, place, at, group)

    def end(self, sizes: Any, group: Any, told: Any) -> None:
        self.tell(told, sizes, group)


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

    def end(self, sizes: Any, group: Any, told: Any) -> None:
        self.tell(told, sizes, group)
        self.await_all(WHOLE, sizes)


class ReduceScatterByAdding(ReduceScatter):
    """C (rows, columns) of the own shard, to which others add."""

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

    @cute.jit
    def finish(self, sums: Any, targets: Any, chunks: Any, place: Any, sizes: Any, group: Int32, told: Int32) -> Int32:
        self.tell(told, sizes, group)
        half, owner = self.half_tile(place, sizes, group), place[2]
        if owner != self.rank:  # noqa: SIM102
            if cute.arch.thread_idx()[0] % GROUP == 0:
                self.await_one(WHOLE, owner, half, sizes)
                bulk.fence_proxies()
        for at in cutlass.range_constexpr(self.columns // COLUMNS):
            self.write(self.rounded(sums, at), targets, chunks, place, at, group)
        return self.told(half, owner)

    @cute.jit
    def store(self, targets: Any, corner: Any, chunk: Int32, shard: Int32) -> None:
        for owner in cutlass.range_constexpr(self.shards):
            if shard == owner:
                if shard == self.rank:
                    tensor_maps.store(targets[owner], corner, chunk)
                else:
                    tensor_maps.store(targets[owner], corner, chunk, True)

    def end(self, sizes: Any, group: Any, told: Any) -> None:
        self.tell(told, sizes, group)
        self.await_all(PARTS, sizes)
