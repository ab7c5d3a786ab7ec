"""dependent_loads: one thread walks over lines of memory, and each load's address depends on what the last one gave.

What it measures: how long a load takes that nothing overlaps: from the own L2, from own memory, and from the next
rank's memory with the line in that GPU's L2 or not. A pull and every table of addresses begins with one.

Memory: `data`, whose every word holds its rank's number; `place`, the line at which the next launch goes on. The walk
is a linear congruential sequence modulo the number of lines, a power of two: x -> x * 5 + 1 + 2 v, where v is the word
loaded. An odd addend and a factor of 5 give the full period, so no line comes again before all others. v is the same
at every step, and the compiler doesn't know it. The check compares the place at the end and the sum of all places and
words with the same walk on the host: a load that was left out, or came from another rank, gives others.

Hot: the lines are 1 MiB together, and stay in L2. Cold: the walk is over the first quarter of a buffer of four times
the size of an L2 or more. Writing the buffer leaves its end in L2 and not its first quarter, and the 256 lines of a
launch are lines that no launch has loaded before.

Order: relaxed loads at system scope, so that none is answered by the L1 cache. No thread writes while the kernel runs.
Only rank 0 walks. The others' links are idle.

A step is a load, and from its result to the next address a shift and an addition, a multiplication and addition, an
"and" and a 64-bit multiplication and addition: about 20 cycles, 10 ns at 1,980 MHz, which are in the figure.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device
from kernels.floors.launched import Launched

STEPS = 256
LINE_BYTES = 128
FACTOR = 5


class DependentLoads(Launched):
    """remote: walk over the next rank's memory; else over the own."""

    def __init__(self, remote: bool) -> None:
        self.remote = remote

    @cute.kernel
    def kernel(
        self,
        datas: cute.Pointer,
        place: cute.Pointer,
        walked: cute.Pointer,
        lines: cutlass.Uint32,
        rank: cutlass.Uint32,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        if (thread == 0) & (rank == 0):
            begin = device.load_address(datas.toint(), 1 if self.remote else 0)
            line = device.load_word(place.toint())
            total = cutlass.Int32(0)
            for _ in cutlass.range(0, STEPS, unroll=1):
                word = device.observe(begin + cutlass.Int64(line) * LINE_BYTES, "relaxed")
                total += line + word
                line = (line * FACTOR + (1 + 2 * word)) & (cutlass.Int32(lines) - 1)
            device.store_word(place.toint(), line)
            device.store_word(walked.toint(), line)
            device.store_word(walked.toint() + 4, total)


def expecting(remote: bool, divisor: int) -> Any:
    """The reference. divisor: of the lines of the buffer, those that are walked over are the first 1/divisor."""

    def expected(inputs: Any) -> Any:
        """Rank 0's last line, and the sum of its lines and of what it loaded."""
        import torch

        data = inputs[1 if remote else 0]["data"]
        words = LINE_BYTES // 4
        lines = len(data) // words // divisor
        line, total = int(inputs[0]["place"][0]), 0
        for _ in range(STEPS):
            word = int(data[line * words])
            total += line + word
            line = (line * FACTOR + 1 + 2 * word) & (lines - 1)
        walked = torch.tensor([line, total], dtype=torch.int32)
        return [{"walked": walked}, *[None] * (len(inputs) - 1)]

    return expected


COLD_DIVISOR = 4
load_own_hot = DependentLoads(remote=False)
load_own_cold = DependentLoads(remote=False)
load_remote_hot = DependentLoads(remote=True)
load_remote_cold = DependentLoads(remote=True)
expected_own_hot = expecting(False, 1)
expected_own_cold = expecting(False, COLD_DIVISOR)
expected_remote_hot = expecting(True, 1)
expected_remote_cold = expecting(True, COLD_DIVISOR)
