"""What a comparison and a checklist have in common, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from reports.table.sheet import Sheet


class Result(Protocol):
    """A verdict of one line, the exit code, and tables with their captions."""

    @property
    def verdict(self) -> str: ...

    @property
    def exit_code(self) -> int: ...

    @property
    def sheets(self) -> Sequence[Sheet]: ...

    @property
    def captions(self) -> Sequence[str]: ...


def as_json(result: Result) -> str:
    """Return a result as JSON: verdict, exit code, captions, and tables by heading, each a list of lines by column;
    figures are unrounded."""
    tables = {
        one.heading: [{**line.cells, **line.raw} for group in one.groups for line in group] for one in result.sheets
    }
    document = {"verdict": result.verdict, "exit_code": result.exit_code, "captions": list(result.captions)}
    return json.dumps({**document, "tables": tables}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
