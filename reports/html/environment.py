"""The parts of the page on the environment: fabrics, each distinct environment, and the digests of the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cases.documents import encoded
from cases.gathered import gathered
from cases.record.record import Record
from reports.html.blocks import Block, Facts, Fold, Heading, Notes, Part, table_of
from reports.record import bundle
from reports.record.leaves import by_dotted_path
from reports.table.compare import device_text
from reports.table.sheet import Line, line_of
from reports.table.text import counted

_VOLATILE = frozenset({"capture_s"})
"""Keys that differ between captures of one machine."""


def environment_part(records: Sequence[Record]) -> Part:
    """Return the part: the most frequent environment in full, and the differences of each other one."""
    found = _by_environment(records)
    blocks: list[Block] = []
    first: dict[str, str] = {}
    for number, own in enumerate(sorted(found, key=len, reverse=True), start=1):
        commands = dict.fromkeys(record.request.command for record in own)
        name = f"Environment {number}" if len(found) > 1 else "Environment"
        environment = encoded(own[0].environment)
        flat = _flat(environment)
        if not flat:
            blocks.append(Notes((f"{name} was not captured ({counted(len(own), 'case')}).",)))
            continue
        blocks.append(Heading(f"environment-{number}", f"{name}: {counted(len(own), 'case')}", listed=len(found) > 1))
        blocks.append(Notes((f"of the commands {', '.join(commands)}",)) if len(found) > 1 else Notes(()))
        if first:
            blocks.append(_differences(first, flat))
        else:
            first = flat
            blocks += _groups(environment)
    return Part("environment", "The environment", tuple(blocks))


def fabrics_part(records: Sequence[Record]) -> Part:
    """Return the part: what each fabric is, and how many cases it ran."""
    found = gathered((repr(record.fabric), record) for record in records)
    blocks: list[Block] = []
    for number, own in enumerate(found.values(), start=1):
        cases = counted(len(own), "case")
        if own[0].fabric is None:
            blocks.append(Notes((f"{cases} ended before there was a fabric.",)))
            continue
        title = f"{own[0].fabric.world_size} x {device_text(own[0])}: {cases}"
        facts = Facts(tuple(_flat(encoded(own[0].fabric)).items()))
        blocks += [Heading(f"fabric-{number}", title, listed=False), facts]
    return Part("ran", "What ran where", tuple(blocks))


def _by_environment(records: Sequence[Record]) -> list[list[Record]]:
    """Records that have the same environment together."""
    same = gathered((id(record.environment), record) for record in records)  # read together, it is the same object
    found: dict[str, list[Record]] = {}
    for members in same.values():
        document = encoded(members[0].environment)
        steady = {key: item for key, item in document.items() if key not in _VOLATILE}
        found.setdefault(json.dumps(steady, sort_keys=True), []).extend(members)
    return sorted(found.values(), key=lambda own: own[0].started)


def digests_part(records: Sequence[Record]) -> Part:
    """Return the part with the digest of each command's records (bundle.digest)."""
    commands = gathered((record.request.command, record) for record in records)
    column = "SHA-256 of its bundle"
    lines = [
        line_of(
            {"command": name or "(no name)", "records": len(own), column: bundle.digest(own)},
            styles={column: "code"},
        )
        for name, own in commands.items()
    ]
    note = (
        "of the lines that symlab bundle would pack, before they are compressed: the same records "
        "have the same digest, in whatever order and by however many files they come"
    )
    heading = Heading("digests-records", "Of the records", listed=False)
    return Part("digests", "Digests", (heading, table_of("records", lines), Notes((note,))))


def _groups(environment: Mapping[str, Any]) -> list[Block]:
    """Return the facts of each key of an environment, large groups folded."""
    blocks: list[Block] = []
    lone: list[tuple[str, str]] = []
    for key, value in environment.items():
        if key in _VOLATILE:
            continue
        rows = tuple(_flat({key: value}).items())
        if len(rows) <= 1 and not isinstance(value, (dict, list)):
            lone += rows
        elif rows:
            prefix = f"{key}."
            facts = Facts(tuple((name.removeprefix(prefix), text) for name, text in rows))
            title = f"{key.replace('_', ' ')}: {counted(len(rows), 'value')}"
            blocks.append(Fold(title, (facts,)))
        else:
            lone.append((key.replace("_", " "), "nothing"))
    return [*([Facts(tuple(lone))] if lone else []), *blocks]


def _differences(first: Mapping[str, str], other: Mapping[str, str]) -> Block:
    """Return the values in which an environment differs from the first one."""
    keys = [key for key in dict.fromkeys([*first, *other]) if first.get(key) != other.get(key)]
    if not keys:
        return Notes(("It differs from environment 1 only in values that are not shown.",))
    lines = [Line({"what": key, "environment 1": first.get(key, "-"), "here": other.get(key, "-")}) for key in keys]
    return table_of("differences", lines)


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    """Nested values as texts, by their paths; without what says nothing of a machine."""
    steady = {key: item for key, item in values.items() if key not in _VOLATILE}
    return {path: _text(leaf) for path, leaf in by_dotted_path(steady, into_lists=True).items() if leaf != {}}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if value != "" else "(empty)"
