"""all_gather_matmul: each rank pushes its rows of A to all others, and multiplies those that have come.

C (all rows, the rank's columns) = A B^T. A is divided by rows into shards, one a rank. A rank begins with its own
shard, where it lies, and goes on with those of the ranks after it.

Push. A thread of the loading warpgroup stores the rank's shard to the other ranks by bulk copies through shared memory
(kernels/dsl/bulk.py): all blocks share in each shard, so no SM is lost to copies. The rank before this one comes first:
it needs the shard first. A's rows are gathered once, because reads of another rank's memory are not kept in L2.

Order and scope. When all that a block stored is written (cp.async.bulk.wait_group 0), the same thread adds 1 to the
peer's count of the shard, a release at system scope. The peer's loading thread waits until all blocks of the sender are
counted, acquires, has a proxy fence, and starts to load the shard.

Repeated launches. The gathered A has two buffers, taken in turn. A rank that begins launch n + 2 has got a
shard of each rank in launch n + 1, so they have ended launch n and read that buffer. Counts only grow: a launch waits
for the number of all blocks of all launches so far.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from kernels.dsl import bulk, device, tensor_maps
from kernels.dsl.rank_barriers import wait_for
from kernels.dsl.status import TILES
from kernels.matmul import ranks
from kernels.matmul.matmul import sizes_of
from kernels.matmul.ranks import FusedMatmul, address, count_at_peer, shards_last
from kernels.matmul.tuning import SHARED_BYTES, Tuning
from kernels.shares import VECTOR_BYTES

PIECES = 8
"""What a block has of the shard in shared memory on its way."""

TUNING = replace(
    ranks.PUSHING, piece_bytes=512, in_flight=4, reason="the fastest of 20 on 2 H200: pieces of 2 KiB take 10 % longer"
)
TUNINGS = (TUNING, *(replace(one, stages=one.stages - 1) for one in ranks.tunings_like(TUNING)[1:]))
"""By columns of a tile. A stage less than others have leaves room for pieces on their way."""


def at_once(tuning: Tuning) -> Tuning:
    """Return the tuning for a matmul whose tiles all run at once. Blocks with another rank's rows wait idle for them:
    larger pieces bring them sooner."""
    return replace(tuning, piece_bytes=2 << 10, in_flight=1, reason="on 2 H200 12 % faster and 3 % slower, of 2 shapes")


class AllGather(FusedMatmul):
    """C (ranks, rows, columns), from A (rows, depth) of each rank."""

    def __init__(self, dtype: Any, world_size: int, tuning: Tuning = TUNING) -> None:
        super().__init__(dtype, world_size, tuning)
        size_bytes = PIECES * (tuning.piece_bytes + bulk.BARRIER_BYTES)
        if size_bytes > bulk.STATIC_BYTES:
            raise ValueError(f"{PIECES} pieces on their way (piece_bytes) are more than {bulk.STATIC_BYTES} bytes")
        if tuning.shared_bytes + size_bytes > SHARED_BYTES:
            raise ValueError(f"{tuning.stages} stages (stages) leave no room for pieces on their way: give fewer")

    @cute.jit
    def __call__(
        self,
        a: cute.Tensor,
        b: cute.Tensor,
        c: cute.Tensor,
        gathered: cute.Tensor,
        gathered_of: cute.Pointer,
        flags: cute.Pointer,
        flags_of: cute.Pointer,
        state: cute.Pointer,
        status: cute.Pointer,
        rank: Int32,
        patience: Int64,
        blocks: Int32,
    ) -> None:
        """gathered: (2 x ranks, rows, depth). flags: a word a rank. gathered_of, flags_of: tables of all ranks'."""
        words = [rank, patience, *map(address, (status, state, flags, flags_of, a.iterator, gathered_of))]
        self.launch_gathered(a, b, c, gathered, words, blocks)

    def launch_gathered(
        self, a: Any, b: Any, c: Any, gathered: Any, words: list[Any], blocks: Any, stream: Any = ()
    ) -> None:
        sizes = sizes_of(a, b)
        sources = [self.source(a), self.source(shards_last(gathered))]
        words = [*words, Int64(sizes[0]) * sizes[2] * 2]
        self.launch_with(sources, b, [self.target(shards_last(c))], sizes, words, blocks, stream)

    def begin(self, words: list[Any]) -> None:
        super().begin(words)
        shape: Any = SimpleNamespace(threads=self.tuning.piece_bytes // VECTOR_BYTES, unroll=PIECES)
        self.pieces = bulk.Stages(shape)

    def tell(self, place: Any, sizes: Any, group: Any) -> None:
        """No rank waits for C."""

    def shard(self, step: Any) -> Any:
        return self.after(self.rank, step)

    def target_corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        return column, row, shard

    def slot(self, shard: Any) -> Any:
        """Which of the gathered shards it is in this launch."""
        return (self.number & 1) * self.shards + shard

    @cute.jit
    def await_shard(self, shard: Int32) -> None:
        if shard != self.rank:
            wait_for(self.flags + Int64(shard) * 4, self.total, shard, TILES, self.watch)
            bulk.fence_proxies()

    @cute.jit
    def load_a(self, stage: Int32, sources: Any, k: Int32, row: Int32, shard: Int32, counted: Int32) -> None:
        if shard == self.rank:
            tensor_maps.load(stage, sources[0], (k, row), counted)
        else:
            tensor_maps.load(stage, sources[1], (k, row, self.slot(shard)), counted)

    @cute.jit
    def assist(self) -> None:
        source, gathered_of, size = self.more
        begin, step = (
            Int64(one) * self.tuning.piece_bytes for one in (cute.arch.block_idx()[0], cute.arch.grid_dim()[0])
        )
        for earlier in cutlass.range_constexpr(1, self.shards):
            peer = self.after(self.rank, self.shards - earlier)
            target = device.load_address(gathered_of, peer) + Int64(self.slot(self.rank)) * size

            def put(offset: Any, piece: Any, target: Any = target) -> None:
                self.pace()
                bulk.store(target + offset, *piece)

            bulk.copy_pieces(Int32(0), begin, size, step, source, self.pieces, put)
            count_at_peer(device.load_address(self.flags_of, peer) + Int64(self.rank) * 4)
