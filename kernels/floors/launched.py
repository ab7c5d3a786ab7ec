"""What kernels here have in common: an object that launches its kernel on blocks in a row."""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute


class Launched:
    """blocks: of the grid, threads: of a block. It takes the arguments of its kernel."""

    kernel: Any
    threads = 32
    blocks = 1

    @cute.jit
    def __call__(self, *arguments: Any) -> None:
        self.kernel(*arguments).launch(grid=[self.blocks, 1, 1], block=[self.threads, 1, 1])
