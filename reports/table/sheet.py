"""A table of text cells, and how it is drawn: as aligned text, by rich on a terminal, as Markdown.

Who makes a sheet decides what its cells say; nothing here knows what they mean.
"""

from __future__ import annotations

import html
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

LEAST_ROOM = 20
"""Characters of a line that are always assumed: below, words would be cut to pieces."""


Formats = Mapping[str, Callable[[Any], str]]
"""By column: what writes its values."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a sheet: its cells by column, the rich style of those that have one, and the unrounded values of those
    that are figures, by which a page sorts."""

    cells: Mapping[str, str]
    styles: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, float] = field(default_factory=dict)


def line_of(
    values: Mapping[str, Any],
    formats: Formats | None = None,
    styles: Mapping[str, str] | None = None,
) -> Line:
    """A line of values by column: as a column's format writes them, whole numbers in thousands, all else as it is, and
    None as "-"."""
    known = {column: value for column, value in values.items() if value is not None}
    cells = {
        column: formats[column](value) if formats and column in formats else _written(value)
        for column, value in known.items()
    }
    raw = {column: value for column, value in known.items() if isinstance(value, int | float)}
    return Line(dict.fromkeys(values, "-") | cells, styles or {}, raw)


def _written(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table under a heading. groups are lines that belong together, set apart by a gap; numeric columns are aligned
    to the right. spare: the columns that may be hidden where a line has no room for all, the first one first."""

    heading: str
    columns: tuple[str, ...]
    groups: tuple[tuple[Line, ...], ...]
    numeric: frozenset[str] = frozenset()
    spare: tuple[str, ...] = ()


class Audit(Protocol):
    """What is shown of an audit: a verdict of one line, tables, and their captions."""

    @property
    def verdict(self) -> str: ...

    @property
    def sheets(self) -> Sequence[Sheet]: ...

    @property
    def captions(self) -> Sequence[str]: ...


def text(sheets: Sequence[Sheet], captions: Sequence[str], width: int | None = None) -> str:
    """Aligned text without any control characters; sheets with the same columns have the same widths.

    width: the maximum number of characters of a line, see room_here; None for any number. Where a table is wider,
    columns are hidden as far as the sheet permits, and a last line names them. Headings and captions are wrapped.
    """
    return "\n".join(map(_plain, _lines(sheets, captions, width)))


def one_here(heading: str, rows: Sequence[Mapping[str, str]], numeric: Iterable[str]) -> str:
    """Return the text of one table of rows, cells by column, no wider than a line is here."""
    lines = tuple(map(Line, rows))
    return text([Sheet(heading, tuple(rows[0]), (lines,), frozenset(numeric))], [], room_here()).rstrip()


def markdown(sheets: Sequence[Sheet], captions: Sequence[str]) -> str:
    """Tables as GitHub shows them; a cell whose style is bold is bold. Ends without a newline."""
    parts = []
    for sheet in sheets:
        rule = ["---:" if column in sheet.numeric else "---" for column in sheet.columns]
        rows = [list(map(_escaped, sheet.columns)), rule]
        for line in (line for group in sheet.groups for line in group):
            rows.append([_marked(line, column) for column in sheet.columns])
        parts.append("\n".join([f"**{_escaped(sheet.heading)}**", "", *(f"| {' | '.join(row)} |" for row in rows)]))
    if captions:
        parts.append("\n".join(f"- {_escaped(caption)}" for caption in captions))
    return "\n\n".join(parts)


def drawn(sheets: Sequence[Sheet], captions: Sequence[str]) -> str:
    """The same for a terminal, with colours, by rich."""
    from rich.console import Console
    from rich.text import Text

    width = room_here() or shutil.get_terminal_size().columns
    console = Console(force_terminal=True, highlight=False, width=width)
    with console.capture() as captured:
        for line in _lines(sheets, captions, width):
            console.print(Text.assemble(*line), soft_wrap=True)
    return captured.get().rstrip("\n")


def room_here() -> int | None:
    """Return the number of characters that a line of stdout holds: COLUMNS if it is set, else the terminal's; None
    where stdout is no terminal."""
    said = os.environ.get("COLUMNS", "")
    if not (said.isascii() and said.isdecimal() and int(said)) and not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, LEAST_ROOM)


def wrapped(line: str, width: int | None) -> list[str]:
    """Return a line as lines of at most width characters, indented further from the second on."""
    if width is None or len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


_Piece = tuple[str, str]
"""A part of a line: its text, and its rich style or ""."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How sheets with the same columns are drawn: what is shown and hidden, how wide, and whether it is stacked.

    needed: the width of a line with all columns.
    """

    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    widths: Mapping[str, int]
    needed: int
    margin: str = "  "
    gap: str = "  "


def _layout(columns: tuple[str, ...], widths: Mapping[str, int], spare: Sequence[str], width: int | None) -> _Layout:
    """Return the layout that shows most: first narrower gaps, then without one spare column after the other."""

    def taken(some: Sequence[str], margin: int, gap: int) -> int:
        return margin + sum(widths[column] for column in some) + gap * (len(some) - 1)

    needed = taken(columns, 2, 2)
    spare = [column for column in spare if column in columns]
    for count in range(len(spare) + 1):
        hidden = tuple(column for column in columns if column in spare[:count])
        shown = tuple(column for column in columns if column not in hidden)
        for margin, gap in ((2, 2), (0, 1)):
            if width is None or taken(shown, margin, gap) <= width:
                return _Layout(shown, hidden, widths, needed, " " * margin, " " * gap)
    return _Layout(shown, hidden, widths, needed, "", " ")


def _hidden(layouts: Iterable[_Layout], width: int | None) -> list[str]:
    """A line that names the columns that are hidden, and what shows them; none if there are no such columns."""
    hiding = [layout for layout in layouts if layout.hidden]
    if not hiding:
        return []
    names = dict.fromkeys(column for layout in hiding for column in layout.hidden)
    needed = max(layout.needed for layout in hiding)
    return [f"hidden, as a line has {width} characters: {', '.join(names)}; COLUMNS={needed} shows them"]


def _lines(sheets: Sequence[Sheet], captions: Sequence[str], width: int | None) -> list[list[_Piece]]:
    """The lines of sheets, an empty one below each, and of captions."""
    spare = {sheet.columns: sheet.spare for sheet in sheets}
    layouts = {columns: _layout(columns, widths, spare[columns], width) for columns, widths in _widths(sheets).items()}
    lines: list[list[_Piece]] = []
    for sheet in sheets:
        heading = [[(line, "bold")] for line in wrapped(sheet.heading, width)]
        lines += [*heading, *_body(sheet, layouts[sheet.columns]), []]
    said = [*captions, *_hidden(layouts.values(), width)]
    return [*lines, *([(line, "dim")] for one in said for line in wrapped(one, width))]


def _body(sheet: Sheet, layout: _Layout) -> list[list[_Piece]]:
    """The lines of a sheet below its heading."""
    names = {column: column for column in sheet.columns}
    lines = [_aligned(sheet, layout, Line(names, dict.fromkeys(names, "bold")))]
    for number, group in enumerate(sheet.groups):
        lines += [[]] if number else []
        lines += [_aligned(sheet, layout, line) for line in group]
    return lines


def _plain(line: Sequence[_Piece]) -> str:
    return "".join(text for text, _ in line).rstrip()


def _aligned(sheet: Sheet, layout: _Layout, line: Line) -> list[_Piece]:
    pieces: list[_Piece] = []
    for column in layout.shown:
        cell, width = line.cells[column], layout.widths[column]
        text = cell.rjust(width) if column in sheet.numeric else cell.ljust(width)
        if column == layout.shown[-1]:
            text = text.rstrip()
        pieces += [(layout.gap if pieces else layout.margin, ""), (text, line.styles.get(column, ""))]
    return pieces


def _widths(sheets: Sequence[Sheet]) -> dict[tuple[str, ...], dict[str, int]]:
    """The width of each column, for each set of columns."""
    widths: dict[tuple[str, ...], dict[str, int]] = {}
    for sheet in sheets:
        here = widths.setdefault(sheet.columns, {column: len(column) for column in sheet.columns})
        for line in (line for group in sheet.groups for line in group):
            for column in sheet.columns:
                here[column] = max(here[column], len(line.cells[column]))
    return widths


def _marked(line: Line, column: str) -> str:
    cell = _escaped(line.cells[column].strip())
    return f"**{cell}**" if cell and "bold" in line.styles.get(column, "") else cell


def _escaped(cell: str) -> str:
    """Text that Markdown shows as it is, in one line: no mark-up of its own and none of HTML, in every renderer.
    Underscores within words mean nothing to it."""
    cell = " ".join(cell.splitlines())
    for character in "\\|*[":
        cell = cell.replace(character, f"\\{character}")
    return html.escape(cell, quote=False)
