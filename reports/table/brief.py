"""A command's records in few lines, for where their table would be long: how many cases ended how, the worst error, the
best time. A line for each series (an algorithm of a job); of many, a line for each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cases.gathered import gathered
from cases.record.record import Record, Status
from reports.table import races
from reports.table.compare import Section
from reports.table.sheet import Line, Sheet
from reports.table.table import Render, rendering, sections
from reports.table.text import MAX_LINES, counted, is_long, number, place_text, span_text

_COLUMNS = (
    *("sizes", "cases", "passed", "refused", "wrong", "failed", "findings", "max ulp", "max abs error"),
    *("best time (us)", "best busbw (GB/s)"),
)
_ALWAYS = frozenset({"sizes", "cases", "passed"})
_SPARE = ("sizes", "max abs error", "cases", "best busbw (GB/s)", "max ulp", "best time (us)")


def text(records: Sequence[Record], render: Render | None = None) -> str:
    """A line for each series, if these are at most MAX_LINES lines; else for each kernel, at any length."""
    draw = render or rendering()
    sheets = _by_series(sections(records))
    count = sum(len(group) for sheet in sheets for group in sheet.groups)
    if count <= MAX_LINES and not is_long(drawn := draw(sheets, _captions(sheets))):
        return drawn
    sheets = by_kernel(records)
    return draw(sheets, _captions(sheets))


def _by_series(jobs: Sequence[Section]) -> list[Sheet]:
    """A sheet for each job, a line for each algorithm and placement."""
    return _sheets(
        [(job.heading, "algorithm", gathered((_contestant(one), one) for one in job.records)) for job in jobs]
    )


def by_kernel(records: Sequence[Record]) -> list[Sheet]:
    """Return a sheet with a line for each kernel and library."""
    return _sheets([(counted(len(records), "case"), "kernel", gathered((one.case.name, one) for one in records))])


def _contestant(record: Record) -> str:
    inside = f" ({place_text(record.case.placement)})" if record.case.placement != "out_of_place" else ""
    return f"{record.case.algorithm}{inside}"


def _sheets(made: Sequence[tuple[str, str, Mapping[str, Sequence[Record]]]]) -> list[Sheet]:
    """Sheets of (heading, name of the first column, records of each line by its name); columns are there only where
    some line has a value."""
    values = [list(map(_values, parts.values())) for _, _, parts in made]
    told = {column for some in values for one in some for column, value in one.items() if value not in ("0", "-")}
    columns = tuple(column for column in _COLUMNS if column in told | _ALWAYS)
    sheets = []
    for (heading, first, parts), some in zip(made, values, strict=True):
        lines = tuple(
            Line({first: name, **{column: one[column] for column in columns}}, _styles(one))
            for name, one in zip(parts, some, strict=True)
        )
        numeric = frozenset(columns) - {"sizes"}
        sheets.append(Sheet(heading, (first, *columns), (lines,), numeric, _SPARE))
    return sheets


def _values(records: Sequence[Record]) -> dict[str, str]:
    statuses = [record.status for record in records]
    checks = [record.check for record in records if record.check is not None]
    timed = [(record.timing, record.case.size_bytes) for record in records if record.timing is not None]
    from reports.table.timed_table import time_text

    settled = (Status.PASSED, Status.REFUSED, Status.WRONG)
    rates = [timing.busbw_gbps(size) for timing, size in timed if timing.has_bandwidth]
    return {
        "sizes": span_text(records),
        "cases": f"{len(records):,}",
        "passed": f"{statuses.count(Status.PASSED):,}",
        "refused": f"{statuses.count(Status.REFUSED):,}",
        "wrong": f"{statuses.count(Status.WRONG):,}",
        "failed": f"{sum(status not in settled for status in statuses):,}",
        "findings": races.number(records),
        "max ulp": f"{max(check.max_ulp_error for check in checks):,}" if checks else "-",
        "max abs error": number(max(check.max_absolute_error for check in checks)) if checks else "-",
        "best time (us)": time_text(min(timing.median_us for timing, _ in timed)) if timed else "-",
        "best busbw (GB/s)": f"{max(rates):.2f}" if rates else "-",
    }


def _styles(values: dict[str, str]) -> dict[str, str]:
    return {column: "bold red" for column in ("wrong", "failed") if values[column] != "0"}


def _captions(sheets: Sequence[Sheet]) -> list[str]:
    columns = {column for sheet in sheets for column in sheet.columns}
    lines = ["max ulp, max abs error: the largest error of all cases"] if "max ulp" in columns else []
    if "failed" in columns:
        lines.append("failed: FAILED, DEADLOCK or TIMEOUT")
    if "findings" in columns:
        lines.append("findings: what the race checker found in all cases; -: not checked")
    if "best time (us)" in columns:
        lines.append("best time, best busbw: of the sizes together; each may be of another size")
    return lines
