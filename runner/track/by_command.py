"""The records that a command line names, each as a file, by the command that made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cases.record.record import load
from cases.record.shared import Known, SharedError
from reports.record import bundle
from reports.table.text import counted
from runner.records.command_json import command_document_of
from runner.records.store import file_stem
from runner.track.names import Kept, begun


def by_command(places: Sequence[Path]) -> tuple[dict[str, list[Kept]], list[str]]:
    """The records in these files, bundles and folders of them, by command and in the order in which they were begun;
    and what is wrong with those files that can't be taken."""
    commands: dict[str, list[Kept]] = {}
    problems: list[str] = []
    missing: dict[str, list[Path]] = {}
    seen: set[tuple[object, ...]] = set()
    known = Known()
    for path in [path for place in places for path in _files(place)]:
        try:
            kept = _kept(path, known)
        except SharedError as error:
            missing.setdefault(error.what, []).append(path)
            continue
        except ValueError as error:
            problems.append(str(error))
            continue
        for one in kept:
            record = one.record
            key = (record.request.command, record.request.job, record.id, record.started)
            if key in seen:
                continue  # in a bundle, and beside it
            seen.add(key)
            if record.request.command:
                commands.setdefault(record.request.command, []).append(one)
            else:
                problems.append(f"{path}: the record does not say which command it belongs to, it can't be sent")
    for what, paths in missing.items():  # of all records of a command: one sentence
        more = f" and {counted(len(paths) - 1, 'more record')}" if len(paths) > 1 else ""
        problems.append(f"{paths[0]}{more}: {what}")
    for command, kept in list(commands.items()):
        kept.sort(key=begun)
        try:
            command_document_of(kept[0].path.parent)
        except ValueError as error:
            # Without it, it is unknown whether these are all of its records.
            problems.append(str(error))
            del commands[command]
    return commands, problems


def _files(place: Path) -> list[Path]:
    """The records and bundles of a place. ValueError, naming it, if there are none."""
    if not place.exists() or not (found := bundle.record_files(place)):
        raise ValueError(f"{place}: no records here; give a record file or a folder that holds some")
    return found


def _kept(path: Path, known: Known) -> list[Kept]:
    """The records of a file; of a bundle each as if it were a file below it. ValueError for any other file."""
    here = path.absolute()
    if not path.name.endswith(bundle.SUFFIX):
        return [Kept(here, load(path, known))]
    records = enumerate(bundle.unpacked(path, known))
    return [Kept(here / f"{file_stem(f'{number:05d}', record.id)}.json", record) for number, record in records]
