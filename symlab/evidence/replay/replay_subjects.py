"""What a replay is of: records that are read, and what of them is damaged or can't run again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cases.record.reading import below
from reports.table.text import counted
from runner.request_error import RequestError

if TYPE_CHECKING:
    from cases.record.record import Record
    from symlab.evidence.replay.rebuild import Rebuilt


def records_of(what: str) -> list[Record]:
    """The records in a file, a folder or a bundle. RequestError where there are none."""
    from reports.record.bundle import read

    try:
        if Path(what).exists():
            return read([what])
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    raise RequestError(f"{what}: no such file or folder (RECORDS), give one")


def without_case(before: Sequence[Record], again: Rebuilt) -> tuple[str, ...]:
    """Names of the kernels, not of libraries' collectives, whose recorded cases could all not be run again."""
    from reports.table.compare import is_baseline

    there = {record.case.name for record in again.records}
    recorded = dict.fromkeys(record.case.name for record in before if not is_baseline(record))
    return tuple(name for name in recorded if name not in there)


def damage_of(what: str) -> list[str]:
    """What is not as commands left it in a folder of records: changed files, requested cases without a record. Empty
    for a single file or a bundle, where this is unknown."""
    from reports.record.bundle import read
    from reports.record.seal import MANIFEST, broken
    from runner.records.command_json import COMMAND_JSON, command_document_of

    found = []
    place = Path(what)
    for path in below(place, MANIFEST):
        found += [f"{path.parent.name}/{fault}" for fault in broken(path.parent)]
    for path in below(place, COMMAND_JSON):
        with contextlib.suppress(ValueError):  # no records, or a manifest that is not valid: its seal says so
            manifest = command_document_of(path.parent)
            missing = manifest.not_run(read([path.parent])) if manifest is not None else ()
            if missing:
                found.append(
                    f"{path.parent.name}: {counted(len(missing), 'missing case')} of those that were asked for"
                )
    return found
