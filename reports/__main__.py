"""python -m reports: the verbs of `symlab`, those that look at records among them, as older pages write them."""

from __future__ import annotations

from collections.abc import Sequence

from symlab.command import carry_out, leave


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Returns the exit code."""
    return carry_out("symlab.verbs:symlab", "python -m reports", arguments)


if __name__ == "__main__":
    leave(main)
