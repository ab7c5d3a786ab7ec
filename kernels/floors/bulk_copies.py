"""bulk_copies: copies from one GPU to another by cp.async.bulk through shared memory, one thread a block.

What it measures: what a block moves by bulk copies, and 8 and 32 blocks together, by the stages that our kernels use
(kernels/dsl/bulk.py): five of 8 KiB a block, loads ahead of stores by all stages but one.

Memory: as copies.py has it, one way: rank 0 pushes from its own memory into rank 1's. The check compares the target bit
for bit.

Order: kernels/dsl/bulk.py says what the bulk copies need. The kernel's end passes the copies on.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import bulk, device
from kernels.floors.copies import THREADS, TURN_BYTES
from kernels.floors.launched import Launched

STAGES = 5


class BulkCopies(Launched):
    """blocks: of the grid."""

    threads = THREADS

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    @cute.kernel
    def kernel(
        self,
        sources: cute.Pointer,
        targets: cute.Pointer,
        source: cute.Pointer,
        target: cute.Pointer,
        turns: cutlass.Uint32,
        rank: cutlass.Uint32,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        shape: Any = SimpleNamespace(threads=THREADS, unroll=STAGES)
        stages = bulk.Stages(shape)
        if rank == 0:
            start, end = source.toint(), device.load_address(targets.toint(), 1)
            size_bytes = cutlass.Int64(turns) * (self.blocks * TURN_BYTES)
            begin = cutlass.Int64(block) * stages.piece_bytes
            step = cutlass.Int64(self.blocks * stages.piece_bytes)

            def put(offset: Any, piece: Any) -> None:
                bulk.store(end + offset, *piece)

            bulk.copy_pieces(thread, begin, size_bytes, step, start, stages, put)


bulk_push_1, bulk_push_8, bulk_push_32 = (BulkCopies(blocks) for blocks in (1, 8, 32))
