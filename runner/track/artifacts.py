"""What a command's run in MLflow holds beside its numbers: the report, pictures, the table, all records in one bundle.

Files are made in a folder, which is then sent as it is. What can't be made is said, and hurts nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from cases.record.record import Record
from reports.record import bundle
from reports.record.seal import MANIFEST, SIGNATURE, digest_of
from reports.table import table
from reports.table.compare import split
from runner.records.command_json import COMMAND_JSON
from runner.request_error import first_line

REPORT_NAME, TABLE_NAME, BUNDLE_NAME = "report.html", "table.md", f"records{bundle.SUFFIX}"
FIGURES_FOLDER = "figures"
CONFIGURATION_FOLDER = "configuration"
"""What was asked for, the manifest, and what was signed."""

_MOST_SECTIONS = 6
"""Maximum number of rows of a picture: no more while a user waits. `symlab figure` draws more."""


def build(folder: Path, records: Sequence[Record], origin: Path) -> list[str]:
    """Make everything in folder, from the records and the folder they lie in; of no records there is no report. Gives
    a sentence for each thing that could not be made."""
    makers: dict[str, Callable[[], object]] = {
        CONFIGURATION_FOLDER: lambda: _configuration(folder / CONFIGURATION_FOLDER, origin)
    }
    if records:
        makers |= {
            BUNDLE_NAME: lambda: bundle.write(records, folder / BUNDLE_NAME, is_quick=True),
            TABLE_NAME: lambda: (folder / TABLE_NAME).write_text(table.markdown(records), encoding="utf-8"),
            REPORT_NAME: lambda: (folder / REPORT_NAME).write_text(_page(records, origin), encoding="utf-8"),
            FIGURES_FOLDER: lambda: _figures(folder / FIGURES_FOLDER, records),
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


def _page(records: Sequence[Record], origin: Path) -> str:
    from reports.html import page
    from reports.html.pictures import MOST_TRACKED

    return page(records, most_pictures=MOST_TRACKED, sealed=digests_of(origin))


def digests_of(origin: Path) -> dict[str, str]:
    """The digest of a folder's manifest by the folder's name; nothing where it has none."""
    try:
        return {origin.name: digest_of(origin)}
    except ValueError:
        return {}


def _first_sections(records: Sequence[Record]) -> list[Record]:
    """The records of the first sections that were timed: a picture of a hundred rows is unreadable, and
    takes a minute."""
    found, _ = split([record for record in records if record.case.size_bytes])
    return [record for section in found[:_MOST_SECTIONS] for record in section.records]


def _figures(folder: Path, records: Sequence[Record]) -> None:
    """The pictures that these records give, each as SVG and as PNG."""
    timed = any(record.timing is not None and record.case.size_bytes for record in records)
    if not timed:
        return
    from reports.figures import SUFFIXES, draw

    folder.mkdir()
    drawn = _first_sections(records)
    for suffix in SUFFIXES:
        draw(drawn, folder / f"time_and_bandwidth{suffix}")
