"""What commands were asked for and how they ended, as command.json and the records' requests say, against the records.

Parts of items 16 and 17. A command.json that lacks something is NOT CAPTURED there; one that contradicts the records,
or holds what no command writes, is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from reports.audit.items import Outcome, Point, counted, listed, verified_or
from reports.audit.material import Material
from reports.record.record import Record

_STATUSES_OF_0 = frozenset({"PASSED", "REFUSED"})
_INTERRUPTED = 128
"""Exit codes from here on: 128 and the signal."""

_MOST_NAMED = 100
"""Missing jobs of a command that are counted: a number of jobs may be nonsense."""

_KINDS = {"jobs": list, "counts": dict}

Asked = tuple[int, str]
"""A job's number, and the id of a case."""


def jobs(material: Material) -> list[Point]:
    """Whether every job of each command has a record: the requests say how many jobs there were."""
    found: dict[str, set[int]] = {}
    wanted: dict[str, int] = {}
    for record in material.records:
        name, number = record.request.command, record.request.jobs
        if number is not None:
            wanted[name] = max(wanted.get(name, 0), number)
            found.setdefault(name, set()).add(record.request.job)
    if not wanted:
        return [Point(Outcome.NOT_CAPTURED, "how many jobs there were: no record says")]
    total = sum(wanted.values())
    without = [
        f"job {job} of {name} has no record"
        for name, count in wanted.items()
        for job in islice((job for job in range(count) if job not in found[name]), _MOST_NAMED)
    ]
    odd = [
        f"{record.id}: job {record.request.job} is none of {wanted[name]}"
        for record in material.records
        if (name := record.request.command) in wanted and record.request.job not in range(wanted[name])
    ]
    good = f"{counted(total, 'job')} of {counted(len(wanted), 'command')}, each with records"
    return [verified_or([*without, *odd], good, total, "jobs")]


def ended(material: Material) -> list[Point]:
    """Cases and counts of every command.json against what lies beside it."""
    if not material.commands:
        return [
            Point(Outcome.NOT_CAPTURED, "no command.json beside the records: only configurations say what was asked")
        ]
    odd: list[str] = []
    lacking: list[str] = []
    asked = 0
    for folder, document in material.commands.items():
        name = _name(folder, document)
        members = _members(material, name)
        for key, kind in _KINDS.items():
            if document.get(key) is None:
                lacking.append(f"{key} of {name}")
            elif not isinstance(document[key], kind):
                odd.append(f"{key} of {name} is {_brief(document[key])}, which no command leaves")
        if isinstance(document.get("jobs"), list):
            wanted, strange = _wanted(document["jobs"], name)
            here: Counter[Asked] = Counter((one.request.job, one.id) for one in members)
            odd += strange
            odd += [f"{case} of {name} is not there" for _, case in (wanted - here)]
            odd += [f"{case} of {name} was not asked for" for _, case in (here - wanted)]
            asked += wanted.total()
        now = dict(Counter(str(one.status) for one in members))
        if isinstance(document.get("counts"), dict) and document["counts"] != now:
            odd.append(f"{name} ended with {document['counts']}, and there are {now}")
    commands = counted(len(material.commands), "command")
    points = []
    if odd:
        points.append(Point(Outcome.FINDING, f"command.json of {commands}: {listed(odd)}"))
    elif asked:
        says = f"command.json of {commands}: {counted(asked, 'case')} asked for, all there"
        points.append(Point(Outcome.VERIFIED, says))
    if lacking:
        points.append(Point(Outcome.NOT_CAPTURED, f"command.json has no {listed(lacking)}"))
    return points


def exit_codes(material: Material) -> Point:
    """How every command ended, against the statuses of its records."""
    if not material.commands:
        return Point(Outcome.NOT_CAPTURED, "exit code: no command.json beside the records")
    odd: list[str] = []
    codes: list[int] = []
    never = 0
    for folder, document in material.commands.items():
        name, code = _name(folder, document), document.get("exit_code")
        if code is None:
            never += 1
        elif not _is_int(code):
            odd.append(f"exit code of {name} is {_brief(code)}, which is no number")
        else:
            codes.append(code)
            odd += _contradiction(name, code, document, _members(material, name))
    total = len(material.commands)
    if never:
        odd.insert(0, f"{never} of {counted(total, 'command')} never ended: killed, or running")
    if odd:
        return Point(Outcome.FINDING, listed(odd))
    says = f"exit code of {counted(total, 'command')}: {listed(map(str, codes))}; as the cases ended"
    return Point(Outcome.VERIFIED, says)


def _contradiction(name: str, code: int, document: Mapping[str, Any], members: list[Record]) -> list[str]:
    """What an exit code does not agree with. One that was interrupted says nothing of its cases, and one that gave up
    (stopped) ended with 1 whatever they were."""
    statuses = {str(one.status) for one in members}
    is_good = statuses <= _STATUSES_OF_0 and "PASSED" in statuses
    said = f"{name} ended with exit code {code}, and its cases are {', '.join(sorted(statuses)) or 'none'}"
    if code == 0:
        return [] if is_good else [said]
    if code == 1:
        return [said] if is_good and document.get("outcome") == "complete" else []
    return [] if code > _INTERRUPTED else [f"{said}; a command that ran cases ends with 0, 1 or above {_INTERRUPTED}"]


def _wanted(listed_jobs: list[Any], name: str) -> tuple[Counter[Asked], list[str]]:
    """The cases that jobs list, and what of them is no job."""
    wanted: Counter[Asked] = Counter()
    strange = []
    for place, job in enumerate(listed_jobs):
        if not isinstance(job, dict) or not _is_int(job.get("number")) or not _are_texts(job.get("cases")):
            strange.append(f"jobs of {name}: entry {place} is {_brief(job)}, not a job with its number and cases")
        else:
            wanted.update((job["number"], case) for case in job["cases"])
    return wanted, strange


def _members(material: Material, name: str) -> list[Record]:
    return [record for record in material.records if record.request.command == name]


def _name(folder: Path, document: Mapping[str, Any]) -> str:
    return str(document.get("command", folder.name))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
