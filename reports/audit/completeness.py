"""Completeness: is every requested case there and unchanged, and can it be run again? Items 16 and 18 to 20.

The records are compared with command.json and with their own requests, which say what was asked for and how the command
ended; exit_codes and resumptions belong to item 17. A key that command.json lacks is NOT CAPTURED; a value that
contradicts the records, or that no command writes, is a finding.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from cases.documents import parsed
from cases.record.reading import contents
from cases.record.record import Record, Status
from reports.audit.beside import left_over, twice
from reports.audit.comparison import FINDING, VERIFIED
from reports.audit.items import Ground, Item, Outcome, Point, captured_or, listed, verified_or
from reports.audit.material import Asked, Material, verdict_beside
from reports.audit.reruns import running_points
from reports.record.bundle import record_files
from reports.record.code_changes import code_changes, compared_code
from reports.record.seal import MANIFEST, MOST_MANIFEST_BYTES, faults
from reports.table.average import too_slow
from reports.table.text import counted, reason_of

_STATUSES_OF_0 = frozenset({"PASSED", "REFUSED"})
_INTERRUPTED = 128
"""Larger exit codes are 128 plus the number of a signal."""

_MOST_NAMED = 100
"""Maximum number of missing jobs to count per command: a damaged record may name any number of jobs."""

_KINDS = {"jobs": list, "counts": dict}


def counts(material: Material) -> Item:
    """Item 16: the number of cases by status, against the cases that were asked for."""
    found = Counter(record.status for record in material.records)
    says = ", ".join(f"{found[status]:,} {status}" for status in Status if found[status])
    without = [one.id for one in material.records if one.status is not Status.PASSED and not reason_of(one)]
    if found[Status.PASSED] == len(material.records):
        points = [Point(Outcome.CAPTURED, says)]
    else:
        good = f"{says}; each that did not pass says why"
        points = [captured_or(without, good, len(material.records), "without a reason")]
    points += twice(material)
    points += _refused(material)
    points.append(_expected(material))
    points += _unfinished(material)
    points += _jobs(material)
    points += _ended(material)
    return Item(16, "expected = passed + failed + refused", tuple(points))


def _refused(material: Material) -> list[Point]:
    """Whether what was refused on GPUs is refused here, too, by the worker's word."""
    found = (material.again or {}).get("refusals")
    if found is None:
        return []
    agree, different, unsure = found["agree"], found["different"], found["not_comparable"]
    points, total = [], len(agree) + len(different) + len(unsure)
    if agree or different:
        texts = [f"{case}: {what}" for case, what in different]
        good = f"{counted(len(agree), 'refusal')} on GPUs decided again: refused here, too"
        share = len(agree) + len(different), total
        points.append(verified_or(texts, good, total, "refusals on GPUs are none here", Ground.RECOMPUTED, share))
    if unsure:
        texts = [f"{case}: {what}" for case, what in unsure]
        points.append(Point(Outcome.NOT_COMPARABLE, f"{counted(len(unsure), 'refusal')} on GPUs: {listed(texts)}"))
    return points


def _expected(material: Material) -> Point:
    """The cases that the worker derived from the configurations, against the records."""
    if material.again is None:
        return Point(Outcome.NOT_COMPARABLE, f"what was asked for was not worked out here: {material.problem}")
    found = material.again["cases"]
    missing = [
        (command, case)
        for command, job, case in found["missing"]
        if (job, case) not in material.not_run.get(command, ())
    ]
    odd = [f"{case} of {command} is missing" for command, case in missing]
    odd += [f"{case} of {command} was not requested" for command, _, case in found["unexpected"]]
    alone = material.file_alone
    if odd and alone and not found["unexpected"]:
        says = f"one file of a command, {alone.name}: {len(odd)} of {counted(found['expected'], 'case')} are not in it"
        return Point(Outcome.NOT_COMPARABLE, says)
    if odd:
        says = f"{len(odd)} of {counted(found['expected'], 'case')}: {listed(odd)}"
        return Point(Outcome.FINDING, says, Ground.RECOMPUTED)
    if found["not_comparable"]:
        texts = [f"job {job + 1} of {command}: {why}" for command, job, why in found["not_comparable"]]
        return Point(Outcome.NOT_COMPARABLE, f"{counted(len(texts), 'job')}: {listed(texts)}")
    if not found["expected"]:
        return Point(Outcome.NOT_CAPTURED, "no configuration says which cases were asked for")
    there = found["expected"] - len(found["missing"])
    if not there:
        return Point(Outcome.NOT_CAPTURED, "no case that was asked for ran")
    says = f"{counted(found['expected'], 'case')} asked for; all that ran are there, and no others"
    return Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (there, found["expected"]))


