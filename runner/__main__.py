"""python -m runner: the same as symlab run; and python -m runner replay|resume as symlab replay|resume."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symlab.command import carry_out, leave

if TYPE_CHECKING:
    from runner.command.running import Tools

PROGRAM = "python -m runner"
OTHERS = ("replay", "resume")
"""Verbs beside run."""


def main(arguments: Sequence[str] | None = None, tools: Tools | None = None) -> int:
    """Carry out a command line. Returns the exit code; tools are what tests work with."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in OTHERS:
        return carry_out("symlab.verbs:symlab", PROGRAM, given, tools)
    return carry_out("runner.command.verbs:run", PROGRAM, given, tools)


if __name__ == "__main__":
    leave(main)
