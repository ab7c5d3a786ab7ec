"""The average bus bandwidth, as nccl-tests prints it below its table, and commands below what they asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from cases.record.record import Record
from reports.table.compare import Row

OURS = "ours"
KEY = "timing.min_busbw_gbps"


def averages(rows: Iterable[Row]) -> dict[str, tuple[float, int]]:
    """Return the mean busbw in GB/s, and of how many rows it is: of our kernels, and of each library."""
    found: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: not row.is_ours):
        if (busbw_gbps := row.figure("busbw_gbps")) is not None:
            found.setdefault(OURS if row.is_ours else row.algorithm.split("/")[0].split()[0], []).append(busbw_gbps)
    return {name: (fmean(some), len(some)) for name, some in found.items()}


def lines(rows: Iterable[Row]) -> list[str]:
    """Return the line for below a table; none if no row has a bandwidth."""
    found = averages(rows).items()
    said = [f"{name} {busbw_gbps:.2f} ({count})" for name, (busbw_gbps, count) in found if busbw_gbps]
    meaning = "GB/s, the mean of busbw over all sizes and algorithms, in parentheses their number"
    return [f"Avg bus bandwidth: {', '.join(said)} {meaning}"] if said else []


def too_slow(records: Sequence[Record]) -> str:
    """Return which average is below what the records' commands ask for (timing.min_busbw_gbps); "" if none is.

    It is that of our kernels, and of the libraries where only they were timed.
    """
    by_least: dict[float, list[Row]] = {}
    for record in records:
        timing = (record.request.configuration or {}).get("timing")
        least = timing.get("min_busbw_gbps") if isinstance(timing, dict) else None
        if isinstance(least, (int, float)) and record.timing is not None:
            by_least.setdefault(least, []).append(Row((record,)))
    for least, rows in by_least.items():
        found = averages([row for row in rows if row.is_ours] or rows)
        for name, (busbw_gbps, _) in found.items():
            if busbw_gbps < least:
                return f"the average bus bandwidth of {name} is {busbw_gbps:.2f} GB/s, below {least:g} ({KEY})"
    return ""
