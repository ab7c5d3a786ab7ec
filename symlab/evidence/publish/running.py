"""One world of a plan: `symlab run` in processes of its own.

It runs in an empty folder that is removed afterwards, so that its records hold no path of that folder. What counts is
a command that came to its end with a record of every case, whatever their status; anything else is a failed world.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.record.record import Record
from memory.owned_folder import owned_folder
from reports.record.bundle import read
from reports.table.text import counted
from reports.table.unfinished import unfinished
from runner.records.scrub import scrubbed
from symlab.evidence.replay.recorded_code import python_by

WRONG_REQUEST = 2
"""The exit code of a command that was refused before anything ran."""

_RAN = (0, 1)
"""Exit codes of a command that came to its end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a world gave: all its records, or none and why in one line. exit_code: of the command."""

    records: tuple[Record, ...]
    exit_code: int
    why: str = ""


def run_world(code: Path, arguments: Sequence[str]) -> Ran:
    """Run `symlab run` with these arguments by the code in a folder, in new processes. An interrupt ends the world,
    then is raised."""
    with owned_folder("symlab-publish-") as place:
        records = Path(place, "records")
        with Path(place, "said").open("w+", encoding="utf-8", errors="replace") as said:
            words = ["-P", "-m", "symlab", "run", *arguments]
            with python_by(code, words, Path(place), (subprocess.DEVNULL, said)) as process:
                exit_code = process.wait()
            said.seek(0)
            last = scrubbed((said.read().strip().splitlines() or [""])[-1]).replace(place, "")
        if exit_code not in _RAN:
            return Ran((), exit_code, last.removeprefix("symlab: error: ") or f"it ended with exit code {exit_code}")
        try:
            found = read([records]) if records.is_dir() else []
        except ValueError as error:
            return Ran((), exit_code, " ".join(str(error).replace(place, "").split()))
        if not found:
            return Ran((), exit_code, last or "it left no records")
        if unfinished([records], found):
            return Ran((), exit_code, f"only {counted(len(found), 'case')} came to an end: {last}")
        return Ran(tuple(found), exit_code)
