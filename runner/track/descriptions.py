"""The description of a command's run in MLflow, in Markdown: how it went, and where the report lies.

Links begin with # and so lead to the page's own server, whatever its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cases.record.record import Record
from reports.table import table
from runner.track.artifacts import REPORT_NAME, TABLE_NAME
from runner.track.pages import page_of_view, view_key

_LONGEST = 4500
"""Characters of a description; MLflow takes 5,000 of a tag on every server."""


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
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


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
    """A link to MLflow's charts of a command."""
    return f"[charts]({page_of_view(experiment_id, view_key(command))})"
