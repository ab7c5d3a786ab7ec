"""A table of text cells, and how it is drawn: as aligned text, by rich on a terminal, as Markdown.

Who makes a sheet decides what its cells say; nothing here knows what they mean.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a sheet: its cells by column, the rich style of those that have one, and the unrounded values of those
    that are figures, by which a page sorts."""

    cells: Mapping[str, str]
    styles: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table under a heading. groups are lines that belong together, set apart by a gap; numeric columns are aligned
    to the right."""

    heading: str
    columns: tuple[str, ...]
    groups: tuple[tuple[Line, ...], ...]
    numeric: frozenset[str] = frozenset()


def text(sheets: Sequence[Sheet], captions: Sequence[str]) -> str:
    """Aligned text without any control characters; sheets with the same columns have the same widths."""
    widths = _widths(sheets)
    lines: list[str] = []
    for sheet in sheets:
        lines += ["", sheet.heading] if lines else [sheet.heading]
        lines.append(_aligned(sheet, dict(zip(sheet.columns, sheet.columns, strict=True)), widths[sheet.columns]))
        for number, group in enumerate(sheet.groups):
            lines += [""] if number else []
            lines += [_aligned(sheet, line.cells, widths[sheet.columns]) for line in group]
    return "\n".join([*lines, *([""] if lines else []), *captions])


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
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    widths = _widths(sheets)
    needed = max((sum(width + 3 for width in some.values()) + 1 for some in widths.values()), default=0)
    # A terminal that is too narrow gets no frame; even so it may have to wrap lines: better than figures that are cut.
    terminal = shutil.get_terminal_size().columns
    framed = needed <= terminal
    width = max(terminal, needed)
    console = Console(force_terminal=True, highlight=False, width=width)
    with console.capture() as captured:
        for sheet in sheets:
            table = Table(
                title=Text(sheet.heading),
                title_justify="left",
                title_style="bold",
                box=box.SIMPLE_HEAD if framed else None,
                padding=(0, 1) if framed else (0, 0, 0, 2),
                collapse_padding=not framed,
            )
            for column in sheet.columns:
                side: Literal["left", "right"] = "right" if column in sheet.numeric else "left"
                table.add_column(column, justify=side, no_wrap=True)
            for number, group in enumerate(sheet.groups):
                if framed:
                    table.add_section()
                elif number:
                    table.add_row()
                for line in group:
                    table.add_row(*(Text(line.cells[name], line.styles.get(name, "")) for name in sheet.columns))
            console.print(table)
            if not framed:
                console.print()
        for caption in captions:
            console.print(Text(caption, style="dim"), soft_wrap=True)
    return captured.get().rstrip("\n")


def _widths(sheets: Sequence[Sheet]) -> dict[tuple[str, ...], dict[str, int]]:
    """The width of each column, for each set of columns."""
    widths: dict[tuple[str, ...], dict[str, int]] = {}
    for sheet in sheets:
        here = widths.setdefault(sheet.columns, {column: len(column) for column in sheet.columns})
        for line in (line for group in sheet.groups for line in group):
            for column in sheet.columns:
                here[column] = max(here[column], len(line.cells[column]))
    return widths


def _aligned(sheet: Sheet, cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    sides = [
        cells[column].rjust(widths[column]) if column in sheet.numeric else cells[column].ljust(widths[column])
        for column in sheet.columns
    ]
    return "  " + "  ".join(sides).rstrip()


def _marked(line: Line, column: str) -> str:
    cell = _escaped(line.cells[column].strip())
    return f"**{cell}**" if cell and "bold" in line.styles.get(column, "") else cell


def _escaped(cell: str) -> str:
    """Text that Markdown shows as it is. Underscores within words mean nothing to it."""
    for character in "\\|*<[":
        cell = cell.replace(character, f"\\{character}")
    return cell
