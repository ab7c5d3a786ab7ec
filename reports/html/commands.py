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
    """Return the first job's configuration, and of each other job the values in which it differs from that."""
    jobs = {record.request.job: record for record in reversed(records)}
    flats = {number: by_dotted_path(_configuration(jobs[number])) for number in sorted(jobs)}
    first = jobs[min(jobs)]
    if not _configuration(first):
        return [Notes(("No configuration was recorded.",))]
    blocks: list[Block] = []
    if first.request.resolved:
        blocks.append(Facts((("left open, became", yaml_line(first.request.resolved)[1:-1]),)))
    blocks.append(Fold("The configuration of the first job, resolved", (Code(yaml_text(_configuration(first))),)))
    if len(jobs) > 1:
        begin = flats[min(jobs)]
        lines = [
            line_of({"job": number + 1, "differs from the first in": yaml_line(differing)[1:-1]})
            for number, flat in flats.items()
            if (differing := {key: value for key, value in flat.items() if begin.get(key) != value})
        ]
        blocks.append(Fold(f"{len(jobs)} jobs", (table_of("jobs", lines),)) if lines else Notes(()))
    return blocks


def _configuration(record: Record) -> dict[str, Any]:
    return record.request.configuration or {}


def _name(record: Record) -> str:
    return record.request.experiment or record.case.op
