"""Items "configuration" and "command": what was asked for, how the command ran and ended, and when.

The worker composes configurations again. command.json's command line and times are held to the records; what else it
and configuration.yaml repeat is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cases.record.record import Record
from reports.table.text import counted
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.material import Material, name_of

CLOCKS_APART_S = 1.0
"""Maximum difference of a duration by the wall clock and by the monotonic one, which may be set meanwhile."""

CLOCKS_SET_APART_S = 3600.0
"""Maximum time by which the clock of the machine that recorded may be ahead of this one's."""

_CLOCK_SHARE = 0.01

_LATE = timedelta(seconds=2)
"""Maximum time by which a record may lie outside its command: times are rounded."""


def configuration(material: Material) -> Iterator[Point]:
    """Which records have no configuration; the worker composes those of the others again."""
    if missing := [one.id for one in material.records if one.request.configuration is None]:
        yield Point(Outcome.NOT_CAPTURED, f"the configuration of {counted(len(missing), 'record')}: {listed(missing)}")


def command(material: Material) -> Iterator[Point]:
    """When records and their commands began and ended, and the command lines of both."""
    sentences = [f"{record.id}: {text}" for record in material.records for text in _times(record)]
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        if folder in material.killed:
            yield Point(Outcome.NOT_CAPTURED, f"{name} never ended: killed, or running")
        else:
            sentences += [f"{name}: {text}" for text in _span(document, material.by_command.get(name, []))]
    beside = f", {counted(len(material.commands), 'command')} beside them" if material.commands else ""
    yield from held(sentences, f"times and command lines of {counted(len(material.records), 'record')}{beside} agree")
    if not material.commands:
        yield Point(Outcome.NOT_CAPTURED, "no command.json beside the records")


def _times(record: Record) -> Iterator[str]:
    started, ended = (datetime.fromisoformat(text) for text in (record.started, record.ended))
    wall_s = (ended - started).total_seconds()
    if (ahead_s := (ended - datetime.now(UTC)).total_seconds()) > CLOCKS_SET_APART_S:
        yield f"it ended {ended:%Y-%m-%d %H:%M} UTC, {ahead_s / 3600:,.0f} h after this audit"
    if wall_s < 0:
        yield f"it ended ({record.ended}) before it started ({record.started})"
    elif abs(wall_s - record.duration_s) > max(CLOCKS_APART_S, _CLOCK_SHARE * record.duration_s):
        yield f"it took {record.duration_s:.3g} s, from start to end are {wall_s:.3g} s"


def _span(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """The command line, the start and the end of a command, against those of its records."""
    line = document.get("command_line")
    if any(list(record.request.command_line) not in ([], line) for record in members):
        yield "its command line in command.json is not that of its records"
    try:
        started, ended = (datetime.fromisoformat(str(document.get(key))) for key in ("started", "ended"))
        early = [one for one in members if datetime.fromisoformat(one.started) < started - _LATE]
        late = [one for one in members if datetime.fromisoformat(one.ended) > ended + _LATE]
    except (ValueError, TypeError):  # without a time zone it can't be compared
        yield "command.json has no start or no end in UTC"
        return
    if outside := early or late:
        yield f"{outside[0].id} lies outside the command, which ran from {started} to {ended}"
