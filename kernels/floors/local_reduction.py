"""local_reduction: sums of two buffers of float32 in own memory into a third, with 1, 8, 32 and 128 blocks.

What it measures: how fast a GPU loads, adds and stores when no link is in the way: of one block, and of all of them.
What a rank reduces from its own inbox can't be faster.

Memory: `left`, `right` and `total`, local; the bytes counted are those of all three. With few blocks they stay in L2
(3 x 256 KiB a block); with 128 blocks they are 96 MiB together, more than the L2 of an H100 or H200. All ranks work,
none with another's memory.

The check compares the sums bit for bit: each is one addition in float32, rounded to nearest even, as torch does it.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.dsl.arithmetic import Reduction
from kernels.floors.copies import THREADS, VECTOR_BYTES
from kernels.floors.launched import Launched

IN_FLIGHT = 4
"""Vectors of each summand that a thread has in flight: with two summands as many loads as a copy."""

TURN_BYTES = THREADS * IN_FLIGHT * VECTOR_BYTES
"""Bytes of each buffer that a block works on in a turn."""


class LocalReduction(Launched):
    """blocks: of the grid."""

    threads = THREADS

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    @cute.kernel
    def kernel(self, left: cute.Pointer, right: cute.Pointer, total: cute.Pointer, turns: cutlass.Uint32) -> None:
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        lane_bytes = cutlass.Int64(block * THREADS + thread) * VECTOR_BYTES
        step = self.blocks * THREADS * VECTOR_BYTES
        one, other, out = left.toint(), right.toint(), total.toint()
        for turn in cutlass.range(turns, unroll=1):
            first = cutlass.Int64(turn) * (IN_FLIGHT * step) + lane_bytes
            add(one + first, other + first, out + first, step)


def add(one: Any, other: Any, out: Any, step: int) -> None:
    """A turn of a thread: all loads, then all sums and stores."""
    places = [number * step for number in range(IN_FLIGHT)]
    pairs = [(device.load_vector(one + place), device.load_vector(other + place)) for place in places]
    for place, pair in zip(places, pairs, strict=True):
        device.store_vector(out + place, added(*pair))


def added(one: Any, other: Any) -> Any:
    """The sums of two vectors of four float32 words."""
    sums = Reduction("float32", "native", "sum", 2)
    return tuple(sums.finish(sums.add(sums.start(list(one)), list(other))))


def expected(inputs: Any) -> Any:
    """The sums on every rank."""
    return [{"total": held["left"] + held["right"]} for held in inputs]


reduction_1, reduction_8, reduction_32, reduction_128 = (LocalReduction(blocks) for blocks in (1, 8, 32, 128))
