"""Items "cases", "manifest" and "replay": is every requested case there and unchanged, and can it be run again?

The worker derives the cases from the configurations. Here records are compared with what command.json says.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cases.documents import parsed
from cases.record.reading import below, contents
from cases.record.record import Record, Status
from reports.record.bundle import VERDICT_NAME, record_files
from reports.record.seal import MANIFEST, faults
from reports.table.text import counted, reason_of
from symlab.evidence.audit.comparison import FINDING, VERIFIED
from symlab.evidence.audit.items import Outcome, Point, captured_or, contradicted, listed
from symlab.evidence.audit.material import Asked, Material, cases_of, name_of

_MOST_NAMED = 100
"""Maximum number of missing jobs to count per command: a damaged record may name any number of jobs."""


def cases(material: Material) -> Iterator[Point]:
    """The number of cases by status, against the cases that were asked for."""
    found = Counter(record.status for record in material.records)
    says = ", ".join(f"{found[status]:,} {status}" for status in Status if found[status])
    without = [one.id for one in material.records if one.status is not Status.PASSED and not reason_of(one)]
    yield captured_or(without, f"{says}; each that did not pass says why", len(material.records), "without a reason")
    yield from contradicted(_twice(material))
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        if not_run := material.not_run.get(name):
            how = f"{document.get('outcome') or 'it never ended: killed, or running'}"
            why = f" ({document['why']})" if document.get("why") else ""
            says = f"{len(not_run):,} cases of {name} did not run: {how}{why}; symlab resume runs them"
            yield Point(Outcome.NOT_CAPTURED, says)
    yield _jobs(material)
    yield from _command_json(material)


def _jobs(material: Material) -> Point:
    """Whether every job of each command has a record. The requests name the number of jobs. Without a command.json the
    command may have been interrupted before its last ones."""
    wanted: dict[str, int] = {}
    here: dict[str, set[int]] = {}
    for record in material.records:
        name, number = record.request.command, record.request.jobs
        if number is not None:
            wanted[name] = max(wanted.get(name, 0), number)
            here.setdefault(name, {job for job, _ in material.not_run.get(name, ())}).add(record.request.job)
    if not wanted:
        return Point(Outcome.NOT_CAPTURED, "how many jobs there were: no record says")
    short = [name for name, count in wanted.items() if len(here[name]) < count]
    without = [
        f"job {job + 1} of {name} has no record"
        for name, count in wanted.items()
        for job in islice((job for job in range(count) if job not in here[name]), _MOST_NAMED)
    ]
    odd = [
        f"job {job + 1} of {name} is out of range, the command has {wanted[name]}"
        for name, jobs in here.items()
        for job in jobs
        if job >= wanted[name]
    ]
    if without and not odd and (alone := material.file_alone):
        return Point(Outcome.NOT_COMPARABLE, f"one file of a command, {alone.name}: {listed(without)}")
    known = {name_of(folder, document) for folder, document in material.commands.items()}
    if without and not odd and all(name not in known and here[name] == set(range(len(here[name]))) for name in short):
        says = "no command.json says if it ran: left out, or its command was interrupted"
        return Point(Outcome.NOT_COMPARABLE, f"{listed(without)}; {says}")
    total = sum(wanted.values())
    good = f"{counted(total, 'job')} of {counted(len(wanted), 'command')}, each with records"
    return captured_or([*without, *odd], good, total, "jobs")


def _command_json(material: Material) -> Iterator[Point]:
    """Yield how the cases of every command.json compare with the records beside it."""
    if not material.commands:
        yield Point(Outcome.NOT_CAPTURED, "no command.json: only configurations say what was asked for")
        return
    odd: list[str] = []
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        members = material.by_command.get(name, [])
        texts = list(_asked_for(document.get("jobs"), members, material.not_run.get(name, ())))
        odd += [f"{name}: {listed(texts)}"] if texts else []
    good = f"command.json of {counted(len(material.commands), 'command')}: all cases are there, or did not run"
    yield captured_or(odd, good, len(material.commands), "command.json contradict their records")


def _asked_for(jobs: Any, members: Sequence[Record], not_run: Any) -> Iterator[str]:
    """What the jobs of a command.json say against its records. not_run: the cases that it did not come to."""
    if not isinstance(jobs, list) or any(not isinstance(job, dict) for job in jobs):
        yield f"jobs is {jobs!r:.40}, which no command writes"
        return
    wanted, here, left = (
        Counter(cases_of(jobs)),
        Counter[Asked]((one.request.job, one.id) for one in members),
        Counter(not_run),
    )
    yield from (f"{case} is not there" for _, case in wanted - here - left)
    yield from (f"{case} is said not to have run, and has a record" for _, case in here & left)
    yield from (f"{case} was not requested" for _, case in here - wanted)


def _twice(material: Material) -> Iterator[str]:
    """Records that are there more than once: of one case of a job, or in another file of a command's folder."""
    found = Counter((one.request.command, one.request.job, one.id) for one in material.records)
    yield from (
        f"{case} of job {job + 1} of {command} has {count} records"
        for (command, job, case), count in found.items()
        if count > 1 and command
    )
    for folder, document in material.commands.items():
        files = sum(path.suffix == ".json" and path.parent == folder for path in record_files(folder))
        here = len(material.by_command.get(name_of(folder, document), ()))
        if files > here:
            yield f"{folder.name} has {files} files of records, and {here} records of its command"


