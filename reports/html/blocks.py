"""What a page consists of: parts, each with an anchor, and blocks in them. The template draws each kind of block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""The sign shown beside a status, for readers who do not see colours."""

_CLASSES = {"bold": "strong", "green": "good", "yellow": "caution", "red": "bad", "code": "code", "text": "text"}
"""CSS classes of a line's styles: those of rich, code (fixed width) and text (may be broken into lines)."""

LONG = 64
"""Maximum number of characters of an unbroken cell; longer ones are broken into lines, whatever their style."""

FIRST = ("size", "size (B)", "algorithm", "fastest", "least error", "time (us)")
"""The columns that come first, as far as a table has them: a narrow screen shows these, and the first one stays."""


MANY_LINES = 24
"""Number of lines of a part's tables above which it is shown folded."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A prominent sentence."""

    kind: ClassVar[str] = "verdict"
    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, one below the other."""

    kind: ClassVar[str] = "notes"
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Unchanged text in fixed width."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A sheet, sortable by its columns."""

    kind: ClassVar[str] = "table"
    sheet: Sheet
    heading: bool = True


def table_of(name: str, lines: Sequence[Line]) -> Table:
    """Return a table without a heading: its columns are the cells of its first line, and those with figures numeric."""
    numeric = frozenset(column for line in lines for column in line.raw)
    return Table(Sheet(name, tuple(lines[0].cells), (tuple(lines),), numeric), heading=False)


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures, by their keys in the Album, side by side, or one below the other on a narrow screen. legend: names with
    their swatches (keys in the Album), above the pictures."""

    kind: ClassVar[str] = "pictures"
    svgs: tuple[str, ...]
    caption: str
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a part, with an anchor; listed: in the table of contents."""

    kind: ClassVar[str] = "heading"
    anchor: str
    text: str
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Side:
    """Blocks beside others, or above them on a narrow screen."""

    kind: ClassVar[str] = "side"
    left: tuple[Block, ...]
    right: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that the reader folds and unfolds; printed unfolded."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: tuple[Block, ...]


Block = Facts | Verdict | Notes | Code | Table | Pictures | Heading | Side | Fold


@dataclass(frozen=True, slots=True)
class Part:
    """A chapter of the page."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def groups(self) -> tuple[tuple[Heading | None, tuple[Block, ...]], ...]:
        """The blocks below each listed heading, with it; None: those before the first one."""
        found: list[tuple[Heading | None, list[Block]]] = [(None, [])]
        for block in self.blocks:
            if isinstance(block, Heading) and block.listed:
                found.append((block, []))
            else:
                found[-1][1].append(block)
        return tuple((heading, tuple(blocks)) for heading, blocks in found if heading or blocks)

    @property
    def is_folded(self) -> bool:
        """Whether groups but the first one are shown folded: where there are several, with many lines together."""
        lines = sum(len(group) for block in self.blocks if isinstance(block, Table) for group in block.sheet.groups)
        return len(self.headings) > 1 and lines > MANY_LINES

    @property
    def headings(self) -> tuple[Heading, ...]:
        """The headings for the table of contents."""
        return tuple(block for block in self.blocks if isinstance(block, Heading) and block.listed)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as the template draws it. value: the sort key, "" to sort by the text."""

    text: str
    value: str
    classes: str


def columns_of(table: Table) -> list[str]:
    """Return the columns of a table in their order, those of FIRST before the others if it has sizes."""
    columns = list(table.sheet.columns)
    if not set(columns) & set(FIRST[:2]):
        return columns
    first = [column for column in FIRST if column in columns]
    return [*first, *(column for column in columns if column not in first)]


def drawn(table: Table) -> list[list[Cell]]:
    """Return the cells of a table, line by line."""
    columns = columns_of(table)
    return [[_cell(table, line, column) for column in columns] for group in table.sheet.groups for line in group]


def shades(table: Table) -> list[str]:
    """Return a CSS class for each line: lines of one group share a shade, and the next group has the other one."""
    return [("", "shade")[number % 2] for number, group in enumerate(table.sheet.groups) for _ in group]


def _cell(table: Table, line: Line, column: str) -> Cell:
    text = line.cells[column].strip()
    classes = [_CLASSES[word] for word in line.styles.get(column, "").split() if word in _CLASSES]
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
    return Cell(text, value, " ".join(classes))


def _value(line: Line, column: str, text: str) -> str:
    """Return the sort key of a numeric cell: the unrounded figure if the line has it, else its text's, else ""."""
    if column in line.raw:
        return repr(line.raw[column])
    try:
        return repr(float(text.strip(f" {BEST}%").replace(",", "")))
    except ValueError:
        return ""
