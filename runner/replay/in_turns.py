"""The recorded code, run again in turns with today's, so that drift of the machine is no change of the code.

Recorded times and those of a replay lie apart in time, and drift and change then look alike (reports/audit/order.py).
So where cases are timed and git has the recorded commit, each launch is two worlds: one of the recorded code, in a
worktree of that commit, and one of today's, in an order that a recorded seed draws. What runs is the code that git
has, below HEAD or a local branch of this repository; a record's own files and differences are never run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reports.record import bundle
from reports.record.bundle import SUFFIX
from runner.records.command_json import COMMAND_JSON
from runner.replay.recorded_code import run_code

if TYPE_CHECKING:
    from reports.record.record import Record


@dataclass(frozen=True, slots=True)
class Turn:
    """How one world of the recorded code ended: the exit code, the folders of its commands, and the last line that it
    wrote to stderr."""

    exit_code: int
    folders: tuple[Path, ...]
    complaint: str


def run_recorded(code: Path, records: Sequence[Record], arguments: Sequence[str], into: Path) -> Turn:
    """Run records again with the code in a folder, as one new world whose commands' folders are moved to into.

    arguments are further ones of the replay. An interrupt ends the world first; the exit code then says so.
    """
    place = Path(tempfile.mkdtemp(prefix=".recorded-", dir=into))
    try:
        recorded = place / f"recorded{SUFFIX}"
        bundle.write(records, recorded)
        new = place / "records"
        words = ["replay", str(recorded), "--launches", "1", "--records", str(new), *arguments]
        ran = run_code(code, words)
        made = sorted(path.parent for path in new.rglob(COMMAND_JSON)) if new.is_dir() else []
        return Turn(ran.exit_code, tuple(folder.rename(into / folder.name) for folder in made), ran.complaint)
    finally:
        shutil.rmtree(place, ignore_errors=True)
