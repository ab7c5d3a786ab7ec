"""What a comparison and a checklist have in common, and its JSON."""

from __future__ import annotations

import json
from typing import Protocol

from reports.table.sheet import Audit


class Result(Audit, Protocol):
    """What is shown of it, and the exit code."""

    @property
    def exit_code(self) -> int: ...


def as_json(result: Result) -> str:
    """Return a result as JSON: verdict, exit code, captions, and tables by heading, each a list of lines by column;
    figures are unrounded."""
    tables = {
        one.heading: [{**line.cells, **line.raw} for group in one.groups for line in group] for one in result.sheets
    }
    document = {"verdict": result.verdict, "exit_code": result.exit_code, "captions": list(result.captions)}
    return json.dumps({**document, "tables": tables}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
