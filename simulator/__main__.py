"""python -m simulator: which forms of PTX the simulator has."""

from __future__ import annotations

from collections.abc import Sequence

from symlab.command import carry_out, leave


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Returns the exit code."""
    return carry_out("simulator.commands:forms", "python -m simulator", arguments)


if __name__ == "__main__":
    leave(main)
