"""Descriptions of runs in MLflow, in Markdown: what a run is, how it went, and where the report lies.

Links begin with # and so lead to the page's own server, whatever its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cases.record.record import Record
from reports.table import table
from reports.table.compare import device_text
from reports.table.text import counted, reason_of, size_text
from runner.track.artifacts import REPORT_NAME, TABLE_NAME
from runner.track.pages import page_of_series, page_of_view, view_key

_LONGEST = 4500
"""Characters of a description; MLflow takes 5,000 of a tag on every server."""


_MOST_REASONS = 3


def series_note(records: Sequence[Record], cases_not_run: int, report: str) -> str:
    """Of a series: what was run, on what, how many cases passed, why others did not; report is a link."""
    sizes = sorted(record.case.size_bytes for record in records)
    span = size_text(sizes[0]) if sizes[0] == sizes[-1] else f"{size_text(sizes[0])} to {size_text(sizes[-1])}"
    lines = [f"{_what(records[0])}, {span}, on {_where(records)}: {outcome(records, cases_not_run)}."]
    reasons = list(dict.fromkeys(filter(None, map(reason_of, records))))
    lines += ["", *(f"- {reason}" for reason in reasons[:_MOST_REASONS])]
    lines += [f"- and {len(reasons) - _MOST_REASONS} more" for _ in reasons[_MOST_REASONS:][:1]]
    return _cut("\n".join([*lines, "", f"A series of one command, whose report is {report}."]))


def command_note(
    records: Sequence[Record], cases_not_run: int, command_line: str, links: str, problems: Sequence[str]
) -> str:
    """Of a command: the links, how it went, the table if it is short enough. The links come first: MLflow covers what
    follows the first lines until a reader asks for more."""
    lines = [links, "", f"**{outcome(records, cases_not_run)}**", "", f"`{command_line}`" if command_line else ""]
    lines += [f"- not there: {problem}" for problem in problems]
    text = "\n".join(lines)
    if records:
        shown = table.markdown(records, is_wide=any(record.timing is not None for record in records))
        if len(text) + len(shown) > _LONGEST:
            shown = f"The table is too long for this place: {TABLE_NAME}, among the artifacts, has it.\n"
        text = f"{text}\n\n{shown}"
    return _cut(text)


def outcome(records: Sequence[Record], cases_not_run: int) -> str:
    """How many cases ended how: "10 cases: 8 passed, 2 refused"."""
    counts = Counter(record.status.lower() for record in records)
    said = [f"{count} {status}" for status, count in counts.most_common()]
    said += [f"{cases_not_run} did not run"] if cases_not_run else []
    total = len(records) + cases_not_run
    return f"{total} case{'s' * (total != 1)}: {', '.join(said) or 'nothing ran'}"


def report_link(experiment_id: str, run_id: str, name: str = REPORT_NAME) -> str:
    """A link to the report of a command's run."""
    return f"[{name}](#/experiments/{experiment_id}/runs/{run_id}/artifacts/{name})"


def charts_link(experiment_id: str, command: str) -> str:
    """Links to MLflow's charts of a command: its view, and all its series, which are found even if the view is gone."""
    view, series = page_of_view(experiment_id, view_key(command)), page_of_series(experiment_id, command)
    return f"[charts]({view}), [charts of its series]({series})"


def _what(record: Record) -> str:
    case = record.case
    parts = [case.name, case.dtype]
    if case.reduction not in (None, "none"):
        parts.append(f"{case.reduction} with accumulator {case.accumulator}")
    return f"{' '.join(parts[:2])}{''.join(f', {part}' for part in parts[2:])}, {counted(case.world_size, 'rank')}"


def _where(records: Sequence[Record]) -> str:
    fabric = next((record.fabric for record in records if record.fabric is not None), None)
    if fabric is None:
        return "no fabric"
    if fabric.simulated:
        return f"the simulator ({fabric.arch}), which measures no times"
    timed = next((record for record in records if record.timing is not None), records[0])
    return f"{device_text(timed)} ({fabric.name})"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
