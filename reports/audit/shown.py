"""What people see of records: the tables and curves of a report, a table.md, a figure, made again and compared.

Another version of symlab lays pages out otherwise. So cells are compared where a table has the same columns and rows,
and curves where a picture has as many numbers; what can't be compared so is NOT COMPARABLE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from reports.audit.items import Ground, Outcome, Point, verified_or
from reports.record import bundle
from reports.record.reading import contents
from reports.record.record import Record
from reports.table import table
from reports.table.text import counted

MOST_SHOWN_BYTES = 1 << 26
"""Maximum size of a page or a picture that is read: 10,000 records give 30 MB."""

POINTS_APART = 0.75
"""Maximum distance, in points of 1/72 inch, of two drawings of one curve by two versions of matplotlib."""

_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_PATH = re.compile(r'\s(?:d|x|y|points|transform)="([^"]*)"')
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(slots=True)
class Grid:
    """A table as it is shown: the texts of its cells, by row; the first row is its head."""

    rows: list[tuple[str, ...]] = field(default_factory=list)


_UNSEEN = frozenset({"script", "style", "title", "h1"})
"""Elements whose text is not compared: programs, and what --title gives."""


class _Tables(HTMLParser):
    """The tables of a page, and its other texts, those of its pictures too."""

    def __init__(self) -> None:
        super().__init__()
        self.grids: list[Grid] = []
        self.texts: list[str] = []
        self._unseen = 0
        self._row: list[str] | None = None
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.grids.append(Grid())
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._cell = []
        self._unseen += tag in _UNSEEN

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in _UNSEEN
        if tag in ("td", "th") and self._cell is not None and self._row is not None:
            self._row.append(" ".join("".join(self._cell).split()))
            self._cell = None
        elif tag == "tr" and self._row and self.grids:
            self.grids[-1].rows.append(tuple(self._row))
            self._row = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        elif data.strip() and not self._unseen:
            self.texts.append(" ".join(data.split()))


def tables_of_page(text: str) -> tuple[list[Grid], list[str]]:
    """Return the tables of an HTML page, and its other texts, in order."""
    parser = _Tables()
    parser.feed(text)
    return [grid for grid in parser.grids if grid.rows], parser.texts


def tables_of_markdown(text: str) -> list[Grid]:
    """Return the tables of a Markdown text, in order."""
    grids: list[Grid] = []
    is_within = False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_within = False
            continue
        if not is_within:
            grids.append(Grid())
        is_within = True
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | "))
        if not all(re.fullmatch(":?-+:?", cell.strip("| ")) for cell in cells):
            grids[-1].rows.append(cells)
    return grids


def differing_cells(shown: Sequence[Grid], made: Sequence[Grid]) -> tuple[int, list[str], int]:
    """Return the number of cells compared, a sentence for each that differs, and the number of tables not compared."""
    left = list(made)
    compared, without = 0, 0
    odd: list[str] = []
    for grid in shown:
        alike = [one for one in left if one.rows[0] == grid.rows[0] and len(one.rows) == len(grid.rows)]
        if not alike:
            without += 1
            continue
        best = min(alike, key=lambda one: sum(1 for _ in _apart(grid, one)))
        left.remove(best)
        compared += sum(map(len, grid.rows))
        odd += _apart(grid, best)
    return compared, odd, without


def _apart(shown: Grid, made: Grid) -> Iterator[str]:
    for row, wanted in zip(shown.rows, made.rows, strict=True):
        if len(row) != len(wanted):
            yield f"the line of {wanted[0]} has {len(row)} cells, the records give {len(wanted)}"
            continue
        for column, cell, right in zip(shown.rows[0], row, wanted, strict=False):
            if cell != right:
                yield f"{column or 'a cell'} of {wanted[0]} is '{cell[:40]}', the records give '{right[:40]}'"


def far_apart(shown: str, made: str) -> float | None:
    """Return the largest distance of two drawings' curves, in points; None if they are of other shapes."""
    sides = [[_NUMBER.findall(path) for path in _PATH.findall(svg)] for svg in (shown, made)]
    if [len(path) for path in sides[0]] != [len(path) for path in sides[1]]:
        return None
    pairs = (
        (float(one), float(other))
        for path, again in zip(*sides, strict=True)
        for one, other in zip(path, again, strict=True)
    )
    return max((abs(one - other) for one, other in pairs), default=0.0)


