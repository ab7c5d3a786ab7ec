"""The records that a command line names, each as a file, by the command that made them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cases.record.record import load
from cases.record.shared import Known, SharedError
from reports.record import bundle
from reports.table.text import counted
from runner.records.command_json import command_document_of
from runner.records.store import Store, record_paths
from runner.track.names import Kept


def by_command(places: Sequence[Path], folder: Path) -> tuple[dict[str, list[Kept]], list[str]]:
    """The records in these files, bundles and folders of them, by command and in the order in which they were begun;
    and what is wrong with those files that can't be taken. What comes from bundles is kept in folder.

    ValueError, naming it, for a place without records.
    """
    commands: dict[str, list[Kept]] = {}
    problems: list[str] = []
    missing: dict[str, list[Path]] = {}
    seen: set[tuple[object, ...]] = set()
    known = Known()
    for path in record_paths(_unpacked(places, folder)):
        try:
            record = load(path, known)
        except SharedError as error:
            missing.setdefault(error.what, []).append(path)
            continue
        except ValueError as error:
            problems.append(str(error))
            continue
        key = (record.request.command, record.request.job, record.id, record.started)
        if key in seen:
            continue  # in a bundle, and beside it
        seen.add(key)
        if record.request.command:
            commands.setdefault(record.request.command, []).append(Kept(path.absolute(), record))
        else:
            problems.append(f"{path}: the record does not say which command it belongs to, it can't be sent")
    for what, paths in missing.items():  # of all records of a command: one sentence
        more = f" and {counted(len(paths) - 1, 'more record')}" if len(paths) > 1 else ""
        problems.append(f"{paths[0]}{more}: {what}")
    for command, kept in list(commands.items()):
        kept.sort(key=lambda one: (datetime.fromisoformat(one.record.started), one.path.name))
        try:
            command_document_of(kept[0].path.parent)
        except ValueError as error:
            # Without it, it is unknown whether these are all of its records.
            problems.append(str(error))
            del commands[command]
    return commands, problems


def _unpacked(places: Sequence[Path], folder: Path) -> list[Path]:
    """The places, with the records of each bundle among them, or in a folder or below, in a folder of their own, under
    the names that a command gives them."""
    found: list[Path] = []
    for place in places:
        packed = sorted(place.rglob(f"*{bundle.SUFFIX}")) if place.is_dir() else []
        packed += [place] if place.name.endswith(bundle.SUFFIX) else []
        for path in packed:
            found.append(folder / str(len(found)))
            _unpack(path, found[-1])
        if not packed or any(place.rglob("*.json")):
            found.append(place)
    return found


def _unpack(path: Path, folder: Path) -> None:
    """The records of a bundle as files, one folder a command."""
    stores: dict[str, Store] = {}
    for record in bundle.unpacked(path):
        command = record.request.command
        if command not in stores:
            stores[command] = Store(folder / str(len(stores)))
        is_sweep = (record.request.jobs or 1) > 1
        stores[command].write(record, f"{record.request.job:02d}" if is_sweep else "")
