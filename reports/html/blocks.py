"""What a page is made of: parts with an anchor, and blocks in them. The template knows how each kind is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from reports.table.sheet import Line, Sheet
from reports.table.timed_table import BEST

SIGNS = {
    "PASSED": "✓",
    "WRONG": "✗",
    "REFUSED": "-",
    "FAILED": "!",
    "DEADLOCK": "!",
    "TIMEOUT": "!",
}
"""A sign beside a status, for who sees no colours."""

_CLASSES = {"bold": "strong", "green": "good", "yellow": "caution", "red": "bad", "code": "code", "text": "text"}
"""What a line's styles are in the page: rich's, and code (fixed width) and text (may be broken into lines)."""

LONG = 64
"""Longer cells are broken into lines, whatever their style."""

KEY = "algorithm"
"""The column that stays in sight where a table is wider than the screen."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A sentence that nobody overlooks."""

    kind: ClassVar[str] = "verdict"
    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, one below the other."""

    kind: ClassVar[str] = "notes"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Text in fixed width, as it is."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet, sortable by its columns. links: the anchor that a line's first cell leads to, by its number.

    titles: what stands behind a short text, such as a digest in full, by that text.
    """

    kind: ClassVar[str] = "table"
    sheet: Sheet
    links: Mapping[int, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    heading: bool = True


@dataclass(frozen=True, slots=True)
class Legend:
    """Names beside their swatches (the key of each in the album)."""

    kind: ClassVar[str] = "legend"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures, by their keys in the album, side by side, or below one another where there is no room. wide: one that
    scrolls sideways instead of getting small."""

    kind: ClassVar[str] = "pictures"
    svgs: tuple[str, ...]
    caption: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a part, with an anchor; listed: in the table of contents."""

    kind: ClassVar[str] = "heading"
    anchor: str
    text: str
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are shown when asked for, or until somebody folds them, and always in print."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: tuple[Block, ...]
    is_open: bool = False


Block = Facts | Verdict | Notes | Code | Table | Legend | Pictures | Heading | Fold


@dataclass(frozen=True, slots=True)
class Part:
    """A chapter of the page."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def headings(self) -> tuple[Heading, ...]:
        """Those for the table of contents."""
        return tuple(block for block in self.blocks if isinstance(block, Heading) and block.listed)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as the template draws it. value: what it is sorted by, "" for its text."""

    text: str
    value: str
    classes: str
    title: str
    link: str


def drawn(table: Table) -> list[list[Cell]]:
    """The lines of a table."""
    lines: list[list[Cell]] = []
    for group in table.sheet.groups:
        for line in group:
            link = table.links.get(len(lines), "")
            lines.append([_cell(table, line, column, link) for column in table.sheet.columns])
    return lines


def shades(table: Table) -> list[str]:
    """A class for each line: lines of one group have the same shade, neighbouring groups another."""
    return [("", "shade")[number % 2] for number, group in enumerate(table.sheet.groups) for _ in group]


def _cell(table: Table, line: Line, column: str, link: str) -> Cell:
    text = line.cells[column].strip()
    classes = [_CLASSES[word] for word in line.styles.get(column, "").split() if word in _CLASSES]
    if column == KEY:
        classes.append("key")
    if len(text) > LONG and "text" not in classes:
        classes.append("text")
    value = ""
    if column in table.sheet.numeric:
        classes.append("n")
        value = _value(line, column, text)
        if text.endswith(f" {BEST}"):  # before the figure, so that figures stay in line
            text = f"{BEST} {text.removesuffix(BEST).rstrip()}"
    sign = SIGNS.get(text.partition(" ")[0], "")
    text = f"{sign} {text}" if sign else text
    link = link if column == table.sheet.columns[0] else ""
    return Cell(text, value, " ".join(classes), table.titles.get(text, ""), link)


def _value(line: Line, column: str, text: str) -> str:
    """The figure that a cell is sorted by: unrounded where the line has it, else what its text says, "" for none."""
    if column in line.raw:
        return repr(line.raw[column])
    try:
        return repr(float(text.strip(f" {BEST}%").replace(",", "")))
    except ValueError:
        return ""
