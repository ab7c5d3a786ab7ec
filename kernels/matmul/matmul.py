"""matmul: C = A B^T on Hopper, persistent, warp specialised; the mainloop of all kernels of this folder.

A is (rows, depth), B (columns, depth), C (rows, columns): bfloat16 or float16, rows contiguous, sums in float32. depth
and columns are multiples of 8 (16 bytes, which tensor maps demand); rows are any number. In fused kernels rows are
divided into shards, one a rank, each with tiles of its own.

Roles. A block has three warpgroups. The first gives its registers to the other two, which multiply: each has 64 rows
of a tile and all of its columns. Of the first, one thread starts copies of A and B, and two start copies to C, one for
each of the others. Blocks are as many as SMs and take tiles in turn, so that the next tile is loaded, and multiplied as
far as chunks allow, while this one is written.

Protocol inside a block: `stages` pairs of mbarriers. full[i] counts the bytes of a piece of A and of B; empty[i] counts
the warps that have read it. In a cluster of two, the blocks' tiles lie one below the other and need the same piece of
B: each loads half of it and gives it to both. So a stage is free when the warps of both blocks have read it. A cluster
ends together, because a block that ended could not be told any more. Each chunk of C has such a pair, too: all threads
of its warpgroup fill it, one thread has it read.

Order. Copies and wgmma both access memory through the async proxy: the mbarriers order them, no fence is needed.
Accumulators go through shared memory by ordinary stores: fence.proxy.async and the chunk's mbarrier stand between these
and the copy to C, cp.async.bulk.wait_group.read before the place is used again.

Numerics: wgmma adds 16 products and the sum so far at a time, exactly to 25 bits, and truncates; C is rounded once, to
nearest even.

Tile order: a panel of `panel` tile rows (along "m") or tile columns is finished before the next one, so that the tiles
under way at one time share their pieces of A and B in L2.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from kernels.dsl import bulk, tensor_maps
from kernels.dsl.arithmetic import narrow
from kernels.matmul.tuning import CHUNK_BYTES, COLUMNS, GROUP_ROWS, ROW_BYTES, WORKERS, Tuning

WARP, GROUP = 32, 128
"""Threads of a warp and of a warpgroup."""

THREADS = (1 + WORKERS) * GROUP
LOADER_REGISTERS, WORKER_REGISTERS = 40, 232
"""Of a thread. The sums of a tile of 256 columns alone take 128; all threads of an SM have 65,536."""

DEFAULT = Tuning()
TUNINGS = (
    DEFAULT,
    Tuning(192, stages=4, chunks=3, reason="on H200 the fastest where tiles of 256 leave a third of the SMs idle"),
    Tuning(128, stages=6, reason="on H200 the fastest where tiles of 256 leave half of the SMs idle"),
)
"""By columns of a tile; kernels/fused.py chooses."""


def sizes_of(a: Any, b: Any) -> tuple[Any, ...]:
    """Rows, columns and depth of a product of A (rows, depth, ..) and B (columns, depth)."""
    return cute.size(a, mode=[0]), cute.size(b, mode=[0]), cute.size(a, mode=[1])


class Matmul:
    """The kernel. dtype: cutlass.BFloat16 or cutlass.Float16."""

    piece_rows = GROUP_ROWS
    """Rows of a chunk that one copy stores."""

    in_turns = False
    """Whether each tile comes for all shards before the next one, not each shard as a whole."""

    def __init__(self, dtype: Any, tuning: Tuning = DEFAULT) -> None:
        self.dtype = dtype
        self.name = {cutlass.BFloat16: "bfloat16", cutlass.Float16: "float16"}[dtype]
        self.tuning = tuning
        self.rows, self.columns = WORKERS * GROUP_ROWS, tuning.columns
        self.shards = 1

    # The host's half.

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, blocks: Int32) -> None:
        """a: (rows, depth), b: (columns, depth), c: (rows, columns). blocks: number of SMs to use."""
        self.launch(a, b, c, blocks)

    def launch(self, a: Any, b: Any, c: Any, blocks: Any, stream: Any = ()) -> None:
        """Within a traced function. stream: a CUstream; nothing: the default one."""
        self.launch_with([self.source(a)], b, [self.target(c)], sizes_of(a, b), [], blocks, stream)

    def launch_with(
        self,
        sources: list[Any],
        b: Any,
        targets: list[Any],
        sizes: Any,
        words: list[Any],
        blocks: Any,
        stream: Any = (),
    ) -> None:
        """sources, targets: the tensor maps of A and C. sizes: rows, columns, depth. words: for begin."""
        cluster, k_major = self.tuning.cluster, warpgroup.OperandMajorMode.K
        mma = hopper_helpers.make_trivial_tiled_mma(
            self.dtype, self.dtype, k_major, k_major, cutlass.Float32, (WORKERS, 1, 1), (GROUP_ROWS, self.columns)
        )
        rows, columns = self.tiles(sizes)
        clusters = cutlass.min(Int32(blocks // cluster), Int32(rows * columns * self.shards))
        self.kernel(mma, sources, self.map_of(b, self.columns // cluster), targets, sizes, words).launch(
            grid=(clusters * cluster, 1, 1),
            block=(THREADS, 1, 1),
            cluster=(cluster, 1, 1),
            min_blocks_per_mp=1,
            stream=stream,
        )

    def source(self, matrix: Any) -> Any:
        """The tensor map of A."""
        return self.map_of(matrix, self.rows)

    def target(self, matrix: Any) -> Any:
        """The tensor map of C."""
        return self.map_of(matrix, self.piece_rows, True)

    def map_of(self, matrix: Any, rows: int, is_target: bool = False) -> Any:
        """The tensor map of a matrix for boxes of a number of rows: an atom that carries it."""
        layout = self.staged(rows, 1)
        box = cute.slice_(layout, (None, None, 0))
        operation = cpasync.CopyBulkTensorTileS2GOp() if is_target else cpasync.CopyBulkTensorTileG2SOp()
        return cpasync.make_tiled_tma_atom(operation, matrix, box, (rows, COLUMNS))[0]

    def staged(self, rows: int, stages: int) -> Any:
        """The layout of pieces of 64 columns in shared memory."""
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, self.dtype)
        return cute.tile_to_shape(atom, (rows, COLUMNS, stages), order=(0, 1, 2))

    def tiles(self, sizes: Any) -> tuple[Any, Any]:
        """How many tiles lie below each other (those of a cluster count as one) and beside each other in a shard."""
        return cute.ceil_div(sizes[0], self.tuning.cluster * self.rows), cute.ceil_div(sizes[1], self.columns)

    # The device's half.

    @cute.kernel
    def kernel(self, mma: cute.TiledMma, sources: Any, b: Any, targets: Any, sizes: Any, words: Any) -> None:
        thread = cute.arch.thread_idx()[0]
        group = cute.arch.make_warp_uniform(thread // GROUP)
        stages, cluster = self.tuning.stages, self.tuning.cluster
        shared = SmemAllocator()
        layouts = [self.staged(rows, stages) for rows in (self.rows, self.columns)]
        pieces = [shared.allocate_tensor(self.dtype, one.outer, 1024, one.inner) for one in layouts]
        chunks = shared.allocate_array(cutlass.Int8, WORKERS * self.tuning.chunks * CHUNK_BYTES, byte_alignment=1024)
        barriers = shared.allocate_array(Int64, 2 * stages, byte_alignment=8)
        filled = shared.allocate_array(Int64, 2 * WORKERS * self.tuning.chunks, byte_alignment=8)
        sources, targets = ([tensor_maps.address_of(one) for one in group] for group in (sources, targets))
        b = tensor_maps.address_of(b)
        self.begin(words)
        if thread == 0:
            for at in cutlass.range_constexpr(stages):
                cute.arch.mbarrier_init(barriers + at, 1)
                cute.arch.mbarrier_init(barriers + stages + at, cluster * WORKERS * (GROUP // WARP))
            for at in cutlass.range_constexpr(WORKERS * self.tuning.chunks):
                cute.arch.mbarrier_init(filled + at, GROUP)
                cute.arch.mbarrier_init(filled + WORKERS * self.tuning.chunks + at, 1)
            cute.arch.mbarrier_init_fence()
            for one in (*sources, b, *targets):
                tensor_maps.prefetch(one)
        self.meet()
        self.met(thread)
        if group == 0:
            cute.arch.setmaxregister_decrease(LOADER_REGISTERS)
            if thread == 0:
                self.load(sources, b, pieces, barriers, sizes)
            if (thread == WARP) | (thread == 2 * WARP):
                self.write_out(targets, chunks, filled, sizes, thread // WARP - 1)
            if thread == 3 * WARP:
                self.assist()
        else:
            cute.arch.setmaxregister_increase(WORKER_REGISTERS)
            self.multiply(mma, pieces, barriers, chunks, filled, sizes, group - 1)
        if cutlass.const_expr(cluster > 1):
            cute.arch.cluster_arrive(aligned=False)
            cute.arch.cluster_wait()

    @cute.jit
    def meet(self) -> None:
        """Of a cluster, or of a block that is alone."""
        if cutlass.const_expr(self.tuning.cluster > 1):
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
        else:
            cute.arch.sync_threads()

    @cute.jit
    def place(self, number: Int32, sizes: Any) -> tuple[Int32, Int32, Int32]:
        """Row and column (in tiles) and shard of this block's tile with a number."""
        across, down = self.tiles(sizes)[:: 1 if self.tuning.along == "m" else -1]
        if cutlass.const_expr(self.in_turns):
            rest, shard = number // self.shards, number % self.shards
        else:
            shard, rest = number // (across * down), number % (across * down)
        first = rest // (self.tuning.panel * down) * self.tuning.panel
        rest = rest - first * down
        width = cutlass.min(Int32(self.tuning.panel), across - first)
        row, column = (first + rest % width, rest // width)[:: 1 if self.tuning.along == "m" else -1]
        row = row * self.tuning.cluster + cute.arch.block_idx_in_cluster()
        return row, column, Int32(self.shard(shard))

    # What fused kernels do besides.

    def begin(self, words: list[Any]) -> None:
        """All threads, first."""

    def met(self, thread: Any) -> None:
        """All threads, when all of the block have begun."""

    def assist(self) -> None:
        """A thread of the first warpgroup that has nothing else to do."""

    def shard(self, step: Any) -> Any:
        """The shard that is computed in a step."""
        return step

    def await_shard(self, shard: Any) -> None:
        """The loading thread, before it loads rows of a shard."""

    def load_a(self, stage: Any, sources: Any, k: Any, row: Any, shard: Any, counted: Any) -> None:
        """Start the copy of a piece of A."""
        tensor_maps.load(stage, sources[0], self.corner(k, row, shard), counted)

    def finish(self, sums: Any, chunks: Any, filled: Any, place: Any, sizes: Any, group: Any, turn: Any) -> None:
        """A warpgroup has a tile, its turn's: fill the chunks with its rows."""
        for at in range(self.columns // COLUMNS):
            self.fill(self.rounded(sums, at), chunks, filled, at, group, turn)

    def before_storing(self, place: Any, chunks: Any, sizes: Any, group: Any) -> None:
        """The storing thread, before a tile, when all that it copied out of the chunks is read."""

    def store_chunk(self, targets: Any, chunk: Any, place: Any, at: int, sizes: Any, group: Any) -> None:
        """The storing thread: start the copies of the tile's chunk with a number."""
        for piece in range(GROUP_ROWS // self.piece_rows):
            row = place[0] * self.rows + group * GROUP_ROWS + piece * self.piece_rows
            corner = self.target_corner(place[1] * self.columns + at * COLUMNS, row, place[2])
            self.store_piece(targets, corner, chunk + piece * self.piece_rows * ROW_BYTES, place[2])

    def store_piece(self, targets: Any, corner: Any, piece: Any, shard: Any) -> None:
        for one in targets:
            tensor_maps.store(one, corner, piece)
            bulk.end_group()

    def tell(self, place: Any, sizes: Any, group: Any) -> None:
        """The storing thread, after a tile."""

    def end(self, sizes: Any) -> None:
        """The multiplying threads, last."""

    # What they have in common.

    def corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        """Where a box of A begins."""
        return (column, row)

    def target_corner(self, column: Any, row: Any, shard: Any) -> tuple[Any, ...]:
        """Where a box of C begins."""
        return (column, row)

    @cute.jit
    def numbers(self, sizes: Any) -> tuple[Int32, Int32, Int32]:
        """The first number of this block's cluster, how far apart its numbers are, and the number of all."""
        cluster, (rows, columns) = self.tuning.cluster, self.tiles(sizes)
        count = Int32(rows * columns * self.shards)
        return cute.arch.block_idx()[0] // cluster, cute.arch.grid_dim()[0] // cluster, count

    @cute.jit
    def load(self, sources: Any, map_b: Any, pieces: Any, barriers: Any, sizes: Any) -> None:
        """One thread: all pieces of all tiles of this block, as far ahead as there are stages."""
        stages, cluster = self.tuning.stages, self.tuning.cluster
        number, step, count = self.numbers(sizes)
        half = self.columns // cluster
        mine = cute.arch.block_idx_in_cluster() * half
        a, b = (Int32(one.iterator.toint()) for one in pieces)
        full = Int32(barriers.toint())
        stage, parity = Int32(0), Int32(1)
        while number < count:
            row, column, shard = self.place(number, sizes)
            self.await_shard(shard)
            k = Int32(0)
            while k < sizes[2]:
                cute.arch.mbarrier_wait(barriers + stages + stage, parity)
                cute.arch.mbarrier_arrive_and_expect_tx(barriers + stage, self.tuning.stage_bytes)
                counted = full + stage * 8
                self.load_a(a + stage * self.rows * ROW_BYTES, sources, k, row * self.rows, shard, counted)
                corner = (k, column * self.columns + mine)
                tensor_maps.load(b + (stage * self.columns + mine) * ROW_BYTES, map_b, corner, counted, cluster)
                k += COLUMNS
                stage += 1
                if stage == stages:
                    stage = Int32(0)
                    parity = 1 - parity
            number += step

    @cute.jit
    def multiply(
        self, mma: cute.TiledMma, pieces: Any, barriers: Any, chunks: Any, filled: Any, sizes: Any, group: Int32
    ) -> None:
        """A warpgroup: its rows of all tiles of this block."""
        stages = self.tuning.stages
        number, step, count = self.numbers(sizes)
        part = mma.get_slice(group * GROUP)
        a = mma.make_fragment_A(part.partition_A(pieces[0]))
        b = mma.make_fragment_B(part.partition_B(pieces[1]))
        sums = cute.make_rmem_tensor(mma.partition_shape_C((self.rows, self.columns)), cutlass.Float32)
        stage, parity = Int32(0), Int32(0)
        before, turn = Int32(0), Int32(0)
        while number < count:
            cute.arch.mbarrier_wait(barriers + stage, parity)
            self.step(mma, sums, a, b, stage, True)
            k = Int32(COLUMNS)
            while k < sizes[2]:
                before = stage
                stage += 1
                if stage == stages:
                    stage = Int32(0)
                    parity = 1 - parity
                cute.arch.mbarrier_wait(barriers + stage, parity)
                self.step(mma, sums, a, b, stage, False)
                warpgroup.wait_group(1)
                self.release(barriers + stages + before)
                k += COLUMNS
            warpgroup.wait_group(0)
            self.release(barriers + stages + stage)
            stage += 1
            if stage == stages:
                stage = Int32(0)
                parity = 1 - parity
            self.finish(sums, chunks, filled, self.place(number, sizes), sizes, group, turn)
            number += step
            turn += 1
        self.end(sizes)

    @cute.jit
    def step(self, mma: cute.TiledMma, sums: Any, a: Any, b: Any, stage: Int32, is_first: cutlass.Constexpr) -> None:
        """Start the products of a stage."""
        warpgroup.fence()
        for k in cutlass.range_constexpr(COLUMNS // 16):
            mma.set(warpgroup.Field.ACCUMULATE, not (is_first and k == 0))
            cute.gemm(mma, sums, a[None, None, k, stage], b[None, None, k, stage], sums)
        warpgroup.commit_group()

    @cute.jit
    def release(self, barrier: Any) -> None:
        """A warp has read a stage: tell both blocks of a cluster."""
        lane = cute.arch.lane_idx()
        if cutlass.const_expr(self.tuning.cluster > 1):
            if lane < self.tuning.cluster:
                cute.arch.mbarrier_arrive(barrier, lane)
        else:
            if lane == 0:
                cute.arch.mbarrier_arrive(barrier)

    @cute.jit
    def write_out(self, targets: Any, chunks: Any, filled: Any, sizes: Any, group: Int32) -> None:
        """One thread for a warpgroup: start the copies of all chunks that it fills."""
        number, step, count = self.numbers(sizes)
        turn = Int32(0)
        while number < count:
            place = self.place(number, sizes)
            self.before_storing(place, chunks, sizes, group)
            for at in cutlass.range_constexpr(self.columns // COLUMNS):
                chunk, barrier, parity = self.chunk_at(chunks, filled, at, group, turn)
                cute.arch.mbarrier_wait(barrier, parity)
                self.store_chunk(targets, chunk, place, at, sizes, group)
                bulk.await_read(0)
                cute.arch.mbarrier_arrive(barrier + WORKERS * self.tuning.chunks)
            self.tell(place, sizes, group)
            number += step
            turn += 1
        bulk.await_written()

    def chunk_at(self, chunks: Any, filled: Any, at: int, group: Any, turn: Any) -> tuple[Any, Any, Any]:
        """Where a tile's chunk lies in shared memory, its mbarrier, and the parity of its phase in this turn."""
        count = self.tuning.chunks
        slot = group * count + at % count
        uses = self.columns // COLUMNS // count
        return Int32(chunks.toint()) + slot * CHUNK_BYTES, filled + slot, (turn * uses + at // count) & 1

    def fill(self, words: Any, chunks: Any, filled: Any, at: int, group: Any, turn: Any) -> None:
        """64 columns of a warpgroup's rows of a tile, as tensor maps have them."""
        thread = cute.arch.thread_idx()[0] % GROUP
        line = thread // WARP * 16 + thread % 16

        def put(chunk: Any) -> None:
            for pair in range(COLUMNS // 16):
                vector = (2 * pair + thread % WARP // 16) ^ (line % 8)
                tensor_maps.store_matrices(chunk + line * ROW_BYTES + vector * 16, words[4 * pair : 4 * pair + 4])

        self.fill_with(put, chunks, filled, at, group, turn)

    def fill_with(self, put: Any, chunks: Any, filled: Any, at: int, group: Any, turn: Any) -> None:
        """Fill a chunk when what it held has been read."""
        chunk, barrier, parity = self.chunk_at(chunks, filled, at, group, turn)
        cute.arch.mbarrier_wait(barrier + WORKERS * self.tuning.chunks, parity ^ 1)
        put(chunk)
        tensor_maps.fence_shared()
        cute.arch.mbarrier_arrive(barrier)

    def rounded(self, sums: Any, at: int) -> list[Any]:
        """The words of 64 columns: two neighbours of a row each."""
        values = [tensor_maps.word_of_float(sums[at * COLUMNS // 2 + i]) for i in range(COLUMNS // 2)]
        return [narrow(values[i : i + 2], self.name) for i in range(0, len(values), 2)]

    def meet_group(self, group: Any) -> None:
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=GROUP)
