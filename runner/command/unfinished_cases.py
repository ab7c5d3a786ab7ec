"""What a command left in the folder of its records, and what it did not: for symlab resume."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.record.record import Record, load
from cases.record.shared import Known, SharedError
from reports.record.seal import MANIFEST, faults
from runner.records.command_json import COMMAND_JSON, CommandDocument, command_document_of
from runner.records.store import file_stem
from runner.request.schema import TimingMode
from runner.request.validate import CUSTOM
from runner.request_error import RequestError
from runner.track.names import Kept


def check_folder_of(folder: Path) -> None:
    """RequestError for what is no folder of one command."""
    if (folder / COMMAND_JSON).is_file():
        return
    if not folder.is_dir():
        raise RequestError(f"{folder}: no such folder (RECORDS), give the folder of a command's records")
    inside = sorted(path.parent.name for path in folder.glob(f"*/{COMMAND_JSON}"))
    right = f"give one of the folders in it, such as {inside[-1]}" if inside else "give the folder of a command"
    raise RequestError(f"{folder}: no {COMMAND_JSON} here (RECORDS), {right}")


def document_in(folder: Path) -> CommandDocument:
    """The command.json of such a folder. RequestError if it can't be read."""
    try:
        document = command_document_of(folder)
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS), restore that file, or run the command again") from error
    assert document is not None
    return document


def is_whole(folder: Path, left: Left) -> bool:
    """Whether the command has ended with a record of every case."""
    return not left.undone and left.document.end is not None and (folder / MANIFEST).is_file()


@dataclass(frozen=True, slots=True)
class Left:
    """What is in a folder, and what is not: the records that count, the cases without one, the names of files that
    don't count, and what is not as the command left it."""

    document: CommandDocument
    kept: tuple[Kept, ...]
    undone: tuple[tuple[int, str], ...]
    set_aside: tuple[str, ...]
    remarks: tuple[str, ...]


def left_in(folder: Path) -> Left:
    """Look at all records of a folder. RequestError if it is not what a command leaves, or records were changed."""
    document = document_in(folder)
    kept, damaged = _records_in(folder, document)
    if any(one.record.request.replays is not None for one in kept):
        raise RequestError(f"{folder.name} is part of a replay (RECORDS), replay its records again")
    remarks = _remarks(folder, document, damaged)
    good = [one for one in kept if not _is_untimed(one.record)]
    untimed = [one.path.name for one in kept if _is_untimed(one.record)]
    by_case = {(one.record.request.job, one.record.id): one for one in reversed(good)}
    return Left(
        document=document,
        kept=tuple(by_case[case] for case in document.cases if case in by_case),
        undone=tuple(case for case in document.cases if case not in by_case),
        set_aside=(*damaged, *untimed),
        remarks=remarks,
    )


def _records_in(folder: Path, document: CommandDocument) -> tuple[list[Kept], list[str]]:
    """The records in a folder, and the names of files that should be records and can't be read."""
    is_sweep = len(document.jobs) > 1
    stems = {file_stem(f"{job:02d}" if is_sweep else "", case) for job, case in document.cases}
    asked = set(document.cases)
    kept, damaged, known = [], [], Known()
    for path in sorted(folder.glob("*.json")):
        stem = path.name.removesuffix(".json")
        if path.name == COMMAND_JSON:
            continue
        try:
            record = load(path, known)
        except SharedError as error:
            raise RequestError(f"{error} (RECORDS), restore that file, or run the command again") from None
        except ValueError:
            if stem in stems or re.sub(r"\.[0-9]+$", "", stem) in stems:
                damaged.append(path.name)
            continue
        if record.request.command != document.command or (record.request.job, record.id) not in asked:
            raise RequestError(f"{path.name} is no record of this command (RECORDS), move it to another folder")
        kept.append(Kept(path, record))
    return kept, damaged


def _remarks(folder: Path, document: CommandDocument, damaged: Sequence[str]) -> tuple[str, ...]:
    """What is not as the command left it, of a command that has ended: such as files that are gone.

    Records that can't be read or are gone are made again. RequestError for a file that was changed: a new manifest
    would hide it.
    """
    if not (folder / MANIFEST).is_file():
        return ()
    try:
        found = faults(folder)
        lines = (folder / MANIFEST).read_bytes().splitlines()
    except (ValueError, OSError) as error:
        raise RequestError(f"{error} (RECORDS)") from error
    listed = {line.decode(errors="replace").partition("  ")[2] for line in lines}
    remarks = []
    for name, sentence in found:
        if name in damaged or (name not in listed and name != MANIFEST):
            continue
        if (folder / name).exists():
            raise RequestError(
                f"{folder.name}: {sentence}, so it is not as the command left it (RECORDS), restore the file, or "
                "run the command again"
            )
        remarks.append(f"not as it was left: {sentence}")
    return tuple(remarks)


def _is_untimed(record: Record) -> bool:
    """Whether a case passed its check and was to be timed, and an interrupt came before."""
    timing = (record.request.configuration or {}).get("timing") or {}
    on_gpus = record.fabric is not None and not record.fabric.simulated
    is_timed = record.case.op != CUSTOM and timing.get("mode") != TimingMode.none
    return on_gpus and record.verified and record.timing is None and is_timed
