"""python -m runner.track: the same as symlab track."""

from __future__ import annotations

from collections.abc import Sequence

from symlab.command import carry_out, leave


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Returns the exit code."""
    return carry_out("runner.track.commands:track", "python -m runner.track", arguments)


if __name__ == "__main__":
    leave(main)