def page_shown(name: str, text: str, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a report's tables and pictures when the page is made again."""
    from reports.html import page

    again = page(records)
    (grids, texts), (made, wanted) = tables_of_page(text), tables_of_page(again)
    cells, odd, without = differing_cells(grids, made)
    if len(texts) == len(wanted):
        odd += [f"it says '{one[:60]}', the records give '{other[:60]}'"
                for one, other in zip(texts, wanted, strict=True) if one != other]  # fmt: skip
    else:
        says = f"{name}: its texts beside tables are of another version, or of an audit, not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)
    if odd or cells:
        good = f"{name}: {counted(cells, 'cell')} of its tables made again; 0 differ"
        yield verified_or([f"{name}: {one}" for one in odd], good, cells, "cells differ", Ground.RECOMPUTED)
    if without:
        says = f"{name}: {counted(without, 'table')} of another version, or of an audit, not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)
    pictures, drawn = _SVG.findall(text), _SVG.findall(again)
    yield from _pictures(name, pictures, drawn)


def _pictures(name: str, shown: Sequence[str], made: Sequence[str]) -> Iterator[Point]:
    if not shown and not made:
        return
    if len(shown) != len(made):
        says = f"{name}: {counted(len(shown), 'picture')}, these records give {len(made)}; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)
        return
    distances = [far_apart(one, other) for one, other in zip(shown, made, strict=True)]
    odd = [
        f"picture {number} of {name} is {distance:.1f} points from what these records draw"
        for number, distance in enumerate(distances, start=1)
        if distance is not None and distance > POINTS_APART
    ]
    others = distances.count(None)
    if len(distances) > others:
        good = f"{name}: {counted(len(distances) - others, 'picture')} drawn again"
        yield verified_or(odd, good, len(distances), "pictures differ", Ground.RECOMPUTED)
    if others:
        says = f"{name}: {counted(others, 'picture')} of other shapes than are drawn today; not compared"
        yield Point(Outcome.NOT_COMPARABLE, says)


def beside(folder: Path, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of the tables (*.md) and figures (*.svg) that lie in a folder of records or below."""
    for path in sorted(folder.rglob("*.md")):
        text = _text(path)
        if tables_of_markdown(text):
            made = [table.markdown(records), table.markdown(records, is_wide=True)]
            yield _markdown(path.name, text, made)
    for path in sorted(folder.rglob("*.svg")):
        yield from figure_shown(path, records)


def _markdown(name: str, text: str, made: Sequence[str]) -> Point:
    results = [differing_cells(tables_of_markdown(text), tables_of_markdown(one)) for one in made]
    cells, odd, _ = max(results, key=lambda result: (result[0], -len(result[1])))
    if not cells:
        return Point(Outcome.NOT_COMPARABLE, f"{name}: no table of it is one that these records give")
    good = f"{name}: {counted(cells, 'cell')} made again; 0 differ"
    return verified_or([f"{name}: {one}" for one in odd], good, cells, "cells differ", Ground.RECOMPUTED)


def figure_shown(path: Path, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a figure when it is drawn again."""
    text = _text(path)
    named = _DIGEST.search(text)
    if named is None:
        yield Point(Outcome.NOT_COMPARABLE, f"{path.name}: names no records that it was drawn from")
        return
    if named[0] != bundle.digest(records):
        yield Point(Outcome.NOT_COMPARABLE, f"{path.name}: drawn from other records than those beside it")
        return
    distances = [one for made in _drawings(records).values() if (one := far_apart(text, made)) is not None]
    if not distances:
        yield Point(Outcome.NOT_COMPARABLE, f"{path.name}: of other shapes than are drawn today; not compared")
        return
    nearest = min(distances)
    odd = [f"{path.name} is {nearest:.1f} points from what these records draw"] if nearest > POINTS_APART else []
    yield verified_or(odd, f"{path.name}: drawn again", 1, "pictures differ", Ground.RECOMPUTED)


def _drawings(records: Sequence[Record]) -> Mapping[str, str]:
    """All figures that these records give, by kind."""
    from reports.figures import KINDS, drawing

    found = {}
    for kind in KINDS:
        try:
            found[kind] = drawing(records, "svg", kind).decode("utf-8")
        except ValueError:  # these records give no such figure
            continue
    return found


def _text(path: Path) -> str:
    return contents(path, MOST_SHOWN_BYTES).decode("utf-8", "replace")
