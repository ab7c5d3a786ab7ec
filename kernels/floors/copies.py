"""copies: multiprocessors copy memory from one GPU to another, by 16 bytes a thread and access.

What it measures: what a link carries for kernels, which is less than for the copy engine, with 1, 8, 32 and 128
blocks; by stores of the source's GPU (push) and by loads of the target's (pull) while nothing else moves, and by loads
both ways at once.

Memory: `source` and `target` on every rank, 16 bytes x 8 x 512 threads x turns a block. The check compares all targets
bit for bit with the sources, which differ by rank; what no rank is to write is not compared, and the guards around it
must hold.

Work: a thread has 8 vectors in flight, as our kernels at their best size: it loads them all, then stores them. A turn
of the grid is contiguous memory. One way, rank 0 sends to rank 1. Both ways every rank r sends to r + 1, around the
ring, so that each link carries as much in each direction; with 2 ranks it is to and fro.

Order: none. Sources were written before the launch, and targets are read after it.

The bandwidth is of the bytes of one direction, over the launch without an empty node.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.floors.launched import Launched

THREADS = 512
IN_FLIGHT = 8
VECTOR_BYTES = 16
TURN_BYTES = THREADS * IN_FLIGHT * VECTOR_BYTES
"""Bytes that a block copies in a turn."""


class Copies(Launched):
    """push: the source's GPU stores; else the target's loads. both: around the ring, else from rank 0 to rank 1.
    blocks: of the grid, on every rank that works."""

    threads = THREADS

    def __init__(self, blocks: int, push: bool, both: bool = False) -> None:
        self.blocks = blocks
        self.push = push
        self.both = both

    @cute.kernel
    def kernel(
        self,
        sources: cute.Pointer,
        targets: cute.Pointer,
        source: cute.Pointer,
        target: cute.Pointer,
        turns: cutlass.Uint32,
        rank: cutlass.Uint32,
        ranks: cutlass.Uint32,
    ) -> None:
        own, count = cutlass.Int32(rank), cutlass.Int32(ranks)
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        lane_bytes = cutlass.Int64(block * THREADS + thread) * VECTOR_BYTES
        if works(own, self.push, self.both):
            start, end = ends(own, count, sources, targets, source, target, self.push)
            copy(start, end, lane_bytes, turns, self.blocks * THREADS * VECTOR_BYTES)


def works(rank: Any, push: bool, both: bool) -> Any:
    """Whether a rank's multiprocessors copy: the one that stores, or the one that loads."""
    return rank >= 0 if both else rank == (0 if push else 1)


@cute.jit
def ends(
    rank: cutlass.Int32,
    count: cutlass.Int32,
    sources: cute.Pointer,
    targets: cute.Pointer,
    source: cute.Pointer,
    target: cute.Pointer,
    push: cutlass.Constexpr,
) -> tuple[cutlass.Int64, cutlass.Int64]:
    """Where a rank's copy begins and where it goes."""
    start, end = source.toint(), target.toint()
    if cutlass.const_expr(push):
        after = cutlass.select_(rank + 1 == count, cutlass.Int32(0), rank + 1)
        end = device.load_address(targets.toint(), after)
    else:
        before = cutlass.select_(rank == 0, count - 1, rank - 1)
        start = device.load_address(sources.toint(), before)
    return start, end


@cute.jit
def copy(
    start: cutlass.Int64, end: cutlass.Int64, lane_bytes: cutlass.Int64, turns: cutlass.Uint32, step: cutlass.Constexpr
) -> None:
    """All turns of a thread: IN_FLIGHT vectors, step bytes apart, in each."""
    for turn in cutlass.range(turns, unroll=1):
        first = cutlass.Int64(turn) * (IN_FLIGHT * step) + lane_bytes
        move(start + first, end + first, step)


def move(start: Any, end: Any, step: int) -> None:
    """A turn of a thread: all loads, then all stores."""
    vectors = [device.load_vector(start + number * step) for number in range(IN_FLIGHT)]
    for number, vector in enumerate(vectors):
        device.store_vector(end + number * step, vector)


def expected_one(inputs: Any) -> Any:
    """Rank 1 has rank 0's source."""
    return [{"target": inputs[0]["source"]} if rank == 1 else None for rank in range(len(inputs))]


def expected_all(inputs: Any) -> Any:
    """Every rank has the source of the rank before it."""
    return [{"target": inputs[rank - 1]["source"]} for rank in range(len(inputs))]


push_1, push_8, push_32, push_128 = (Copies(blocks, True) for blocks in (1, 8, 32, 128))
pull_1, pull_8, pull_32, pull_128 = (Copies(blocks, False) for blocks in (1, 8, 32, 128))
pull_both_1, pull_both_8, pull_both_32, pull_both_128 = (Copies(blocks, False, True) for blocks in (1, 8, 32, 128))
