"""Whether all that was asked for is there, whole, and can be run again: items 16 and 18 to 20 of the checklist."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

from reports.audit.asked import ended, jobs
from reports.audit.comparison import FINDING, VERIFIED
from reports.audit.items import Item, Outcome, Point, counted, listed, verified_or
from reports.audit.material import Material, verdict_beside
from reports.record.bundle import record_files
from reports.record.record import Status
from reports.record.seal import MANIFEST, faults
from reports.table.text import reason_of


def counts(material: Material) -> Item:
    found = Counter(record.status for record in material.records)
    says = ", ".join(f"{found[status]:,} {status}" for status in Status if found[status])
    without = [one.id for one in material.records if one.status is not Status.PASSED and not reason_of(one)]
    if found[Status.PASSED] == len(material.records):
        points = [Point(Outcome.CAPTURED, says)]
    else:
        good = f"{says}; each that did not pass says why"
        points = [verified_or(without, good, len(material.records), "without a reason")]
    points.append(_expected(material))
    points += jobs(material)
    points += ended(material)
    return Item(16, "expected = passed + failed + refused", tuple(points))


def _expected(material: Material) -> Point:
    """The worker's word on the cases that were asked for."""
    if material.again is None:
        return Point(Outcome.NOT_COMPARABLE, f"what was asked for was not worked out here: {material.problem}")
    found = material.again["cases"]
    odd = [f"{case} of {command} is missing" for command, _, case in found["missing"]]
    odd += [f"{case} of {command} was not asked for" for command, _, case in found["unexpected"]]
    if odd:
        return Point(Outcome.FINDING, f"{len(odd)} of {counted(found['expected'], 'case')}: {listed(odd)}")
    if found["not_comparable"]:
        texts = [f"job {job} of {command}: {why}" for command, job, why in found["not_comparable"]]
        return Point(Outcome.NOT_COMPARABLE, f"{counted(len(texts), 'job')}: {listed(texts)}")
    return Point(Outcome.VERIFIED, f"{counted(found['expected'], 'case')} asked for; all are there, and no others")


def whole(material: Material) -> Item:
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
            sealed[folder] = len((folder / MANIFEST).read_bytes().splitlines())
            points += _damage(folder, place, sealed[folder])
        bare = [path for path in record_files(place) if not above and not any(one in path.parents for one in below)]
        if bare:
            says = f"{place.name}: no {MANIFEST} covers {counted(len(bare), 'file')} of records"
            points.append(Point(Outcome.NOT_CAPTURED, says))
    if sealed and not any(point.outcome is Outcome.FINDING for point in points):
        files = counted(sum(sealed.values()), "file")
        points.insert(
            0, Point(Outcome.VERIFIED, f"{MANIFEST} of {listed(one.name for one in sealed)}: {files} as they were")
        )
    return Item(18, name, tuple(dict.fromkeys(points)))


def _damage(folder: Path, place: Path, lines: int) -> list[Point]:
    """What is not as a folder's manifest has it, as far as it concerns a place."""
    found = [sentence for name, sentence in faults(folder) if _concerns(name, folder, place)]
    if not found:
        return []
    says = f"{len(found)} of {lines} files of {folder.name}: {listed(found, 10)}"
    return [Point(Outcome.FINDING, says)]


def _sealed_above(place: Path) -> Path | None:
    """The folder whose manifest covers a place: itself, or the nearest above it."""
    place = place.resolve()
    for folder in (place, *place.parents):
        if folder.is_dir() and (folder / MANIFEST).is_file():
            return folder
    return None


def _concerns(name: str, folder: Path, place: Path) -> bool:
    """A file with a fault is of this place, or the manifest itself."""
    if name == MANIFEST:
        return True
    path, place = (folder / name).resolve(), place.resolve()
    return path == place or place in path.parents or place in folder.resolve().parents


def replayable(material: Material) -> Item:
    lacking = [one.id for one in material.records if one.request.configuration is None]
    name = "one command runs it again"
    if lacking:
        says = f"{counted(len(lacking), 'record')} without a configuration can't be run again: {listed(lacking)}"
        return Item(19, name, (Point(Outcome.NOT_CAPTURED, says),))
    place = shlex.quote(str(material.places[0])) if material.places else "RECORDS"
    says = f"python -m runner replay {place}: runs the cases again and compares; this audit did not"
    verdicts = [_replayed(path) for place in material.places if (path := verdict_beside(place)).is_file()]
    return Item(19, name, tuple(verdicts) or (Point(Outcome.CAPTURED, says),))


def _replayed(path: Path) -> Point:
    """What the verdict of a replay says, in whose folder the records lie."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        code, verdict = document["exit_code"], str(document["verdict"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Point(Outcome.FINDING, f"{path.name} is not what a replay leaves ({type(error).__name__}: {error})")
    outcomes = {VERIFIED: Outcome.VERIFIED, FINDING: Outcome.FINDING}
    outcome = outcomes.get(code, Outcome.NOT_COMPARABLE) if type(code) is int else Outcome.FINDING
    return Point(outcome, f"these records are a replay; {path.name} says: {verdict} (exit code {code!r})")


def gaps(material: Material, items: tuple[Item, ...]) -> Item:
    """What is not captured, named: by the capture itself, and by the other items."""
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
        else "nothing is missing of the others"
    )
    points.append(Point(Outcome.CAPTURED, says))
    return Item(20, "what is not captured is named", tuple(dict.fromkeys(points)))
