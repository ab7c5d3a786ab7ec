"""The description of a command's run in MLflow, in Markdown: how it went, and where the report lies.

Links begin with # and so lead to the page's own server, whatever its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from cases.record.record import Record
from reports.table.text import summary
from runner.track.artifacts import REPORT_NAME
from runner.track.pages import page_of_view, view_key

_LONGEST = 4500
"""Characters of a description; MLflow takes 5,000 of a tag on every server."""


def command_note(
    records: Sequence[Record], cases_not_run: int, command_line: str, links: str, problems: Sequence[str]
) -> str:
    """Of a command: the links, how it went, what could not be attached. The links come first: MLflow covers what
    follows the first lines until a reader asks for more."""
    lines = [links, "", f"**{summary(records, len(records) + cases_not_run)}**", ""]
    lines += [f"`{command_line}`" if command_line else "", *(f"- not there: {problem}" for problem in problems)]
    text = "\n".join(lines)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def report_link(experiment_id: str, run_id: str) -> str:
    """A link to the report of a command's run."""
    return f"[{REPORT_NAME}](#/experiments/{experiment_id}/runs/{run_id}/artifacts/{REPORT_NAME})"


def charts_link(experiment_id: str, command: str) -> str:
    """A link to MLflow's charts of a command."""
    return f"[charts]({page_of_view(experiment_id, view_key(command))})"
