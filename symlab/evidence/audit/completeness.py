"""Items "cases", "manifest", "replay" and "gaps": is every requested case there, once and unchanged, can it be run
again, and is what is missing named?

The worker derives the cases from the configurations. Here records are compared with command.json: a key that it lacks
is NOT CAPTURED; a value that contradicts the records, or that no command writes, is a finding.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cases.documents import parsed
from cases.record.reading import contents
from cases.record.record import Record, Status
from cases.record.shared import PARTS, SHARED, is_shared_file
from reports.record.bundle import VERDICT_NAME, record_files
from reports.record.seal import MANIFEST, faults
from reports.table.text import counted, reason_of
from symlab.evidence.audit.comparison import FINDING, VERIFIED
from symlab.evidence.audit.items import Item, Outcome, Point, captured_or, contradicted, listed
from symlab.evidence.audit.level import with_outcome
from symlab.evidence.audit.material import COMPLETE, Asked, Material, cases_of, name_of

_MOST_NAMED = 100
"""Maximum number of missing jobs to count per command: a damaged record may name any number of jobs."""

_IDENTITY = ("id", "started", "ended", "duration_s")


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
    """Whether every job of each command has a record. The requests name the number of jobs."""
    wanted: dict[str, int] = {}
    here: dict[str, set[int]] = {}
    for record in material.records:
        name, number = record.request.command, record.request.jobs
        if number is not None:
            wanted[name] = max(wanted.get(name, 0), number)
            here.setdefault(name, {job for job, _ in material.not_run.get(name, ())}).add(record.request.job)
    if not wanted:
        return Point(Outcome.NOT_CAPTURED, "how many jobs there were: no record says")
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
    total = sum(wanted.values())
    good = f"{counted(total, 'job')} of {counted(len(wanted), 'command')}, each with records"
    return captured_or([*without, *odd], good, total, "jobs")


def _command_json(material: Material) -> Iterator[Point]:
    """Yield how the cases and counts of every command.json compare with the records beside it."""
    if not material.commands:
        yield Point(Outcome.NOT_CAPTURED, "no command.json: only configurations say what was asked for")
    odd: list[str] = []
    lacking: list[str] = []
    for folder, document in material.commands.items():
        name = name_of(folder, document)
        members = material.by_command.get(name, [])
        lacking += [f"{key} of {name}" for key in ("jobs", "counts") if document.get(key) is None]
        if document.get("jobs") is not None:
            odd += [f"{name}: {text}" for text in _asked_for(document["jobs"], members, material.not_run.get(name, ()))]
        now = dict(Counter(str(one.status) for one in members))
        if document.get("counts") not in (None, now):
            odd.append(f"{name} ended with {document['counts']!r:.60}, and there are {now}")
    if material.commands:
        good = f"command.json of {counted(len(material.commands), 'command')}: all cases are there, or did not run"
        yield captured_or(odd, good, len(material.commands), "command.json contradict their records")
    if lacking:
        yield Point(Outcome.NOT_CAPTURED, f"command.json has no {listed(lacking)}")


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


def manifest(material: Material) -> Iterator[Point]:
    """Every file against the manifest of its folder, and files to which nothing refers."""
    if not material.places:
        where = f"{material.source}: " if material.source else ""
        yield Point(Outcome.NOT_CAPTURED, f"{where}no files, so no manifest")
    sealed: list[str] = []
    for place in material.places:
        above = _sealed_above(place)
        below = sorted(path.parent for path in place.rglob(MANIFEST)) if place.is_dir() and above is None else []
        for folder in [above] if above else below:
            found = [sentence for name, sentence in faults(folder) if concerns(name, folder, place)]
            sealed += [] if found else [folder.name]
            yield from contradicted(found, f"{folder.name}: ")
        bare = [path for path in record_files(place) if not above and not any(one in path.parents for one in below)]
        if bare:
            says = f"{place.name}: no {MANIFEST} covers {counted(len(bare), 'file')} of records"
            yield Point(Outcome.NOT_CAPTURED, says)
    if sealed:
        says = f"{MANIFEST} of {counted(len(sealed), 'folder')}, such as {sealed[0]}: every file is as it was"
        yield Point(Outcome.CAPTURED, says)
    yield from _left_over(material)


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


def _twice(material: Material) -> Iterator[str]:
    """Files of one folder that hold the same record: symlab writes each once. Copies of whole folders are no finding:
    their records count once."""
    places = [place for place in material.places if place.is_dir()]
    known: dict[tuple[Path, str], Path] = {}
    for path in (path for place in places for path in record_files(place) if path.suffix == ".json"):
        folder = next((one for one in path.parents if one in material.commands), path.parent)
        document = _document(path)
        key = folder, json.dumps([document.get(name) for name in _IDENTITY])
        if known.setdefault(key, path) != path:
            yield f"{path.name} of {folder.name} holds the record of {known[key].name}, which no command writes twice"


def _left_over(material: Material) -> Iterator[Point]:
    """Yield which files in shared/ no record beside them refers to. A command writes such a file before the record that
    refers to it: where it ended in between, the file is alone."""
    odd, unsure = [], []
    for folder, command in material.commands.items():
        paths = [path for path in sorted(folder.glob(f"{SHARED}/*")) if is_shared_file(path) and path.is_file()]
        own = [path for path in folder.rglob("*.json") if path.parent.name != SHARED] if paths else []
        named = {name for path in [*own, *folder.glob("*.set_aside")] for name in _referred(path)}
        for path in (path for path in paths if path.stem not in named):
            where = f"{folder.name}/{SHARED}/{path.name[:12]}.."
            if hashlib.sha256(contents(path)).hexdigest() != path.stem:
                odd.append(f"{where}, whose SHA-256 is not its name")
            elif command.get("outcome") == COMPLETE and not command.get("resumed"):
                odd.append(f"{where}, and its command ran to its end in one piece")
            else:
                unsure.append(where)
    says = "to which no record refers"
    if odd:
        yield Point(Outcome.FINDING, f"{counted(len(odd), 'file')} {says}: {listed(odd)}")
    if unsure:
        text = f"{counted(len(unsure), 'file')} {says}: {listed(unsure)}; an interrupted command may leave some"
        yield Point(Outcome.NOT_COMPARABLE, text)


def _referred(path: Path) -> Iterator[str]:
    """Yield the names of the shared files that the record in a file refers to."""
    document = _document(path)
    parts = (document.get(name) for name in PARTS)
    yield from (
        str(part[SHARED]).removeprefix("sha256:") for part in parts if isinstance(part, dict) and SHARED in part
    )


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


def gaps(material: Material, items: Sequence[Item]) -> Item:
    """Return the item of the gaps: those that the captures name themselves, and the items with a point that is NOT
    CAPTURED."""
    points = []
    for environment in material.environments:
        named = environment.get("not_captured")
        if isinstance(named, dict):
            says = f"the capture names {counted(len(named), 'gap')}"
            points.append(Point(Outcome.CAPTURED, f"{says}: {listed(sorted(named), 8)}" if named else says))
        else:
            points.append(Point(Outcome.NOT_CAPTURED, "the records do not say what they lack"))
    open_items = ", ".join(with_outcome(items, Outcome.NOT_CAPTURED))
    says = f"not captured is something of {open_items}" if open_items else "nothing of the other items is missing"
    return Item("gaps", tuple(dict.fromkeys((*points, Point(Outcome.CAPTURED, says)))))
