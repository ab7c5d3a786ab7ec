"""A command's records in few lines, for where their table would be long: for each kernel and library how many cases
ended how, the worst error, the best time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cases.gathered import gathered
from cases.record.record import Record, Status
from reports.table import races
from reports.table.sheet import Line, Sheet
from reports.table.table import Render, rendering
from reports.table.text import counted, number, span_text

_COLUMNS = (
    *("sizes", "cases", "passed", "refused", "wrong", "failed", "findings", "max ulp", "max abs error"),
    *("best time (us)", "best busbw (GB/s)"),
)
_ALWAYS = frozenset({"sizes", "cases", "passed"})
_SPARE = ("sizes", "max abs error", "cases", "best busbw (GB/s)", "max ulp", "best time (us)")


def text(records: Sequence[Record], render: Render | None = None) -> str:
    """A line for each kernel and library."""
    sheet = by_kernel(records)
    return (render or rendering())([sheet], _captions(sheet.columns))


def by_kernel(records: Sequence[Record]) -> Sheet:
    """Return a sheet with a line for each kernel and library; columns are there only where some line has a value."""
    found = {name: _values(own) for name, own in gathered((one.case.name, one) for one in records).items()}
    told = {column for one in found.values() for column, value in one.items() if value not in ("0", "-")}
    columns = tuple(column for column in _COLUMNS if column in told | _ALWAYS)
    lines = tuple(
        Line({"kernel": name, **{column: one[column] for column in columns}}, _styles(one))
        for name, one in found.items()
    )
    return Sheet(counted(len(records), "case"), ("kernel", *columns), (lines,), frozenset(columns) - {"sizes"}, _SPARE)


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


def _captions(columns: Iterable[str]) -> list[str]:
    columns = set(columns)
    lines = ["max ulp, max abs error: the largest error of all cases"] if "max ulp" in columns else []
    if "failed" in columns:
        lines.append("failed: FAILED, DEADLOCK or TIMEOUT")
    if "findings" in columns:
        lines.append("findings: what the race checker found in all cases; -: not checked")
    if "best time (us)" in columns:
        lines.append("best time, best busbw: of the sizes together; each may be of another size")
    return lines