def _unfinished(material: Material) -> list[Point]:
    """A point for each command that did not come to all of its cases, and says so."""
    points = []
    for folder, document in material.commands.items():
        name = _name(folder, document)
        if cases := material.not_run.get(name):
            asked = document.get("cases_requested")
            total = f" of {asked:,}" if _is_int(asked) else ""
            how = f"{document.get('outcome') or 'it never ended: killed, or running'}"
            why = f" ({document['why']})" if document.get("why") else ""
            says = f"{len(cases):,}{total} cases of {name} did not run: {how}{why}; symlab resume runs them"
            points.append(Point(Outcome.NOT_CAPTURED, says))
    return points


def _jobs(material: Material) -> list[Point]:
    """Whether every job of each command has a record. The requests name the number of jobs."""
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
    not_run = {name: {job for job, _ in material.not_run.get(name, ())} for name in wanted}
    without = [
        f"job {job + 1} of {name} has no record"
        for name, count in wanted.items()
        for job in islice((job for job in range(count) if job not in found[name] | not_run[name]), _MOST_NAMED)
    ]
    odd = [
        f"{record.id}: job {record.request.job + 1} is out of range, the command has {wanted[name]}"
        for record in material.records
        if (name := record.request.command) in wanted and record.request.job not in range(wanted[name])
    ]
    if without and not odd and (alone := material.file_alone):
        return [Point(Outcome.NOT_COMPARABLE, f"one file of a command, {alone.name}: {listed(without)}")]
    good = f"{counted(total, 'job')} of {counted(len(wanted), 'command')}, each with records"
    return [captured_or([*without, *odd], good, total, "jobs")]


def _ended(material: Material) -> list[Point]:
    """The cases and counts of every command.json against the records beside it."""
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
                odd.append(f"{key} of {name} is {_brief(document[key])}, which no command writes")
        if isinstance(document.get("jobs"), list):
            wanted, strange = _wanted(document["jobs"], name)
            here: Counter[Asked] = Counter((one.request.job, one.id) for one in members)
            odd += strange
            not_run = Counter(material.not_run.get(name, ()))
            odd += [f"{case} of {name} is not there" for _, case in (wanted - here - not_run)]
            odd += [f"{case} of {name} is said not to have run, and has a record" for _, case in (here & not_run)]
            odd += [f"{case} of {name} was not requested" for _, case in (here - wanted)]
            asked += wanted.total()
        now = dict(Counter(str(one.status) for one in members))
        if isinstance(document.get("counts"), dict) and document["counts"] != now:
            odd.append(f"{name} ended with {document['counts']}, and there are {now}")
    commands = counted(len(material.commands), "command")
    points = []
    if odd:
        points.append(Point(Outcome.FINDING, f"command.json of {commands}: {listed(odd)}"))
    elif asked:
        says = f"command.json of {commands}: {counted(asked, 'case')} asked for, all there but those that did not run"
        points.append(Point(Outcome.CAPTURED, says))
    if lacking:
        points.append(Point(Outcome.NOT_CAPTURED, f"command.json has no {listed(lacking)}"))
    return points


