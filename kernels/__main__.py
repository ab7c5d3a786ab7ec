"""python -m kernels: the same as symlab kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symlab.command import carry_out, leave

if TYPE_CHECKING:
    from kernels.spec import KernelSpec


def main(arguments: Sequence[str] | None = None, specs: Sequence[KernelSpec] | None = None) -> int:
    """Carry out a command line. Returns the exit code; specs are those that --codes compiles."""
    return carry_out("kernels.commands:kernels", "python -m kernels", arguments, specs)


if __name__ == "__main__":
    leave(main)
