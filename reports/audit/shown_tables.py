"""Tables as people see them, of Markdown, CSV and plain text, compared row by row whatever was added."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Row = tuple[str, ...]

_HEADS = ("size ", "algorithm ", "world ")
"""How the heads of plain tables begin."""


@dataclass(slots=True)
class Grid:
    """A table: the texts of its cells, by row; the first row is its head. heading: what stands above it."""

    rows: list[Row] = field(default_factory=list)
    heading: str = ""


@dataclass(slots=True)
class Compared:
    """What came of tables: the number of cells that are alike, a sentence for each row that differs or is more than
    there are, the rows that are missing, and the heads of tables that nothing here gives."""

    cells: int = 0
    odd: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def compare_tables(shown: Sequence[Grid], made: Sequence[Grid]) -> Compared:
    """Compare all rows of tables. A table is compared with that of its caption and head, else with all of its head."""
    found = Compared()
    left = list(made)
    pairs: list[tuple[list[Grid], list[Grid]]] = []
    others: dict[Row, list[Grid]] = {}
    for grid in shown:
        same = [one for one in left if one.rows[0] == grid.rows[0] and one.heading == grid.heading]
        if same:
            nearest = max(same, key=lambda one: len(set(one.rows) & set(grid.rows)))
            left.remove(nearest)
            pairs.append(([grid], [nearest]))
        else:
            others.setdefault(grid.rows[0], []).append(grid)
    for head, grids in others.items():
        wanted = [one for one in left if one.rows[0] == head]
        if not wanted and all(one.rows[0] != head for one in made):
            found.unknown += [_title(grid) for grid in grids]
            continue
        left = [one for one in left if one not in wanted]
        pairs.append((grids, wanted))
    for grids, wanted in pairs:
        _compare_rows(grids[0].rows[0], _rows(grids), _rows(wanted), found)
    found.missing += [f"the table {_title(grid)}" for grid in left]
    return found


def _title(grid: Grid) -> str:
    return f"'{(grid.heading or ', '.join(grid.rows[0]))[:60]}'"


def _rows(grids: Sequence[Grid]) -> list[Row]:
    return [row for grid in grids for row in grid.rows[1:]]


def _compare_rows(head: Row, shown: Sequence[Row], made: Sequence[Row], found: Compared) -> None:
    more = Counter(shown) - Counter(made)
    less = list((Counter(made) - Counter(shown)).elements())
    found.cells += sum(map(len, shown)) - sum(map(len, more.elements()))
    for row in more.elements():
        if not less:
            found.odd.append(f"a row more than there are: {_row_text(row)}")
            continue
        nearest = max(less, key=lambda one: sum(a == b for a, b in zip(one, row, strict=False)))
        less.remove(nearest)
        found.odd += _apart(head, row, nearest)
    found.missing += [f"the row {_row_text(row)}" for row in less]


def _row_text(row: Row) -> str:
    return f"'{' | '.join(row)[:60]}'"


def _apart(head: Row, row: Row, wanted: Row) -> Iterator[str]:
    if len(row) != len(wanted):
        yield f"the line of {wanted[0]} has {len(row)} cells, the records give {len(wanted)}"
        return
    for column, cell, right in zip(head, row, wanted, strict=False):
        if cell != right:
            yield f"{column or 'a cell'} of {' '.join(wanted[:2])} is '{cell[:40]}', the records give '{right[:40]}'"


def tables_of_markdown(text: str) -> tuple[list[Grid], list[str]]:
    """Return the tables of a Markdown text, each with the heading before it, and its other lines."""
    grids: list[Grid] = []
    others: list[str] = []
    is_within = False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_within = False
            others += [line.strip()] if line.strip() else []
            continue
        if not is_within:
            grids.append(Grid(heading=others[-1].lstrip("# ") if others and others[-1].startswith("#") else ""))
        is_within = True
        cells = tuple(cell.strip() for cell in line.strip("|").split(" | "))
        if not all(re.fullmatch(":?-+:?", cell.strip("| ")) for cell in cells):
            grids[-1].rows.append(cells)
    return [grid for grid in grids if grid.rows], others


def table_of_csv(text: str) -> tuple[list[Grid], list[str]]:
    """Return the table of a CSV text as a list of one, of none if it can't be read; and no other lines."""
    try:
        rows = [tuple(row) for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error:
        rows = []
    return ([Grid(rows)] if rows else []), []


def tables_of_text(text: str) -> tuple[list[Grid], list[str]]:
    """Return the tables of a plain text, a line a row of one cell with single blanks, and its other lines."""
    grids: list[Grid] = []
    others: list[str] = []
    is_within = False
    for line in text.splitlines():
        words = " ".join(line.split())
        if words.startswith(_HEADS):
            grids.append(Grid([(words,)], others[-1] if others else ""))
            is_within = True
        elif is_within and words:
            grids[-1].rows.append((words,))
        else:
            is_within = False
            others += [words] if words else []
    return grids, others


def other_numbers(more: Counter[str], less: Counter[str]) -> Iterator[str]:
    """Yield a sentence for each text that differs from one of ours in numbers only, and take it out of more."""
    wanted: dict[str, list[str]] = {}
    for one in less.elements():
        wanted.setdefault(re.sub("[0-9]+", "#", one), []).append(one)
    for one in list(more.elements()):
        others = wanted.get(re.sub("[0-9]+", "#", one), [])
        if others and re.search("[0-9]", one) and not one.endswith(" sections"):
            yield f"it says '{one[:60]}', the records give '{others.pop(0)[:60]}'"
            more[one] -= 1
