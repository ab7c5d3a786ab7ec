"""What an earlier process of the same command has left: where a resumed command begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cases.record.record import Record
from runner.records.command_json import CommandDocument
from runner.records.store import Store
from runner.track.names import Kept


@dataclass(frozen=True, slots=True)
class Earlier:
    """The folder of a command that is resumed. Its creator holds the folder's lock until the command has ended.

    document is what command.json says from now on: no end, and this resumption as the last one. kept are the records
    that count, in the order in which their cases were asked for.
    """

    store: Store
    document: CommandDocument
    kept: tuple[Kept, ...]

    @property
    def number(self) -> int:
        """Which resumption this is, from 1."""
        return len(self.document.resumed)

    @property
    def records(self) -> list[Record]:
        return [one.record for one in self.kept]

    @property
    def paths(self) -> list[Path]:
        return [one.path for one in self.kept]

    def paths_of(self, job: int) -> list[Path]:
        """The records of one job: its series are sent to MLflow as a whole."""
        return [one.path for one in self.kept if one.record.request.job == job]

    def whole(self, records: Iterable[Record]) -> list[Record]:
        """All records of the command in the order in which their cases were asked for."""
        return self.document.in_order(records)
