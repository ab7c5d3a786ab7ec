"""What tables say of the race checker. They have a column for it only where some case was checked."""

from __future__ import annotations

from collections.abc import Sequence

from cases.finding import SEVERITIES, Finding, counts_of, races_text
from cases.record.record import Record, Status
from reports.table.text import counted

MEANING = (
    "races: accesses that nothing orders, as one run shows them; race (no order at all) and proxy (only a proxy fence "
    "is missing) make a case WRONG; formal (missing by PTX, though the hardware known bypasses its L1) and advisory "
    "(explained by an assumption that the kernel declares) do not"
)

MAX_SHOWN = 5
"""Maximum number of findings that do not fail which a table names; a report has all."""


def were_checked(records: Sequence[Record]) -> bool:
    """Return whether some case was checked for races."""
    return any(record.findings is not None for record in records)


def cell(record: Record) -> str:
    """Return the findings of a case by severity, "none", "not checked", or "-" of a case that did not run."""
    return "-" if record.status is Status.REFUSED else races_text(record.findings)


def style(record: Record) -> str:
    """Return the style of that cell."""
    if record.race is not None:
        return "bold red"
    return "green" if record.findings == () else "yellow"


def number(records: Sequence[Record]) -> str:
    """Return the number of findings of all cases; "-" if none was checked."""
    checked = [record.findings for record in records if record.findings is not None]
    return f"{sum(map(len, checked)):,}" if checked else "-"


def values(record: Record | None) -> dict[str, object]:
    """Return whether a case was checked for races, and its number of findings of each severity; None for unchecked."""
    findings = None if record is None else record.findings
    counts = counts_of(findings or ())
    said: dict[str, object] = {"races": "not checked" if findings is None else "checked"}
    for severity in SEVERITIES:
        said[f"findings_{severity}"] = None if findings is None else counts[severity]
    return said


def captions(records: Sequence[Record]) -> list[str]:
    """Return what must be said below a table with findings: what the words mean, those that do not fail a case, and the
    assumptions that explain advisories."""
    if not were_checked(records):
        return []
    shown: dict[tuple[str, tuple[object, ...]], tuple[Finding, int]] = {}
    for record in records:
        for one in record.findings or ():
            if not one.fails:
                key = (record.case.name, one.pair)
                shown[key] = (shown.get(key, (one, 0))[0], shown.get(key, (one, 0))[1] + 1)
    lines = [MEANING]
    for (name, _), (finding, cases) in list(shown.items())[:MAX_SHOWN]:
        lines.append(f"{name}, {counted(cases, 'case')}: {finding.sentence()}")
    if len(shown) > MAX_SHOWN:
        lines.append(f"{counted(len(shown) - MAX_SHOWN, 'finding')} more that do not fail: symlab html lists all")
    return [*lines, *assumptions(records)]


def assumptions(records: Sequence[Record]) -> list[str]:
    """Return the assumptions that explain advisories, each once, as the kernels declare them."""
    named = {one.assumption for record in records for one in record.findings or () if one.assumption}
    kernels = [record.kernel for record in records if record.kernel is not None]
    said = dict.fromkeys(text for kernel in kernels for text in kernel.assumptions or ())
    return [f"assumed of hardware beyond PTX: {text}" for text in said if text.partition(":")[0] in named]
