"""Items "cases", "manifest" and "replay": is every requested case there and unchanged, and can it be run again?

The worker derives the cases from the configurations. Here records are compared with what command.json says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cases.record.reading import below
from cases.record.record import Record, Status
from reports.record.bundle import record_files
from reports.record.seal import MANIFEST, faults
from reports.table.text import counted, reason_of
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.material import Asked, Material, cases_of, name_of

_MOST_NAMED = 100
"""Maximum number of missing jobs to count per command: a damaged record may name any number of jobs."""


def cases(material: Material) -> Iterator[Point]:
    """The number of cases by status, against the cases that were asked for."""
    found = Counter(record.status for record in material.records)
    good = ", ".join(f"{found[status]:,} {status}" for status in Status if found[status])
    without = (
        f"{one.id}: {one.status} without a reason"
        for one in material.records
        if one.status is not Status.PASSED and not reason_of(one)
    )
    yield from held((*without, *_twice(material), *_command_json(material)), good)
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        if not_run := material.not_run.get(name):
            how = f"{document.get('outcome') or 'it never ended: killed, or running'}"
            why = f" ({document['why']})" if document.get("why") else ""
            says = f"{len(not_run):,} cases of {name} did not run: {how}{why}; symlab resume runs them"
            yield Point(Outcome.NOT_CAPTURED, says)
    yield from _jobs(material)
    if not material.commands:
        yield Point(Outcome.NOT_CAPTURED, "no command.json: only configurations say what was asked for")


def _jobs(material: Material) -> Iterator[Point]:
    """Yield the jobs of each command that have no record. The requests name the number of jobs. Without a command.json
    the command may have been interrupted before its last ones."""
    wanted: dict[str, int] = {}
    here: dict[str, set[int]] = {}
    for record in material.records:
        name, number = record.request.command, record.request.jobs
        if number is not None:
            wanted[name] = max(wanted.get(name, 0), number)
            here.setdefault(name, {job for job, _ in material.not_run.get(name, ())}).add(record.request.job)
    if not wanted:
        yield Point(Outcome.NOT_CAPTURED, "how many jobs there were: no record says")
    known = {name_of(folder, document) for folder, document in material.commands.items()}
    for name, count in wanted.items():
        last = max(here[name])
        if last >= count:
            yield from held([f"job {last + 1} of {name} is out of range, the command has {count}"])
        gaps = islice((job for job in range(count) if job not in here[name]), _MOST_NAMED)
        without = listed(f"job {job + 1} of {name} has no record" for job in gaps)
        if without and material.file_alone:
            yield Point(Outcome.NOT_COMPARABLE, f"one file of a command, {material.file_alone.name}: {without}")
        elif without and name not in known and len(here[name]) == last + 1:
            says = "no command.json says if it ran: left out, or its command was interrupted"
            yield Point(Outcome.NOT_COMPARABLE, f"{without}; {says}")
        elif without:
            yield Point(Outcome.FINDING, without)


def _command_json(material: Material) -> Iterator[str]:
    """How the cases of every command.json contradict the records beside it."""
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        members = material.by_command.get(name, [])
        if texts := list(_asked_for(document.get("jobs"), members, material.not_run.get(name, ()))):
            yield f"{name}: {listed(texts)}"


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
            yield from held(f"{folder.name}: {sentence}" for sentence in found)
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


def replay(material: Material) -> Iterator[Point]:
    """Which records have no configuration, without which no case runs again; the worker runs the others."""
    if lacking := [one.id for one in material.records if one.request.configuration is None]:
        says = f"{counted(len(lacking), 'record')} without a configuration can't be run again: {listed(lacking)}"
        yield Point(Outcome.NOT_CAPTURED, says)
