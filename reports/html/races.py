"""The part of the page on races: what the checker found, with both accesses of each finding."""

from __future__ import annotations

from collections.abc import Sequence

from cases.finding import SEVERITIES, Access, Finding, summary_of
from cases.record.record import Record, Status
from reports.html.blocks import Block, Notes, Part, table_of
from reports.table import races
from reports.table.compare import heading
from reports.table.sheet import Line, line_of
from reports.table.text import counted

_STYLES = {"race": "bold red", "proxy": "bold red", "formal": "yellow", "advisory": "yellow"}


def fact(records: Sequence[Record]) -> str:
    """Return in how many of the cases that ran the checker looked for races, and what it found."""
    ran = [record for record in records if record.status is not Status.REFUSED]
    checked = [record for record in ran if record.findings is not None]
    if not checked:
        return "not checked"
    found = summary_of(one for record in checked for one in record.findings or ())
    where = "" if len(checked) == len(ran) else f" of {len(ran):,}"
    return f"checked in {len(checked):,}{where} {'case' if len(ran) == 1 else 'cases'}; found: {found}"


def part(records: Sequence[Record]) -> Part | None:
    """Return the part: every finding once, however many cases have it; None if no case was checked."""
    if not races.were_checked(records):
        return None
    unchecked = sum(record.findings is None and record.status is not Status.REFUSED for record in records)
    notes = [races.MEANING, fact(records), *races.assumptions(records)]
    notes += [f"not checked: {counted(unchecked, 'case')} that ran"] if unchecked else []
    blocks: list[Block] = [Notes(tuple(notes))]
    lines = _lines(records)
    if lines:
        blocks.append(table_of("findings", lines))
    return Part("races", "Races", tuple(blocks))


def _lines(records: Sequence[Record]) -> list[Line]:
    """Return a line for each finding of each kernel in each job, the gravest first."""
    found: dict[tuple[object, ...], tuple[Record, Finding, set[str], int]] = {}
    for record in records:
        for one in record.findings or ():
            key = (record.case.name, heading(record), one.pair)
            first, finding, cases, pairs = found.get(key, (record, one, set(), 0))
            found[key] = (first, finding, cases | {record.id}, pairs + one.count)
    lines = []
    for record, finding, cases, pairs in sorted(found.values(), key=lambda one: SEVERITIES.index(one[1].severity)):
        cells = {
            "severity": finding.severity,
            "kernel": record.case.name,
            "missing": finding.missing,
            "first access": _access(finding.first),
            "second access": _access(finding.second),
            "pairs": pairs,
            "cases": len(cases),
            "assumption": finding.assumption or None,
            "job": heading(record),
        }
        styles = {"severity": _STYLES[finding.severity]} | dict.fromkeys(("first access", "second access"), "text")
        lines.append(line_of(cells, styles=styles))
    return lines


def _access(access: Access) -> str:
    """Return one side of a finding with all that is known of it."""
    launch = "before any launch" if access.launch < 0 else f"launch {access.launch}"
    if access.stream is not None:
        launch += f" on stream {access.stream}"
    line = f", PTX line {access.line}" if access.line > 0 and access.source else ""
    return f"{access.where()}{line}, {access.proxy} proxy, {launch}"
