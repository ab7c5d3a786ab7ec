"""empty_node: a kernel that does nothing, of 1, 8, 32 or 128 blocks; with dependent launch, too.

What it measures: a node of a graph, from the start of one kernel to that of the next on the same GPU. No collective
takes less, whatever it does.

Memory: none. It gets the address of a buffer of zeros and leaves it as it is, which is what the check compares: a
kernel that is called empty and writes is wrong.

Dependent launch: the kernel lets the next one begin as soon as it runs, and waits for those before it, as our kernels
do with timing.dependent_launch. So what remains is what a launch costs where launches overlap.

Rejected: a kernel that stores one word, so that its check shows that it ran. Its store would be in the figure. That it
ran is shown by the graph's time, which a graph without nodes does not have.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.dsl import device


class EmptyNode:
    """blocks: of the grid. dependent: launched so that it may begin before the launch before it ends."""

    def __init__(self, blocks: int, dependent: bool = False) -> None:
        self.blocks = blocks
        self.dependent = dependent

    @cute.jit
    def __call__(self, untouched: cute.Pointer) -> None:
        self.kernel(untouched).launch(grid=[self.blocks, 1, 1], block=[THREADS, 1, 1], use_pdl=self.dependent)

    @cute.kernel
    def kernel(self, untouched: cute.Pointer) -> None:
        if cutlass.const_expr(self.dependent):
            device.let_next_begin()
            device.await_launches_before()


THREADS = 128
"""Threads of a block. Our smallest kernels have 96."""


def expected(inputs: Any) -> Any:
    """What every rank's buffer holds afterwards: what it held before."""
    return [{"untouched": held["untouched"]} for held in inputs]


empty_1 = EmptyNode(1)
empty_8 = EmptyNode(8)
empty_32 = EmptyNode(32)
empty_128 = EmptyNode(128)
empty_dependent_1 = EmptyNode(1, dependent=True)
empty_dependent_8 = EmptyNode(8, dependent=True)
empty_dependent_32 = EmptyNode(32, dependent=True)
empty_dependent_128 = EmptyNode(128, dependent=True)
