"""A history as one HTML file: all series in one sortable table, with links to the files that hold the raw samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from reports.html import page_of
from reports.html.blocks import Block, Facts, Fold, Heading, Notes, Part, Pictures, Table
from reports.table.compare import heading
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text
from symlab.evidence.history.chart import chart
from symlab.evidence.history.history import History, Told, case_cells, line_of
from symlab.evidence.history.series import Place, Point

MOST_LINKS = 24
"""Maximum number of links to raw samples in a line of the table of all series; the latest worlds have them."""

MOST_OPEN = 12
"""Maximum number of series of which each has a chart and a table of its worlds, whether it changed or not."""

MOST_CHARTS = 100
"""Maximum number of series with a chart and a table of their worlds."""

_COLUMNS = (
    *("algorithm", "op", "dtype", "accumulator", "ranks", "size", "machine", "worlds", "versions"),
    *("first (us)", "last (us)", "last/first", "times", "data", "samples"),
)
_NUMERIC = frozenset({"ranks", "size", "worlds", "versions", "first (us)", "last (us)", "last/first", "time (us)"})


def page(found: History, title: str = "", folder: Path | None = None, is_changed: bool = False) -> str:
    """Return the page's text. folder: where the page will lie, for links to raw samples; None for a page without links.
    is_changed: only series with a change."""
    shown = [one for one in found.told if one.is_changed or not is_changed]
    parts = [_changes_part(found), _series_part(shown, folder)]
    svgs: dict[str, str] = {}
    followed = shown if len(shown) <= MOST_OPEN else [one for one in shown if one.is_changed]
    if followed:
        parts.append(_worlds_part(found, followed[:MOST_CHARTS], folder, svgs))
    parts.append(Part("versions", "Versions", (Table(found.versions_sheet(), heading=False),)))
    facts = Facts((("records", f"{found.records:,}"), ("band", f"changes within {found.band:.1%} are not named")))
    return page_of("symlab history", title or "History", found.verdict, facts, parts, svgs)


def _changes_part(found: History) -> Part:
    sheets = found.change_sheets()
    blocks: list[Block] = [Table(sheet) for sheet in sheets] or [Notes((found.verdict,))]
    return Part("changes", "Changes", (*blocks, Notes(found.captions)))


def _series_part(shown: Sequence[Told], folder: Path | None) -> Part:
    """Return the part with a line for each series."""
    lines, files = [], {}
    for number, one in enumerate(shown):
        line = line_of(one)
        named = _linked(one.series.points, folder)
        left_out = f"the latest {MOST_LINKS}" if len(named) > MOST_LINKS else "-"
        lines.append(Line({**line.cells, "samples": left_out}, line.styles, line.raw))
        if named:
            files[number, "samples"] = tuple(named[-MOST_LINKS:])
    columns = tuple(name for name in _COLUMNS if name != "samples" or files)
    sheet = Sheet("all cases", columns, (tuple(lines),), _NUMERIC)
    note = "samples: files with the raw samples of all ranks, one a world; the number after a bundle's name is its line"
    notes = (Notes((note,)),) if files else ()
    return Part("cases", "All cases", (Table(sheet, heading=False, files=files), *notes))


def _worlds_part(found: History, shown: Sequence[Told], folder: Path | None, svgs: dict[str, str]) -> Part:
    """Return the part with a chart, if there are times, and a table of worlds for each of these series."""
    blocks: list[Block] = []
    for number, one in enumerate(shown):
        series = one.series
        cells = case_cells(series)
        title = f"{cells['algorithm']}, {size_text(series.first.case.size_bytes)}, {heading(series.first)}"
        blocks.append(Heading(f"case-{number}", f"{title}, {series.machine}", listed=False))
        times = [point.us for point in series.timed if point.us is not None]
        if times:
            svgs[f"chart-{number}"] = chart(
                title, times, [found.versions[point.version] for point in series.timed], one.changes
            )
            says = "time of a call in us, one point a world in order of time; lines: medians between changes; bands: "
            blocks.append(Pictures((f"chart-{number}",), f"{says}95 % intervals of the places of changes"))
        blocks.append(Fold(counted(len(series.points), "world"), (_worlds_table(found, one, folder),)))
    return Part("worlds", "World by world", tuple(blocks))


def _worlds_table(found: History, one: Told, folder: Path | None) -> Table:
    columns = ("began", "command", "version", "commit", "library", "status", "time (us)", "data", "samples")
    steps = {step.at: str(step.data) for step in one.data}
    lines, files = [], {}
    for at, point in enumerate(one.series.points):
        digest = point.data_digest or "no digest"
        cells = {
            "began": f"{point.started:%Y-%m-%d %H:%M:%S}",
            "command": point.world,
            "version": str(found.versions[point.version]),
            "commit": point.version.commit or "unknown",
            "library": point.records[0].library or "-",
            "status": point.status,
            "time (us)": f"{point.us:.4g}" if point.us is not None else "-",
            "data": f"{digest} ({steps[at]})" if at in steps else digest,
            "samples": "-",
        }
        lines.append(Line(cells, {}, {"time (us)": point.us} if point.us is not None else {}))
        if named := _linked([point], folder):
            files[at, "samples"] = tuple(named)
    return Table(Sheet("worlds", columns, (tuple(lines),), _NUMERIC), heading=False, files=files)


def _linked(points: Sequence[Point], folder: Path | None) -> list[tuple[str, str]]:
    """Return a text and a link for each file of raw samples; none for records of MLflow."""
    if folder is None:
        return []
    return [
        (_name(place, number), _reference(place, folder))
        for number, point in enumerate(points, start=1)
        for place in point.places
    ]


def _name(place: Place, number: int) -> str:
    return f"{place.path.name.partition('.')[0]} {place.line}" if place.line else f"world {number}"


def _reference(place: Place, folder: Path) -> str:
    return quote(Path(os.path.relpath(place.path.resolve(), folder.resolve())).as_posix())
