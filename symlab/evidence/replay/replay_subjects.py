"""What a replay is of: records that are read, and what of them can't run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