def exit_codes(material: Material) -> Point:
    """A part of item 17: the exit code of every command, against the statuses of its records."""
    if not material.commands:
        return Point(Outcome.NOT_CAPTURED, "exit code: no command.json beside the records")
    odd: list[str] = []
    codes: list[int] = []
    never, killed = 0, 0
    for folder, document in material.commands.items():
        name, code = _name(folder, document), document.get("exit_code")
        if code is None and folder in material.killed:
            killed += 1
        elif code is None:
            never += 1
        elif not _is_int(code):
            odd.append(f"exit code of {name} is {_brief(code)}, which is not a number")
        else:
            codes.append(code)
            odd += _contradiction(name, code, document, _members(material, name))
    total = len(material.commands)
    if never:
        odd.insert(0, f"{never} of {counted(total, 'command')} never ended, and have a manifest or a part of the end")
    if odd:
        return Point(Outcome.FINDING, listed(odd))
    if killed:
        return Point(Outcome.NOT_CAPTURED, f"{killed} of {counted(total, 'command')} never ended: killed, or running")
    says = f"exit code of {counted(total, 'command')}: {listed(map(str, codes))}; as the cases ended"
    return Point(Outcome.CAPTURED, says)


def resumptions(material: Material) -> list[Point]:
    """A part of item 17: the resumptions of every command, against the records that name one."""
    points: list[Point] = []
    known = {_name(folder, document): document for folder, document in material.commands.items()}
    by_command: dict[str, list[Record]] = {}
    for record in material.records:
        by_command.setdefault(record.request.command, []).append(record)
    for name, members in by_command.items():
        document = known.get(name)
        numbers = Counter(one.request.resumed for one in members if one.request.resumed is not None)
        if document is None:
            if numbers:
                says = f"{name} was resumed: {counted(numbers.total(), 'record')} of it came later"
                points.append(Point(Outcome.CAPTURED, f"{says}; no command.json here says when"))
            continue
        listed_here = document.get("resumed", [])
        if not isinstance(listed_here, list) or not all(map(_is_resumption, listed_here)):
            points.append(Point(Outcome.FINDING, f"resumed of {name} is not what a command writes"))
        elif listed_here or numbers:
            points.append(_resumed(name, listed_here, members))
    return points


def _resumed(name: str, entries: list[dict[str, Any]], members: list[Record]) -> Point:
    """Compare the resumptions of one command.json with the records."""
    odd = []
    for one in members:
        number = one.request.resumed
        if number is None:
            continue
        if number > len(entries):
            odd.append(f"{one.id} came with resumption {number}, and command.json has {len(entries)}")
            continue
        commit = str((one.environment.git or {}).get("commit") or "")
        if commit != entries[number - 1]["commit"]:
            odd.append(f"{one.id} is of commit {commit[:12] or 'unknown'}, its resumption of another")
    said, contradictions = _code_of_parts(entries, members)
    odd += contradictions
    if odd:
        return Point(Outcome.FINDING, f"{name} was resumed, and not as its records say: {listed(odd)}")
    texts = []
    for number, entry in enumerate(entries, start=1):
        ran = sum(one.request.resumed == number for one in members)
        aside = f", {counted(len(entry['set_aside']), 'file')} set aside" if entry["set_aside"] else ""
        texts.append(f"{entry['at']} after it was {entry['after']}: {counted(ran, 'case')}, {said[number]}{aside}")
    return Point(Outcome.CAPTURED, f"{name} was resumed, as its records say: {'; '.join(texts)}")


def _code_of_parts(entries: list[dict[str, Any]], members: list[Record]) -> tuple[dict[int, str], list[str]]:
    """Compare the code of a resumed command's parts, as their records have it, with what command.json says of it.

    Returns what to say of each resumption by its number, and the contradictions.
    """
    parts: dict[int, list[Record]] = {}
    for one in members:
        parts.setdefault(one.request.resumed or 0, []).append(one)
    odd = [sentence for number, part in sorted(parts.items()) for sentence in _changed_within(number, part)]
    said = {}
    earlier = 0 if 0 in parts else None
    for number, entry in enumerate(entries, start=1):
        said[number] = f"changed before: {listed(entry['changed'], 10)}" if entry["changed"] else ""
        if number not in parts or earlier is None:
            missing = "it" if number not in parts else "the parts before it"
            said[number] = said[number] or f"its code can't be compared (no records of {missing})"
            earlier = number if number in parts else earlier
            continue
        before, after = (parts[part][0].environment for part in (earlier, number))
        odd += _unsaid(code_changes(before, after), entries[earlier:number], f"resumption {number}")
        same = listed(compared_code(before, after), 10)
        same = f"from the same code ({same.replace(';', ',')})" if same else "its code can't be compared (not recorded)"
        said[number] = said[number] or same
        earlier = number
    return said, odd


