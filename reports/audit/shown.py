"""What people see of records: reports, tables and figures that lie beside them are made again and compared.

A file that is none of these, and no part of a command's folder either, is named as not looked at.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from reports.audit.items import Ground, Outcome, Point, listed, verified_or
from reports.audit.shown_pages import page_points
from reports.audit.shown_pictures import figure_points
from reports.audit.shown_tables import Compared, compare_tables, table_of_csv, tables_of_markdown, tables_of_text
from reports.record import bundle
from reports.record.reading import contents, leaves
from reports.record.record import Record
from reports.record.seal import MANIFEST, digests_under
from reports.record.signed import SIGNATURES, SIGNED
from reports.table import table
from reports.table.text import counted

MOST_SHOWN_BYTES = 1 << 26
"""Maximum size of a page or a picture that is read: 10,000 records give 30 MB."""

_PAGES = (".html", ".htm", ".xhtml")
_TABLES = (".md", ".csv", ".tsv", ".txt")

_OF_COMMANDS = (
    *("*.json", "configuration.yaml", "*-configuration.yaml", "source*.diff", "*.ptx", f"*{bundle.SUFFIX}"),
    *(MANIFEST, SIGNED, SIGNATURES, ".*.tmp"),
)
"""Names of files that commands write, beside what people see."""

_BROUGHT = "brought"
"""The folder of a user's code that ran, as text."""


def beside(place: Path, records: Sequence[Record], is_published: bool = False) -> Iterator[Point]:
    """Yield what comes of all that people see in a folder of records and below, and of the report beside it that has
    its name. is_published: the tables and figures there are compared elsewhere."""
    pages, tables, figures, others = _files(place)
    manifests = digests_under([place]) if pages else {}
    for path in pages:
        try:
            text = text_of(path)
        except ValueError as error:
            yield Point(Outcome.NOT_COMPARABLE, str(error))
            continue
        yield from page_points(path.name, text, records, manifests)
    if not is_published:
        for path in tables:
            yield _table_point(path.name, path.suffix.lower(), text_of(path), records)
        for path in figures:
            yield from figure_points(path.name, text_of(path), records)
    if others:
        names = listed(path.relative_to(place).as_posix() for path in others)
        yield Point(
            Outcome.NOT_COMPARABLE, f"{counted(len(others), 'file')} that symlab does not write, not looked at: {names}"
        )


def _files(place: Path) -> tuple[list[Path], list[Path], list[Path], list[Path]]:
    """Return the pages, tables, figures and other files of a folder and below, without those that commands write."""
    from reports.html.page_path import page_beside

    named = page_beside(place.resolve())
    found: tuple[list[Path], ...] = ([named] if named.is_file() else [], [], [], [])
    for root, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            suffix = path.suffix.lower()
            is_odd = not path.is_file() or (path.is_symlink() and leaves(path, place))
            if _BROUGHT in path.relative_to(place).parts[:-1] or is_odd:
                continue
            if suffix in _PAGES:
                found[0].append(path)
            elif suffix in _TABLES and name != SIGNED:
                found[1].append(path)
            elif suffix == ".svg":
                found[2].append(path)
            elif not any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_COMMANDS):
                found[3].append(path)
    return found[0], found[1], found[2], found[3]


def _table_point(name: str, suffix: str, text: str, records: Sequence[Record]) -> Point:
    """Return what comes of a table that is a file: the best of the forms that symlab writes."""
    if suffix == ".txt":
        return _text_point(name, text, records)
    results = [(one, is_whole) for one, is_whole in _forms(suffix, text, records)]
    found, is_whole = max(results, key=lambda result: (result[0].cells, -len(result[0].odd)))
    if not found.cells and not found.odd:
        return Point(Outcome.NOT_COMPARABLE, f"{name}: no table of it is one that these records give")
    odd = [*found.odd, *(f"it lacks {one}" for one in found.missing if is_whole)]
    good = f"{name}: {counted(found.cells, 'cell')} made again; 0 differ"
    if found.unknown:
        good += f"; not looked at: {listed(found.unknown)}"
    total = max(found.cells, len(odd))
    return verified_or([f"{name}: {one}" for one in odd], good, total, "cells differ", Ground.RECOMPUTED)


def _forms(suffix: str, text: str, records: Sequence[Record]) -> Iterator[tuple[Compared, bool]]:
    """Yield how a text compares with each form that records give, and whether it is such a form, and no excerpt."""
    from reports.numerics.study import markdown, studied

    if suffix != ".md":
        made = table_of_csv(table.csv_text(records))
        yield compare_tables(table_of_csv(text), made), True
        return
    grids, others = tables_of_markdown(text)
    curves = [markdown(found)] if (found := studied(records)) else []
    for is_wide in (False, True):
        made_grids, made_others = tables_of_markdown(table.markdown(records, is_wide))
        more = [tables_of_markdown(one)[0] for one in curves]
        is_whole = set(made_others) <= set(others)
        found_here = compare_tables(grids, [*made_grids, *(grid for some in more for grid in some)])
        study_titles = {f"the table '{grid.heading or ', '.join(grid.rows[0])}'"[:70] for some in more for grid in some}
        found_here.missing = [one for one in found_here.missing if one[:70] not in study_titles]
        yield found_here, is_whole


def _text_point(name: str, text: str, records: Sequence[Record]) -> Point:
    """Return what comes of a plain text: the lines of a table whose head records give are compared."""
    shown = tables_of_text(text)
    for is_wide in (False, True):
        made = tables_of_text(table.plain(records, is_wide))
        heads = {line for line in made if line.startswith(("size ", "algorithm "))}
        if not heads & set(shown):
            continue
        odd = [f"{name}: it says '{line[:60]}', which these records do not give" for line in shown if line not in made]
        good = f"{name}: {counted(len(shown), 'line')} made again; 0 differ"
        return verified_or(odd, good, len(shown), "lines differ", Ground.RECOMPUTED)
    return Point(Outcome.NOT_COMPARABLE, f"{name}: no table of it is one that these records give")


def text_of(path: Path) -> str:
    """Return the text of a page, a table or a picture. Raises ValueError if it can't be read."""
    return contents(path, MOST_SHOWN_BYTES).decode("utf-8", "replace")
