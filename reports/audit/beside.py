"""The files of a command's folder against each other: records that are there twice, and what records refer to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from cases.documents import parsed
from cases.record.reading import contents
from cases.record.shared import PARTS, SHARED, is_shared_file
from reports.audit.items import Outcome, Point, listed
from reports.audit.material import Material
from reports.record.bundle import record_files
from reports.table.text import counted

_SET_ASIDE = "*.set_aside"
"""Records that a resumed command put aside, which refer to shared files as the others do."""

_IDENTITY = ("id", "started", "ended", "duration_s")


def twice(material: Material) -> list[Point]:
    """Return a finding if files of one folder hold the same record: symlab writes each once. Copies of whole folders
    are no finding: their records count once."""
    odd = []
    for folder in _folders(material):
        found: dict[str, Path] = {}
        for path in _files(folder, material):
            key, _ = _named(path)
            if key in found:
                odd.append(f"{path.name} of {folder.name} holds the record of {found[key].name}")
            found.setdefault(key, path)
    if not odd:
        return []
    return [Point(Outcome.FINDING, f"{counted(len(odd), 'record')} twice, which no command writes: {listed(odd)}")]


def left_over(material: Material) -> list[Point]:
    """Return a point for files in shared/ that no record beside them refers to.

    A command writes such a file before the record that refers to it: where it ended in between, the file is alone.
    """
    odd, unsure = [], []
    for folder in material.folders:
        paths = [path for path in sorted(folder.glob(f"{SHARED}/*")) if is_shared_file(path) and path.is_file()]
        named = _referred(folder, material) if paths else frozenset()
        for path in paths:
            where = f"{folder.name}/{SHARED}/{path.name[:12]}.."
            if path.stem in named:
                continue
            if hashlib.sha256(contents(path)).hexdigest() != path.stem:
                odd.append(f"{where}, whose SHA-256 is not its name")
            elif _ran_through(material.commands[folder]):
                odd.append(f"{where}, and its command ran to its end in one piece")
            else:
                unsure.append(where)
    points = []
    if odd:
        says = f"{counted(len(odd), 'file')} to which no record refers: {listed(odd)}"
        points.append(Point(Outcome.FINDING, says))
    if unsure:
        says = f"{counted(len(unsure), 'file')} to which no record refers: {listed(unsure)}"
        points.append(Point(Outcome.NOT_COMPARABLE, f"{says}; an interrupted command may leave some"))
    return points


def _ran_through(document: Mapping[str, Any]) -> bool:
    """Whether a command.json says that its command was neither interrupted nor resumed."""
    return document.get("outcome") == "complete" and not document.get("resumed")


def _folders(material: Material) -> tuple[Path, ...]:
    """The folders of commands, and all others that hold files of records."""
    places = [place for place in material.places if place.is_dir()]
    others = {path.parent for place in places for path in record_files(place) if path.suffix == ".json"}
    known = set(material.folders)
    return (*material.folders, *sorted(one for one in others if not known.intersection((one, *one.parents))))


def _files(folder: Path, material: Material) -> Iterator[Path]:
    """The files of single records that belong to a folder: of a command's folder those below it, too, down to the
    next command."""
    is_command = folder in material.folders
    for path in record_files(folder):
        if path.suffix != ".json":
            continue
        nearest = next((one for one in path.parents if one in material.folders), None)
        if nearest == folder if is_command else path.parent == folder:
            yield path


def _referred(folder: Path, material: Material) -> frozenset[str]:
    """The names of all shared files that records of a folder refer to."""
    paths = [*_files(folder, material), *(path for path in sorted(folder.glob(_SET_ASIDE)) if path.is_file())]
    return frozenset(name for path in paths for name in _named(path)[1])


def _named(path: Path) -> tuple[str, tuple[str, ...]]:
    """What tells the record of a file from any other, and the names of the shared files that it refers to. Nothing of a
    file that holds no record, such as a damaged one that was put aside."""
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1 << 15)
def _read(path: Path, changed_ns: int, size_bytes: int) -> tuple[str, tuple[str, ...]]:
    try:
        document = parsed(contents(path).decode("utf-8"))
    except ValueError:
        return "", ()
    if not isinstance(document, dict):
        return "", ()
    parts = [part for name in PARTS if isinstance(part := document.get(name), dict) and SHARED in part]
    names = tuple(str(part[SHARED]).removeprefix("sha256:") for part in parts)
    return json.dumps([document.get(name) for name in _IDENTITY]), names
