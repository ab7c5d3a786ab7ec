"""What a command's run in MLflow holds beside its numbers: the report, the table, all records in one bundle, the PTX.

Files are made in a folder, which is then sent as it is. What can't be made is said, and hurts nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from cases.record.record import Record
from reports.record import bundle
from reports.record.seal import MANIFEST, SIGNATURE
from reports.table import table
from runner.records.command_json import COMMAND_JSON
from runner.request_error import first_line

REPORT_NAME, TABLE_NAME, BUNDLE_NAME = "report.html", "table.md", f"records{bundle.SUFFIX}"
CONFIGURATION_FOLDER, PTX_FOLDER = "configuration", "ptx"
"""What was asked for, the manifest, and what was signed; the PTX of all kernels."""


def build(folder: Path, records: Sequence[Record], origin: Path) -> list[str]:
    """Make everything in folder, from the records and the folder they lie in; of no records there is no report. Gives
    a sentence for each thing that could not be made."""
    makers: dict[str, Callable[[], object]] = {
        CONFIGURATION_FOLDER: lambda: _configuration(folder / CONFIGURATION_FOLDER, origin)
    }
    if (origin / PTX_FOLDER).is_dir():
        makers[PTX_FOLDER] = lambda: shutil.copytree(origin / PTX_FOLDER, folder / PTX_FOLDER)
    if records:
        makers |= {
            BUNDLE_NAME: lambda: bundle.write(records, folder / BUNDLE_NAME, is_quick=True),
            TABLE_NAME: lambda: (folder / TABLE_NAME).write_text(table.markdown(records), encoding="utf-8"),
            REPORT_NAME: lambda: (folder / REPORT_NAME).write_text(_page(records), encoding="utf-8"),
        }
    problems = []
    for name, make in makers.items():
        try:
            make()
        except Exception as error:
            problems.append(f"{name}: {first_line(error)}")
    return problems


def _configuration(folder: Path, origin: Path) -> None:
    """What was asked for and how it ended, and the manifest of the records' folder with its signature."""
    beside = [origin / name for name in (COMMAND_JSON, MANIFEST, SIGNATURE)]
    for path in [*origin.glob("*.yaml"), *beside]:
        if path.is_file():
            folder.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / path.name)


def _page(records: Sequence[Record]) -> str:
    from reports.html import page
    from reports.html.pictures import MOST_TRACKED

    return page(records, most_pictures=MOST_TRACKED)