def _changed_within(number: int, part: list[Record]) -> list[str]:
    """A part is one process: what is not the same in two of its records."""
    name = f"resumption {number}" if number else "the first part"
    first, *others = part
    found = (line for one in others for line in code_changes(first.environment, one.environment))
    return [f"records of {name} are of different code: {line}" for line in dict.fromkeys(found)]


def _unsaid(changes: list[str], entries: list[dict[str, Any]], name: str) -> list[str]:
    """Changes of code between the records of two parts that the resumptions between them don't name, and named ones
    that the records don't have. With several resumptions, only the names of what changed can be compared."""
    said = [line for entry in entries for line in entry["changed"] if not line.startswith("kernel ")]
    if len(entries) == 1:
        odd = [
            f"command.json does not say of {name} what its records say: {line}" for line in changes if line not in said
        ]
        return odd + [
            f"command.json says of {name} what its records don't: {line}" for line in said if line not in changes
        ]
    names = {line.partition(":")[0] for line in said}
    return [
        f"command.json does not say of {name} what its records say: {line}"
        for line in changes
        if line.partition(":")[0] not in names
    ]


def _is_resumption(entry: object) -> bool:
    """Whether an entry of "resumed" has what a command writes."""
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(key), str) for key in ("at", "after", "commit"))
        and all(_are_texts(entry.get(key)) for key in ("changed", "set_aside"))
    )


def _contradiction(name: str, code: int, document: Mapping[str, Any], members: list[Record]) -> list[str]:
    """Return what contradicts an exit code. An interrupted command's code says nothing about its cases, and a command
    that gave up (outcome "stopped") ends with 1 whatever they were. Of a library that did not finish the code says
    nothing; commands of before ended with 1."""
    statuses = {str(one.status) for one in members}
    judged = {str(one.status) for one in members if not one.is_late_library}
    is_good = judged <= _STATUSES_OF_0 and "PASSED" in judged and not too_slow(members)
    said = f"{name} ended with exit code {code}, and its cases are {', '.join(sorted(statuses)) or 'none'}"
    if code == 0:
        return [] if is_good else [said]
    if code == 1:
        is_wrong = is_good and judged == statuses and document.get("outcome") == "complete"
        return [said] if is_wrong else []
    return [] if code > _INTERRUPTED else [f"{said}; a command that ran cases ends with 0, 1 or above {_INTERRUPTED}"]


def _wanted(listed_jobs: list[Any], name: str) -> tuple[Counter[Asked], list[str]]:
    """Return the cases that valid jobs list, and a sentence for each entry that is not a valid job."""
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


def whole(material: Material) -> Item:
    """Item 18: every file against the manifest of its folder."""
    name = "manifest with digests"
    if not material.places:
        where = f"{material.source}: " if material.source else ""
        return Item(18, name, (Point(Outcome.NOT_CAPTURED, f"{where}no files, so no manifest"),))
    points: list[Point] = []
    sealed: dict[Path, int] = {}
    for place in material.places:
        above = _sealed_above(place)
        below = sorted(path.parent for path in place.rglob(MANIFEST)) if place.is_dir() and above is None else []
        for folder in [above] if above else below:
            sealed[folder] = len(contents(folder / MANIFEST, MOST_MANIFEST_BYTES).splitlines())
            points += _damage(folder, place, sealed[folder])
        bare = [path for path in record_files(place) if not above and not any(one in path.parents for one in below)]
        if bare:
            says = f"{place.name}: no {MANIFEST} covers {counted(len(bare), 'file')} of records"
            points.append(Point(Outcome.NOT_CAPTURED, says))
    if sealed and not any(point.outcome is Outcome.FINDING for point in points):
        files = counted(sum(sealed.values()), "file")
        points.insert(
            0, Point(Outcome.CAPTURED, f"{MANIFEST} of {listed(one.name for one in sealed)}: {files} as they were")
        )
    points += left_over(material)
    return Item(18, name, tuple(dict.fromkeys(points)))


