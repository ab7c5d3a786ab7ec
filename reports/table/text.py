"""How figures, sizes and reasons are written down, the same in every table and picture; and values for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from cases.record.record import Record, Status

MAX_LINES = 60
"""Maximum number of lines of a table that a command prints at its end."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: int) -> str:
    """A size in the largest binary unit that says it exactly with at most one decimal: 1.5 KiB, 1 MiB, 1001 B."""
    for power in range(len(_UNITS) - 1, 0, -1):
        unit = 1024**power
        if size_bytes >= unit and size_bytes * 10 % unit == 0:
            return f"{size_bytes / unit:.10g} {_UNITS[power]}"
    return f"{size_bytes} B"


def span_text(records: Iterable[Record]) -> str:
    """Return the size of records, or the smallest and the largest: "1 KiB to 4 MiB"."""
    sizes = sorted({record.case.size_bytes for record in records})
    return " to ".join(map(size_text, dict.fromkeys((sizes[0], sizes[-1]))))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 case", "2,000 cases". The noun's plural ends in s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def place_text(placement: str) -> str:
    """A placement in words: "out of place"."""
    return placement.replace("_", " ")


def number(value: float) -> str:
    """Three digits; NaN and infinity by their names."""
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def reason_of(record: Record) -> str:
    """Why it did not pass, on one line; "" where it did."""
    if record.status is Status.PASSED:
        return ""
    text = record.reason or "; ".join(record.check.faults if record.check else ())
    return " ".join(text.split())


def late_text(record: Record) -> str:
    """What stands for the time of a library that did not finish: "> 60 s", more than the command's deadline_s. "" for
    any other record."""
    if not record.is_late_library:
        return ""
    deadline_s = (record.request.configuration or {}).get("deadline_s")
    return f"> {deadline_s:g} s" if isinstance(deadline_s, (int, float)) else "not finished"


def story_of(record: Record) -> str:
    """Everything to know of a case that did not pass, on one line: the reason; of a wrong one also how it was checked,
    and the bound with the largest share of it that an element used."""
    check = record.check
    if record.status is not Status.WRONG or check is None or not check.faults:
        return reason_of(record)
    said = f"{reason_of(record)}; method {check.method}"
    if check.bound_value is None:
        return said
    used = f", the worst element used {number(check.bound_used)} of its own" if check.bound_used is not None else ""
    return f"{said}, bound {check.bound}: at most {number(check.bound_value)}{used}"


def csv_of(lines: Sequence[Mapping[str, object]]) -> str:
    """Raw values with a line of names first; what does not exist is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list({name: None for one in lines for name in one}), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def json_of(lines: Sequence[Mapping[str, object]]) -> str:
    """The same values as a JSON list of objects."""
    return json.dumps(lines, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def is_long(text: str) -> bool:
    """Whether a text has more than MAX_LINES lines."""
    return text.count("\n") >= MAX_LINES


def has_many(records: Sequence[Record]) -> bool:
    """Whether the table of records is long for certain, without making it: each case has a line, but for refused ones
    among timed ones; and both placements may share one."""
    is_timed = any(record.timing is not None for record in records)
    shown = {record.id for record in records if not is_timed or record.status is not Status.REFUSED}
    return len(shown) > 2 * MAX_LINES


def summary(records: Sequence[Record], expected: int) -> str:
    """ "24 cases: 22 passed, 2 refused", how many were not run, and how many of those checked for races have some."""
    parts = []
    for status in dict.fromkeys(map(_counted_as, sorted(records, key=lambda one: one.status != Status.PASSED))):
        parts.append(f"{sum(_counted_as(record) == status for record in records):,} {status}")
    if len(records) < expected:
        parts.append(f"{expected - len(records):,} not run")
    text = f"{counted(expected, 'case')}: {', '.join(parts) or 'none run'}"
    ran = [
        one
        for one in records
        if one.status in (Status.PASSED, Status.WRONG) and one.fabric is not None and one.fabric.simulated
    ]
    checked = [record.findings for record in records if record.findings is not None]
    if ran and not checked:
        text += "; races: not looked for"
    if checked:
        racy = sum(any(one.fails for one in findings) for findings in checked)
        text += f"; {f'races in {racy:,}' if racy else 'no race in any'} of {counted(len(checked), 'checked case')}"
        orders = sorted({order for record in records for order in record.counters.get("race_orders", ())})
        text += f", also with {' and '.join(orders)}" if orders else ""
    return text


def _counted_as(record: Record) -> str:
    """A status in the summary's words: unchecked cases are not counted among those that passed."""
    unchecked = record.status == Status.PASSED and not record.verified
    return f"{record.status.lower()}{' unchecked' if unchecked else ''}"
