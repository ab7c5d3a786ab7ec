"""What was asked: the command lines and their configurations. Commands that asked for the same are worlds of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from reports.html.parts import Block, Code, Facts, Fold, Heading, Notes, Part, Table
from reports.record.record import Record
from reports.table.sheet import Line, Sheet

_OWN = ("records", "cache_dir", "track", "deadline_s")
"""Keys that may differ between commands that ask for the same."""

MOST_OPEN = 12
"""So many jobs stand in a table that is shown; of more, the values that they have, and the table when asked for."""

_PLAIN = re.compile(r"[A-Za-z_./+-][\w./+:@%-]*")
"""Text that YAML reads as itself, unless it is a word that means something else."""
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "none", "~", "nan", "inf"})


def part(records: Sequence[Record]) -> Part:
    """One block of facts and one configuration for each thing that was asked for."""
    commands: dict[str, list[Record]] = {}
    for record in records:
        commands.setdefault(record.request.command, []).append(record)
    groups: dict[str, list[list[Record]]] = {}
    for own in commands.values():
        groups.setdefault(_asked(own), []).append(own)
    blocks: list[Block] = []
    for number, group in enumerate(groups.values(), start=1):
        if len(groups) > 1:
            blocks.append(Heading(f"asked-{number}", _name(group[0][0]) or f"request {number}"))
        blocks += _blocks(group)
    return Part("asked", "What was asked", tuple(blocks))


def yaml_text(value: Any, indent: int = 0) -> str:
    """Plain JSON values as YAML, for people: mappings in lines, lists in one."""
    pad = "  " * indent
    if isinstance(value, Mapping):
        lines = []
        for key, item in value.items():
            if isinstance(item, Mapping) and item:
                lines.append(f"{pad}{_scalar(key)}:\n{yaml_text(item, indent + 1)}")
            else:
                lines.append(f"{pad}{_scalar(key)}: {_inline(item)}")
        return "\n".join(lines)
    return f"{pad}{_inline(value)}"


def _inline(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _asked(records: Sequence[Record]) -> str:
    """What a command asked for, as a text that is the same for another that asked for it, too."""
    jobs: dict[str, Any] = {}
    for record in records:
        jobs.setdefault(str(record.request.job), _configuration(record))
    return json.dumps([{key: item for key, item in job.items() if key not in _OWN} for job in jobs.values()])


def _blocks(commands: Sequence[Sequence[Record]]) -> list[Block]:
    """The commands of one request, and what it comes to."""
    lines = []
    for own in commands:
        first = own[0].request
        shown = shlex.join(first.command_line) if first.command_line else "(no command line was recorded)"
        cells = {
            "command": first.command or "(no name)",
            "cases": f"{len(own):,}",
            "started (UTC)": min(record.started for record in own)[:19].replace("T", " "),
            "ended (UTC)": max(record.ended for record in own)[:19].replace("T", " "),
            "command line": shown,
        }
        lines.append(Line(cells, {"command line": "code text"}, {"cases": len(own)}))
    columns = tuple(lines[0].cells)
    blocks: list[Block] = []
    if len(commands) > 1:
        text = f"{len(commands)} commands asked for the same: each ran it in worlds of its own."
        blocks.append(Notes((text,)))
    blocks.append(Table(Sheet("commands", columns, (tuple(lines),), frozenset({"cases"})), heading=False))
    return blocks + _configurations(commands[0])


def _configurations(records: Sequence[Record]) -> list[Block]:
    """The configuration that all jobs share, and a table of what tells them apart."""
    jobs: dict[int, Record] = {}
    for record in records:
        jobs.setdefault(record.request.job, record)
    flats = {number: _flat(_configuration(record)) for number, record in sorted(jobs.items())}
    keys = list(dict.fromkeys(key for flat in flats.values() for key in flat))
    missing = object()
    differing = [key for key in keys if len({repr(flat.get(key, missing)) for flat in flats.values()}) > 1]
    shared = _configuration(next(iter(jobs.values())))
    blocks: list[Block] = []
    if not shared:
        return [Notes(("No configuration was recorded.",))]
    if differing:
        columns = ("job", *differing)
        lines = [
            Line({"job": str(number)} | {key: _inline(flat.get(key)) if key in flat else "-" for key in differing})
            for number, flat in flats.items()
        ]
        table = Table(Sheet("jobs", columns, (tuple(lines),), frozenset({"job"})), heading=False)
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
        blocks.append(Facts((("left open, became", _inline(left_open)[1:-1]),)))
    title = "The configuration, resolved" if len(jobs) == 1 else "The configuration that all jobs share, resolved"
    return [*blocks, Fold(title, (Code(text),))]


def _configuration(record: Record) -> dict[str, Any]:
    return record.request.configuration or {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping with paths as keys."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            found |= _flat(item, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = item
    return found


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
