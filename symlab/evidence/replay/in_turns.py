"""The recorded code, run again in turns with today's, so that drift of the machine is no change of the code.

Recorded times and those of a replay lie apart in time, and drift and change then look alike (audit/order.py).
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

from reports.table.compare import is_baseline
from runner.case.bringing import recorded_place
from runner.records.command_json import COMMAND_JSON
from symlab.evidence.replay.commits import has_kernel
from symlab.evidence.replay.recorded_code import run_code
from symlab.evidence.replay.recorded_commands import commands_of, known_keys

if TYPE_CHECKING:
    from cases.record.record import Record


@dataclass(frozen=True, slots=True)
class Turn:
    """How one world of the recorded code ended: the exit code, the folders of its commands, and the last line that it
    wrote to stderr."""

    exit_code: int
    folders: tuple[Path, ...]
    complaint: str


def run_recorded(code: Path, records: Sequence[Record], fabric: str, into: Path) -> Turn:
    """Run records again with the code in a folder, in new worlds on a fabric: one for all cases that differ in
    algorithm and size alone. Their commands' folders are moved to into.

    An interrupt ends the world first; the exit code then says so.
    """
    here = (f"fabric={fabric}", "track=none")
    place = Path(tempfile.mkdtemp(prefix=".recorded-", dir=into))
    try:
        new, reasons = place / "records", dict[int, str]()
        ran = run_code(code, ["--cfg", "job", *here])
        if ran.exit_code >= 128:
            return Turn(ran.exit_code, (), "")
        by_number = {number: record for number, record in enumerate(records) if _is_there(record, code)}
        for start in commands_of(by_number, known_keys(ran), reasons):
            ran = run_code(code, [*start.words(by_number), *here, f"records={new}"])
            if ran.exit_code >= 128:
                break
        made = sorted(path.parent for path in new.rglob(COMMAND_JSON)) if new.is_dir() else []
        complaint = ran.complaint or next(iter(reasons.values()), "")
        return Turn(ran.exit_code, tuple(folder.rename(into / folder.name) for folder in made), complaint)
    except OSError as error:
        return Turn(1, (), str(error))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _is_there(record: Record, code: Path) -> bool:
    """Whether the code in a folder has the kernel of a record. A library need not be there; a brought kernel is not."""
    if is_baseline(record):
        return True
    return not recorded_place(record) and has_kernel(code, record.case.name)
