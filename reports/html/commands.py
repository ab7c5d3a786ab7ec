"""The part of the page on commands: their command lines and configurations.

Commands with equal configurations are shown together, as worlds of one request.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from cases.gathered import gathered
from cases.record.record import Record
from reports.html.blocks import Block, Code, Facts, Fold, Heading, Notes, Part, table_of
from reports.record.leaves import by_dotted_path
from reports.table.sheet import line_of

_OWN = ("records", "cache_dir", "track", "deadline_s")
"""Keys that may differ between commands of one request."""

MOST_OPEN = 12
"""Maximum number of jobs to list in an open table. Of more, the distinct values are shown, and the table is folded."""


def part(records: Sequence[Record]) -> Part:
    """Return the part, with the commands and the configuration of each request."""
    commands = gathered((record.request.command, record) for record in records)
    groups = gathered((_asked(own), own) for own in commands.values())
    blocks: list[Block] = []
    for number, group in enumerate(groups.values(), start=1):
        if len(groups) > 1:
            blocks.append(Heading(f"asked-{number}", _name(group[0][0]) or f"request {number}"))
        blocks += _blocks(group)
    return Part("asked", "What was asked", tuple(blocks))


def yaml_text(values: Mapping[str, Any]) -> str:
    """Return plain JSON values as YAML, without a final line break: what holds plain values alone is in one line."""
    return _dumped(values, None)


def yaml_line(value: Any) -> str:
    """Return a plain JSON value as YAML in one line."""
    return _dumped([value], True)[1:-1]


def _dumped(value: Any, is_flow: bool | None) -> str:
    own = json.loads(json.dumps(value))  # what is there twice is written twice
    text: str = yaml.safe_dump(own, default_flow_style=is_flow, sort_keys=False, allow_unicode=True, width=math.inf)
    return text.removesuffix("\n")


def _asked(records: Sequence[Record]) -> str:
    """Return the configurations of a command's jobs as one text, equal for commands of one request."""
    jobs: dict[str, Any] = {}
    for record in records:
        jobs.setdefault(str(record.request.job), _configuration(record))
    return json.dumps([{key: item for key, item in job.items() if key not in _OWN} for job in jobs.values()])


def _blocks(commands: Sequence[Sequence[Record]]) -> list[Block]:
    """Return the commands of one request, and its configuration."""
    lines = []
    for own in commands:
        first = own[0].request
        shown = shlex.join(first.command_line) if first.command_line else "(no command line was recorded)"
        cells = {
            "command": first.command or "(no name)",
            "cases": len(own),
            "started (UTC)": min(record.started for record in own)[:19].replace("T", " "),
            "ended (UTC)": max(record.ended for record in own)[:19].replace("T", " "),
            "command line": shown,
        }
        lines.append(line_of(cells, styles={"command line": "code text"}))
    blocks: list[Block] = []
    if len(commands) > 1:
        text = f"{len(commands)} commands asked for the same: each ran it in worlds of its own."
        blocks.append(Notes((text,)))
    return [*blocks, table_of("commands", lines), *_configurations(commands[0])]


def _configurations(records: Sequence[Record]) -> list[Block]:
    """Return the configuration that all jobs share, and a table of the keys in which they differ."""
    jobs: dict[int, Record] = {}
    for record in records:
        jobs.setdefault(record.request.job, record)
    flats = {number: by_dotted_path(_configuration(record)) for number, record in sorted(jobs.items())}
    keys = list(dict.fromkeys(key for flat in flats.values() for key in flat))
    missing = object()
    differing = [key for key in keys if len({repr(flat.get(key, missing)) for flat in flats.values()}) > 1]
    shared = _configuration(next(iter(jobs.values())))
    blocks: list[Block] = []
    if not shared:
        return [Notes(("No configuration was recorded.",))]
    if differing:
        lines = [
            line_of({"job": number + 1} | {key: yaml_line(flat[key]) if key in flat else None for key in differing})
            for number, flat in flats.items()
        ]
        table = table_of("jobs", lines)
        blocks.append(Heading("", f"{len(jobs)} jobs, which differ in", listed=False))
        if len(jobs) <= MOST_OPEN:
            blocks.append(table)
        else:
            values = {key: dict.fromkeys(line.cells[key] for line in lines) for key in differing}
            blocks.append(Facts(tuple((key, ", ".join(some)) for key, some in values.items())))
            blocks.append(Fold(f"Each of the {len(jobs)} jobs", (table,)))
    text = yaml_text(_without(shared, set(differing)))
    first = next(iter(jobs.values())).request
    if first.overrides and len(jobs) == 1:
        blocks.append(Facts((("overrides", " ".join(first.overrides)),)))
    left_open = first.resolved
    if left_open and not differing:
        blocks.append(Facts((("left open, became", yaml_line(left_open)[1:-1]),)))
    title = "The configuration, resolved" if len(jobs) == 1 else "The configuration that all jobs share, resolved"
    return [*blocks, Fold(title, (Code(text),))]


def _configuration(record: Record) -> dict[str, Any]:
    return record.request.configuration or {}


def _without(value: Mapping[str, Any], paths: set[str], prefix: str = "") -> dict[str, Any]:
    """A nested mapping without these paths."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        if f"{prefix}{key}" in paths:
            continue
        found[key] = _without(item, paths, f"{prefix}{key}.") if isinstance(item, Mapping) else item
    return found


def _name(record: Record) -> str:
    return record.request.experiment or record.case.op
