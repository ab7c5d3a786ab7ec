"""The one table at the end of a command: a line a case, in the order of the records, under a heading for each job.

On a terminal it is drawn by rich; everywhere else, and for tests, it is aligned plain text. A case that ran without a
check is shown as unchecked. A simulated fabric is named below the table, which holds no times and no bandwidths.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reports.record import Record, Status

_SHOWN = ("op", "algorithms", "dtype", "accumulator", "reduction", "world_size", "sizes", "placement", "inputs")
"""Keys whose values a heading or a line says anyway."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NUMERIC = frozenset({"size", "wrong", "max abs error", "max ulp", "PTX instr (M)"})
_STYLES = {Status.PASSED: "green", Status.REFUSED: "yellow"}


@dataclass(frozen=True, slots=True)
class Section:
    """A job's part of the table: its heading and its records."""

    heading: str
    records: tuple[Record, ...]


def console_table(records: Sequence[Record], styled: bool | None = None) -> str:
    """The table as text to be printed. styled: drawn by rich with colours; left out, that is so on a terminal only."""
    if styled is None:
        styled = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return _drawn(records) if styled else plain(records)


def plain(records: Sequence[Record]) -> str:
    """The table as aligned text without any control characters."""
    columns = _columns(records)
    widths = _widths(records, columns)
    numbers = notes(records)
    lines: list[str] = []
    for section in sections(records):
        lines += ["", section.heading] if lines else [section.heading]
        rows = [list(columns), *([_cells(record, numbers)[column] for column in columns] for record in section.records)]
        for row in rows:
            cells = [
                text.rjust(width) if column in _NUMERIC else text.ljust(width)
                for column, text, width in zip(columns, row, widths, strict=True)
            ]
            lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*lines, *([""] if lines else []), *captions(records)])


def sections(records: Sequence[Record]) -> list[Section]:
    """Records by what a job fixes (op, dtype, accumulator, reduction, world size, inputs), in order of appearance."""
    differing = varying([record.request.get("overrides", ()) for record in records])
    found: dict[str, list[Record]] = {}
    for record in records:
        overrides = [one for one in record.request.get("overrides", ()) if one in differing and not _is_shown(one)]
        found.setdefault(", ".join([_heading(record), *overrides]), []).append(record)
    return [Section(heading, tuple(members)) for heading, members in found.items()]


def varying(overrides: Iterable[Sequence[str]]) -> frozenset[str]:
    """The overrides that some jobs have and others have not: what tells the jobs of a sweep apart."""
    jobs = {frozenset(one) for one in overrides}
    return frozenset().union(*jobs) - frozenset.intersection(*jobs) if jobs else frozenset()


def _is_shown(override: str) -> bool:
    return override.lstrip("+").partition("=")[0].partition(".")[0] in _SHOWN


def notes(records: Sequence[Record]) -> dict[str, int]:
    """The reasons of cases that did not pass, each once, numbered from 1 in order of appearance."""
    reasons = dict.fromkeys(filter(None, map(_reason, records)))
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def captions(records: Sequence[Record]) -> list[str]:
    """What must be said below the table: why cases did not pass, what was counted, and which fabric ran it."""
    lines = [f"[{number}] {reason}" for reason, number in notes(records).items()]
    if any(instruction_count(record) is not None for record in records):
        lines.append("PTX instr: instructions times threads, summed over all ranks and all launches, in millions (M)")
    fabrics = {record.fabric.name: record.fabric for record in records if record.fabric is not None}
    for fabric in fabrics.values():
        if fabric.simulated:
            lines.append(
                f"fabric: {fabric.name} ({fabric.arch}), simulated: results and counts of executed instructions are "
                "those of the PTX; times and bandwidths do not exist"
            )
        else:
            lines.append(f"fabric: {fabric.name} ({fabric.arch})")
    if any(record.status is Status.PASSED and not record.verified for record in records):
        lines.append("unchecked: ran to its end, and nobody looked at the result")
    return lines


