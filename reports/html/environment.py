"""The parts of the page on the environment: each distinct one, clocks and power of the GPUs, and all digests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cases.documents import encoded
from cases.gathered import gathered
from cases.record.record import Record
from reports.html.blocks import Block, Facts, Fold, Heading, Notes, Part, Table, table_of
from reports.record import bundle
from reports.record.leaves import by_dotted_path
from reports.table.sheet import Line, Sheet, line_of
from reports.table.text import counted

_VOLATILE = frozenset({"capture_s"})
"""Keys that differ between captures of one machine."""

_READINGS = {
    "sm_mhz": "SM (MHz)",
    "memory_mhz": "memory (MHz)",
    "temperature_c": "temperature (C)",
    "power_w": "power (W)",
}


def environment_part(records: Sequence[Record]) -> Part:
    """Return the part: the most frequent environment in full, the differences of each other one, and the clocks."""
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
    return Part("environment", "The environment", (*blocks, *_clocks(records)))


def _by_environment(records: Sequence[Record]) -> list[list[Record]]:
    """Records that have the same environment together."""
    same = gathered((id(record.environment), record) for record in records)  # read together, it is the same object
    found: dict[str, list[Record]] = {}
    for members in same.values():
        document = encoded(members[0].environment)
        steady = {key: item for key, item in document.items() if key not in _VOLATILE}
        found.setdefault(json.dumps(steady, sort_keys=True), []).extend(members)
    return sorted(found.values(), key=lambda own: own[0].started)


def digests_part(records: Sequence[Record], sealed: Mapping[str, str]) -> Part:
    """Return the part with the digests of folders' manifests (sealed, by the folders' names), and of each command's
    records (bundle.digest)."""
    commands = gathered((record.request.command, record) for record in records)
    columns = ("SHA-256 of its manifest", "SHA-256 of its bundle")
    folders = [Line({"folder": name, columns[0]: one}, {columns[0]: "code"}) for name, one in sealed.items()]
    lines = [
        line_of(
            {"command": name or "(no name)", "records": len(own), columns[1]: bundle.digest(own)},
            styles={columns[1]: "code"},
        )
        for name, own in commands.items()
    ]
    blocks: list[Block] = [
        Heading("digests-records", "Of the records", listed=False),
        table_of("records", lines),
        Notes(
            (
                "of the lines that symlab bundle would pack, before they are compressed: the same records "
                "have the same digest, in whatever order and by however many files they come",
            )
        ),
    ]
    if folders:
        note = "the command printed it with the folder; symlab sign vouches for it, and symlab audit --signers says who"
        heading = Heading("digests-folders", "Of the folders", listed=False)
        blocks = [heading, table_of("folders", folders), Notes((note,)), *blocks]
    return Part("digests", "Digests", tuple(blocks))


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


def _clocks(records: Sequence[Record]) -> list[Block]:
    """Return the range of each GPU's readings before and after its samples, over all timed cases."""
    timed = [record.timing for record in records if record.timing is not None]
    found: dict[tuple[int, str], dict[str, set[Any]]] = {}
    looked_at: set[tuple[int, int]] = set()
    for timing in timed:
        for rank, device in enumerate(timing.devices):
            if (rank, id(device)) not in looked_at:
                looked_at.add((rank, id(device)))
                _add(found, rank, device)
    if not timed:
        return []
    if not found:
        return [Heading("clocks", "Clocks", listed=False), Notes(("Clocks and power were not captured.",))]
    columns = ("rank", "GPU", *(f"{title} {when}" for title in _READINGS.values() for when in ("before", "after")))
    columns += ("held back by", "not captured")
    lines = []
    for (rank, uuid), known in sorted(found.items()):
        cells = {"rank": str(rank), "GPU": uuid}
        for key, title in _READINGS.items():
            for when in ("before", "after"):
                cells[f"{title} {when}"] = _span(known.get(f"{key} {when}", set()))
        cells["held back by"] = ", ".join(sorted(known.get("throttle", set()))) or "nothing"
        cells["not captured"] = ", ".join(sorted(known.get("not_captured", set()))) or "-"
        lines.append(Line(cells, {"held back by": "yellow" if known.get("throttle") else ""}))
    if all(line.cells["not captured"] == "-" for line in lines):
        columns = columns[:-1]
    sheet = Sheet("clocks", columns, (tuple(lines),), frozenset(columns) - {"GPU", "held back by", "not captured"})
    caption = f"over {len(timed):,} timed cases: from the lowest to the highest reading before and after the samples"
    return [
        Heading("clocks", "Clocks, temperature, power"),
        Table(sheet, heading=False),
        Notes((caption,)),
    ]


def _add(found: dict[tuple[int, str], dict[str, set[Any]]], rank: int, device: Mapping[str, Any]) -> None:
    """Add what a device read before and after its samples; a value of another kind is left out."""
    for when in ("before", "after"):
        reading = device.get(when)
        if isinstance(reading, dict):
            values = found.setdefault((rank, str(reading.get("uuid") or "-")), {})
            for key in _READINGS:
                if isinstance(reading.get(key), int | float):
                    values.setdefault(f"{key} {when}", set()).add(reading[key])
            throttle, reason = reading.get("throttle"), reading.get("not_captured")
            values.setdefault("throttle", set()).update(map(str, throttle) if isinstance(throttle, list) else ())
            values.setdefault("not_captured", set()).update([str(reason)] if reason else ())


def _span(values: set[Any]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f} to {high:.0f}"
