"""The command history: what of a set of records changed, and when, on standard output and in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from reports.record.writing import can_be_written, write_file
from reports.table import sheet, table
from symlab.evidence.history.history import History, history
from symlab.evidence.history.series import located


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """What to show: records in files, or in MLflow at uri.

    band: the share within which changes of times are not named. is_changed: only cases that changed. form: text,
    markdown or json. output: a file for the result, too.
    """

    records: tuple[str, ...]
    uri: str | None = None
    band: float = 0.02
    is_changed: bool = False
    form: str = "text"
    output: Path | None = None


def show(options: HistoryOptions) -> None:
    """Print the history of what the options name, and write it. ValueError for a wrong request."""
    if options.output is not None:
        if options.output.suffix not in (".html", ".md", ".json"):
            raise ValueError(f"{options.output}: a history's name ends in .html, .md or .json")
        can_be_written(options.output)
    if options.uri is None:
        found = history(located(options.records), options.band)
    else:
        from reports.tracked import fetch

        found = history([(record, None) for record in fetch(options.uri, options.records)], options.band)
    if options.output is not None:
        write_file(options.output, _written(found, options, options.output).encode("utf-8", "backslashreplace"))
    print(_text(found, options.form, options.is_changed), end="")
    if options.output is not None and options.form == "text":
        print(f"{options.output}: written")


def _written(found: History, options: HistoryOptions, output: Path) -> str:
    if output.suffix == ".html":
        from symlab.evidence.history.page import page

        folder = output.absolute().parent if options.uri is None else None
        return page(found, folder=folder, is_changed=options.is_changed)
    return _text(found, {".json": "json", ".md": "markdown"}[output.suffix], options.is_changed)


def _text(found: History, form: str, is_changed: bool) -> str:
    """Return the history in a form, ending in a newline. JSON has every series whatever is_changed says."""
    if form == "json":
        return json.dumps(found.document(), indent=2, allow_nan=False) + "\n"
    sheets = found.sheets(is_changed)
    if form == "markdown":
        return f"{sheet.markdown(sheets, found.captions)}\n\n**{found.verdict}**\n"
    verdict = "\n".join(sheet.wrapped(found.verdict, sheet.room_here()))
    return f"{table.rendering()(sheets, found.captions)}\n\n{verdict}\n"
