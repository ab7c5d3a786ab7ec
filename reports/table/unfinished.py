"""Commands of which cases are missing: what an interrupt, a kill or a full disk left undone.

The folder's command.json lists what was asked for. What it does not say, of an older or a damaged one, is not counted:
the audit checks these files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cases.documents import parsed
from cases.record.reading import below, contents
from cases.record.record import Record
from reports.table.text import counted


def unfinished(places: Iterable[Path | str], records: Sequence[Record]) -> list[str]:
    """Return a sentence for each command below these folders of which cases are missing among its records.

    It says how many are missing, and which command runs them. records are what was read from the places.
    """
    ran = {(record.request.command, record.request.job, record.id) for record in records}
    replays = {record.request.command for record in records if record.request.replays is not None}
    lines = []
    for folder in sorted({path.parent for top in map(Path, places) for path in below(top, "command.json")}):
        command, asked = _asked(folder)
        left = len(asked - ran)
        if left and command not in replays:
            shown = shlex.quote(str(folder))
            lines.append(
                f"{left:,} of {counted(len(asked), 'case')} of {folder.name} did not run: symlab resume {shown} runs "
                f"{'it' if left == 1 else 'them'}"
            )
    return lines


def _asked(folder: Path) -> tuple[str, set[tuple[str, int, str]]]:
    """Return a command's name and its cases, with their jobs; none where command.json lacks what resume needs."""
    try:
        document: Any = parsed(contents(folder / "command.json").decode("utf-8"))
        if "plan" not in document:
            return "", set()
        command = document["command"]
        return command, {(command, job["number"], case) for job in document["jobs"] for case in job["cases"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", set()