def size_text(size_bytes: int) -> str:
    """A size in the largest binary unit that says it exactly with at most one decimal: 1.5 KiB, 1 MiB, 1001 B."""
    for power in range(len(_UNITS) - 1, 0, -1):
        unit = 1024**power
        if size_bytes >= unit and size_bytes * 10 % unit == 0:
            return f"{size_bytes / unit:.10g} {_UNITS[power]}"
    return f"{size_bytes} B"


def instruction_count(record: Record) -> int | None:
    """PTX instructions executed, all lanes of all ranks, as the fabric counted them; None where nobody counted."""
    count = record.counters.get("instructions")
    return count if isinstance(count, int) and count > 0 else None


def _heading(record: Record) -> str:
    case = record.case
    size = case["world_size"]
    parts = [f"{case['op']} {case['dtype']}"]
    parts += [f"accumulator {case['accumulator']}"] if "accumulator" in case else []
    parts += [str(case["reduction"])] if "reduction" in case else []
    parts += [f"{size} rank{'' if size == 1 else 's'}"]
    parts += [f"{case['inputs']} inputs"] if "inputs" in case else []
    return ", ".join(parts)


def _columns(records: Sequence[Record]) -> list[str]:
    """The columns that say something: placement only where it differs."""
    columns = ["algorithm", "size", "status", "wrong", "max abs error", "max ulp", "check", "PTX instr (M)"]
    if len({record.case.get("placement") for record in records}) > 1:
        columns.insert(1, "placement")
    return columns


def _cells(record: Record, numbers: Mapping[str, int]) -> dict[str, str]:
    check, count = record.check, instruction_count(record)
    unchecked = record.status is Status.PASSED and not record.verified
    remark = " (unchecked)" if unchecked else ""
    if reason := _reason(record):
        remark = f" [{numbers[reason]}]"
    return {
        "algorithm": str(record.case["algorithm"]),
        "placement": str(record.case.get("placement", "")),
        "size": size_text(int(record.case["size_bytes"])),
        "status": f"{record.status}{remark}",
        "wrong": str(check.wrong) if check else "-",
        "max abs error": _number(check.max_absolute_error) if check else "-",
        "max ulp": str(check.max_ulp_error) if check else "-",
        "check": check.method if check else "-",
        "PTX instr (M)": f"{count / 1e6:.3f}" if count else "-",
    }


def _reason(record: Record) -> str:
    """Why it did not pass, on one line; "" where it did."""
    if record.status is Status.PASSED:
        return ""
    text = record.reason or "; ".join(record.check.faults if record.check else ())
    return " ".join(text.split())


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def _widths(records: Sequence[Record], columns: Sequence[str]) -> list[int]:
    numbers = notes(records)
    rows = [_cells(record, numbers) for record in records]
    return [max(len(column), *(len(row[column]) for row in rows)) for column in columns] if rows else []


def _drawn(records: Sequence[Record]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = _columns(records)
    numbers = notes(records)
    needed = sum(width + 3 for width in _widths(records, columns))
    # a terminal that is too narrow wraps the lines: better than figures that are cut
    width = max(shutil.get_terminal_size().columns, needed)
    console = Console(force_terminal=True, highlight=False, width=width)
    with console.capture() as captured:
        for section in sections(records):
            table = Table(title=Text(section.heading), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
            for column in columns:
                side: Literal["left", "right"] = "right" if column in _NUMERIC else "left"
                table.add_column(column, justify=side, no_wrap=True)
            for record in section.records:
                style = "yellow" if record.status is Status.PASSED and not record.verified else None
                style = style or _STYLES.get(record.status, "bold red")
                cells = _cells(record, numbers)
                table.add_row(*(Text(cells[name], style=style if name == "status" else "") for name in columns))
            console.print(table)
        for line in captions(records):
            console.print(Text(line, style="dim"), soft_wrap=True)
    return captured.get().rstrip("\n")
