"""Items "configuration" and "command": what was asked for, how the command ran and ended, and when.

The worker composes configurations again. What command.json says of the command line, of times, resumptions and the exit
code is held to the records; its plan, and configuration.yaml, only repeat what the records say, and are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cases.record.record import WHOLE_SINCE, Record, Status
from reports.table.average import too_slow
from reports.table.text import counted
from symlab.evidence.audit.items import Outcome, Point, contradicted, listed
from symlab.evidence.audit.machine import captured, presence
from symlab.evidence.audit.material import AT_ITS_END, COMPLETE, Material, cases_of, name_of

CLOCKS_APART_S = 1.0
"""Maximum difference of a duration by the wall clock and by the monotonic one, which may be set meanwhile."""

CLOCKS_SET_APART_S = 3600.0
"""Maximum time by which the clock of the machine that recorded may be ahead of this one's."""

_CLOCK_SHARE = 0.01

_LATE_S = 2.0
"""Maximum time by which a record may lie outside its command: times are rounded."""

_GOOD = frozenset({Status.PASSED, Status.REFUSED})
_INTERRUPTED = 128
"""Larger exit codes are 128 plus the number of a signal."""

_AT_ITS_START = ("command", "command_line", "working_folder", "started", "plan", "jobs", "cases_requested")
"""Keys of command.json, as runner/records/command_json.py writes them."""


def configuration(material: Material) -> Iterator[Point]:
    """The configuration of each record; the worker composes it again."""
    missing = [one.id for one in material.records if one.request.configuration is None]
    yield from presence(missing, len(material.records), "configuration, overrides and choices of %s")


def command(material: Material) -> Iterator[Point]:
    """How commands were started, and how they ended."""
    lacking = [one.id for one in material.records if not one.request.command_line]
    yield from presence(lacking, len(material.records), "command line, start and end of %s")
    yield from captured(material, {"user": "host.user", "launcher, job id and nodes": "launch.launcher"})
    yield from contradicted(f"{record.id}: {text}" for record in material.records for text in _times(record))
    if not material.commands:
        yield Point(Outcome.NOT_CAPTURED, "exit code: no command.json beside the records")
    codes = []
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        members = material.by_command.get(name, [])
        sentences = (*_lines(document, members), *_span(document, members), *_resumptions(document, members))
        yield from contradicted((*sentences, *_whole(document, members)), f"{name}: ")
        if folder in material.killed:
            yield Point(Outcome.NOT_CAPTURED, f"{name} never ended: killed, or running")
            continue
        yield from contradicted(_code(document, members), f"{name}: ")
        codes.append(document.get("exit_code"))
    if codes:
        yield Point(Outcome.CAPTURED, f"exit code of {counted(len(codes), 'command')}: {listed(map(str, codes))}")
    said = {name_of(folder, document): document.get("resumed") for folder, document in material.commands.items()}
    for name, members in material.by_command.items():
        if number := max((one.request.resumed or 0 for one in members), default=0):
            later = sum(one.request.resumed is not None for one in members)
            says = f"{name} was resumed, {counted(number, 'time')}: {counted(later, 'record')} came later"
            yield Point(Outcome.CAPTURED, f"{says}{_changed(said.get(name))}")


def _times(record: Record) -> Iterator[str]:
    started, ended = (datetime.fromisoformat(text) for text in (record.started, record.ended))
    wall_s = (ended - started).total_seconds()
    if (ahead_s := (ended - datetime.now(UTC)).total_seconds()) > CLOCKS_SET_APART_S:
        yield f"it ended {ended:%Y-%m-%d %H:%M} UTC, {ahead_s / 3600:,.0f} h after this audit"
    if wall_s < 0:
        yield f"it ended ({record.ended}) before it started ({record.started})"
    elif abs(wall_s - record.duration_s) > max(CLOCKS_APART_S, _CLOCK_SHARE * record.duration_s):
        yield f"it took {record.duration_s:.3g} s, from start to end are {wall_s:.3g} s"


def _lines(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    line = document.get("command_line")
    if isinstance(line, list) and any(list(record.request.command_line) not in ([], line) for record in members):
        yield "its command line in command.json is not that of its records"


def _span(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """When a command started and ended, against its records."""
    begun = [datetime.fromisoformat(one.started) for one in members]
    for key, sign, at in (
        ("started", 1, min(begun, default=None)),
        ("ended", -1, max((datetime.fromisoformat(one.ended) for one in members), default=None)),
    ):
        if at is None or not isinstance(document.get(key), str):
            continue
        try:
            outside_s = sign * (datetime.fromisoformat(document[key]) - at).total_seconds()
        except (ValueError, TypeError):
            yield f"{key} of command.json is {document[key]!r:.40}, which is no time in UTC"
            continue
        if outside_s > _LATE_S:
            yield f"a record lies {outside_s:,.0f} s outside the command, which {key} at {document[key]}"


def _whole(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """What every command.json has that was written beside records of schema 6 or later."""
    if not any(record.schema >= WHOLE_SINCE for record in members):
        return
    has_ended = any(key in document for key in AT_ITS_END)
    if lacking := [key for key in (*_AT_ITS_START, *(AT_ITS_END if has_ended else ())) if key not in document]:
        yield f"command.json has no {', '.join(lacking)}, which every command writes"
    cases = len(list(cases_of(document.get("jobs"))))
    if document.get("cases_requested") not in (None, cases):
        yield f"{document['cases_requested']!r:.20} cases were requested, the jobs of command.json have {cases}"
    outcome, missing = document.get("outcome"), document.get("cases_not_run")
    if isinstance(missing, list) and outcome is not None and (outcome == COMPLETE) == bool(missing):
        yield f"it ended {outcome!r:.40}, and {len(missing)} cases did not run"


def _resumptions(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """The commits of resumptions, against those of the records that name one."""
    entries = document.get("resumed", [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        yield "resumed of command.json is not what a command writes"
        return
    for one in members:
        number = one.request.resumed
        if number is None:
            continue
        if number > len(entries):
            yield f"{one.id} came with resumption {number}, and command.json has {len(entries)}"
        elif str((one.environment.git or {}).get("commit") or "") != entries[number - 1].get("commit"):
            yield f"{one.id} is of another commit than its resumption"


def _changed(entries: object) -> str:
    """What changed before a command was resumed, as its command.json says."""
    parts = [one.get("changed") for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    texts = [str(text) for part in parts if isinstance(part, list) for text in part]
    return f"; changed before that: {listed(texts, 10)}" if texts else ""


def _code(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """What contradicts an exit code. An interrupted command's code says nothing about its cases, and a command that
    gave up (outcome "stopped") ends with 1 whatever they were. Of a library that did not finish the code says nothing;
    commands of before ended with 1."""
    code = document.get("exit_code")
    if type(code) is not int:
        yield f"its exit code is {code!r:.40}, and it has a manifest or a part of the end"
        return
    judged = {one.status for one in members if not one.is_late_library}
    is_good = judged <= _GOOD and Status.PASSED in judged and not too_slow(members)
    is_whole = len(judged) == len({one.status for one in members})
    is_wrong = {0: not is_good, 1: is_good and is_whole and document.get("outcome") == COMPLETE}
    if is_wrong.get(code, code <= _INTERRUPTED):
        says = dict(sorted(Counter(str(one.status) for one in members).items()))
        yield f"it ended with exit code {code}, and its cases are {says}"