def manifest(material: Material) -> Iterator[Point]:
    """Every file against the manifest of its folder, and files to which nothing refers."""
    if not material.places:
        yield Point(Outcome.NOT_CAPTURED, "no files, so no manifest")
    sealed: list[str] = []
    for place in material.places:
        above = _sealed_above(place)
        folders = [path.parent for path in below(place, MANIFEST)]
        for folder in [above] if above else folders:
            found = [sentence for name, sentence in faults(folder) if concerns(name, folder, place)]
            sealed += [] if found else [folder.name]
            yield from contradicted(found, f"{folder.name}: ")
        bare = [path for path in record_files(place) if not above and not any(one in path.parents for one in folders)]
        if bare:
            says = f"{place.name}: no {MANIFEST} covers {counted(len(bare), 'file')} of records"
            yield Point(Outcome.NOT_CAPTURED, says)
    if sealed:
        says = f"{MANIFEST} of {counted(len(sealed), 'folder')}, such as {sealed[0]}: every file is as it was"
        yield Point(Outcome.CAPTURED, says)


def _sealed_above(place: Path) -> Path | None:
    """Return the nearest folder with a manifest, from a place upwards, or None."""
    place = place.resolve()
    return next((folder for folder in (place, *place.parents) if (folder / MANIFEST).is_file()), None)


def concerns(name: str, folder: Path, place: Path) -> bool:
    """Whether a file of a folder belongs to a place. The manifest concerns every place."""
    if name == MANIFEST:
        return True
    path, place = (folder / name).resolve(), place.resolve()
    return path == place or place in path.parents or place in folder.resolve().parents


def _document(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty for anything else, such as a damaged record that was put aside."""
    try:
        document = parsed(contents(path).decode("utf-8"))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def replay(material: Material) -> Iterator[Point]:
    """The command that runs the records again; of a replay, its verdict. The worker runs cases again."""
    if lacking := [one.id for one in material.records if one.request.configuration is None]:
        says = f"{counted(len(lacking), 'record')} without a configuration can't be run again: {listed(lacking)}"
        yield Point(Outcome.NOT_CAPTURED, says)
        return
    verdicts = [(place if place.is_dir() else place.parent) / VERDICT_NAME for place in material.places]
    verdicts = [path for path in verdicts if path.is_file()]
    place = shlex.quote(str(material.places[0])) if material.places else "RECORDS"
    if not verdicts:
        says = f"symlab replay {place}: runs the cases again where they ran, in new worlds, and compares"
        yield Point(Outcome.CAPTURED, says)
    for path in verdicts:
        document = _document(path)
        code, verdict = document.get("exit_code"), document.get("verdict")
        if type(code) is not int:
            yield Point(Outcome.FINDING, f"{path.name} is not what a replay writes")
            continue
        outcome = {VERIFIED: Outcome.CAPTURED, FINDING: Outcome.FINDING}.get(code, Outcome.NOT_COMPARABLE)
        yield Point(outcome, f"these records are a replay; {path.name} says: {verdict} (exit code {code})")
