"""python -m reports: the commands that look at records, and `published`, which makes what the project publishes."""

from __future__ import annotations

from collections.abc import Sequence

from symlab.command import carry_out, leave


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line. Returns the exit code."""
    return carry_out("reports.commands:reports", "python -m reports", arguments)


if __name__ == "__main__":
    leave(main)