def _damage(folder: Path, place: Path, lines: int) -> list[Point]:
    """Return a finding if files of a place differ from the folder's manifest of the given number of lines."""
    found = [sentence for name, sentence in faults(folder) if concerns(name, folder, place)]
    if not found:
        return []
    says = f"{len(found)} of {counted(lines, 'file')} of {folder.name}: {listed(found, 10)}"
    return [Point(Outcome.FINDING, says)]


def _sealed_above(place: Path) -> Path | None:
    """Return the nearest folder with a manifest, from a place upwards, or None."""
    place = place.resolve()
    for folder in (place, *place.parents):
        if folder.is_dir() and (folder / MANIFEST).is_file():
            return folder
    return None


def concerns(name: str, folder: Path, place: Path) -> bool:
    """Whether a file of a folder belongs to a place. The manifest concerns every place."""
    if name == MANIFEST:
        return True
    path, place = (folder / name).resolve(), place.resolve()
    return path == place or place in path.parents or place in folder.resolve().parents


def replayable(material: Material) -> Item:
    """Item 19: the command that runs the records again; of a replay, its verdict."""
    lacking = [one.id for one in material.records if one.request.configuration is None]
    name = "one command runs it again"
    if lacking:
        says = f"{counted(len(lacking), 'record')} without a configuration can't be run again: {listed(lacking)}"
        return Item(19, name, (Point(Outcome.NOT_CAPTURED, says),))
    place = shlex.quote(str(material.places[0])) if material.places else "RECORDS"
    says = f"symlab replay {place}: runs the cases again where they ran, in new worlds, and compares"
    points = [_replayed(path) for place in material.places if (path := verdict_beside(place)).is_file()]
    points = points or [Point(Outcome.CAPTURED, says)]
    return Item(19, name, (*points, *running_points(material)))


def _replayed(path: Path) -> Point:
    """Return what a replay's verdict.json says of the records beside it."""
    try:
        document = parsed(contents(path).decode("utf-8"))
        code, verdict = document["exit_code"], str(document["verdict"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Point(Outcome.FINDING, f"{path.name} is not what a replay writes ({type(error).__name__}: {error})")
    outcomes = {VERIFIED: Outcome.CAPTURED, FINDING: Outcome.FINDING}
    outcome = outcomes.get(code, Outcome.NOT_COMPARABLE) if type(code) is int else Outcome.FINDING
    return Point(outcome, f"these records are a replay; {path.name} says: {verdict} (exit code {code!r})")


def gaps(material: Material, items: tuple[Item, ...]) -> Item:
    """Item 20: the gaps that the captures name themselves, and the items with a point that is NOT CAPTURED."""
    points = []
    for environment in material.environments:
        named = environment.get("not_captured")
        if isinstance(named, dict):
            says = f"the capture names {counted(len(named), 'gap')}"
            points.append(Point(Outcome.CAPTURED, f"{says}: {listed(sorted(named), 8)}" if named else says))
        else:
            points.append(Point(Outcome.NOT_CAPTURED, "the records do not say what they lack"))
    open_items = [str(item.number) for item in items if any(one.outcome is Outcome.NOT_CAPTURED for one in item.points)]
    says = (
        f"not captured is something of item {', '.join(open_items)}"
        if open_items
        else "nothing of the other items is missing"
    )
    points.append(Point(Outcome.CAPTURED, says))
    return Item(20, "what is not captured is named", tuple(dict.fromkeys(points)))
