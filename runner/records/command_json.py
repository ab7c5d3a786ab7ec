"""command.json in a records folder: what a command was asked to do and, once it has ended, how.

Written before the first case runs and again at the end. Where the end is missing, the command was killed (or still
runs): then, too, what was asked for is known, and nobody can take the records that are there for all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reports.record.codec import parsed, plain
from reports.record.record import Record

COMMAND_JSON = "command.json"
MANIFEST_SCHEMA = 1
"""Raised when a field changes its meaning or goes."""

COMPLETE, INTERRUPTED, STOPPED, KILLED = "complete", "interrupted", "stopped", "killed"


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job as it was asked for: its number, its overrides, the ids of its cases in their order."""

    number: int
    overrides: tuple[str, ...]
    cases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended. outcome: complete (every case ran), interrupted (why: the signal) or stopped (why).

    ended is ISO 8601 in UTC; counts are numbers of cases by status; cases_not_run are pairs of job and case id. load is
    how busy the machine was then (runner.environment.host.load); records say how busy it was at the start.
    """

    ended: str
    exit_code: int
    outcome: str
    why: str
    counts: Mapping[str, int]
    cases_not_run: tuple[tuple[int, str], ...]
    load: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandDocument:
    """A command. started is ISO 8601 in UTC; working_folder is a name without a path. end: None without one."""

    command: str
    command_line: tuple[str, ...]
    working_folder: str
    started: str
    jobs: tuple[AskedJob, ...]
    end: End | None = None

    @property
    def cases(self) -> tuple[tuple[int, str], ...]:
        """All cases that were asked for, as pairs of job and case id."""
        return tuple((job.number, case) for job in self.jobs for case in job.cases)

    @property
    def outcome(self) -> str:
        return self.end.outcome if self.end is not None else KILLED

    def not_run(self, records: Iterable[Record]) -> tuple[tuple[int, str], ...]:
        """The cases that none of these records is of."""
        ran = Counter((record.request.job, record.id) for record in records)
        missing = []
        for case in self.cases:
            if ran[case]:
                ran[case] -= 1
            else:
                missing.append(case)
        return tuple(missing)

    def ending(
        self,
        records: Iterable[Record],
        *,
        ended: str,
        exit_code: int,
        signal: str,
        stopped: str,
        load: Iterable[float] = (),
    ) -> CommandDocument:
        """The same with its end. signal is "" without an interrupt, stopped is why the work was given up, or ""."""
        records = list(records)
        missing = self.not_run(records)
        # An interrupt after the last case took nothing away.
        outcome = COMPLETE if not missing else INTERRUPTED if signal else STOPPED
        why = "" if not missing else signal or stopped or "no reason was given"
        counts = dict(Counter(str(record.status) for record in records))
        return replace(self, end=End(ended, exit_code, outcome, why, counts, missing, tuple(load)))

    def to_json(self) -> str:
        document = asdict(self)
        end = document.pop("end")
        document["cases_requested"] = len(self.cases)
        if self.end is not None:
            document |= end | {"cases_not_run": [{"job": job, "case": case} for job, case in self.end.cases_not_run]}
        return json.dumps({"schema": MANIFEST_SCHEMA, **document}, indent=2, ensure_ascii=False) + "\n"


def command_document_of(folder: Path) -> CommandDocument | None:
    """The manifest in a folder of records; None where there is none. ValueError for what can't be read."""
    path = folder / COMMAND_JSON
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
    try:
        document = plain(parsed(text), COMMAND_JSON)
        if document["schema"] > MANIFEST_SCHEMA:
            raise ValueError(f"schema {document['schema']}, this program reads up to {MANIFEST_SCHEMA}")
        return _decoded(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not what a command leaves ({type(error).__name__}: {error})") from None


def _decoded(document: dict[str, Any]) -> CommandDocument:
    jobs = tuple(AskedJob(job["number"], tuple(job["overrides"]), tuple(job["cases"])) for job in document["jobs"])
    end = None
    if "ended" in document:
        missing = tuple((case["job"], case["case"]) for case in document["cases_not_run"])
        rest = {key: document[key] for key in ("ended", "exit_code", "outcome", "why", "counts")}
        end = End(**rest, cases_not_run=missing, load=tuple(document.get("load", ())))
    line, folder = tuple(document["command_line"]), document["working_folder"]
    return CommandDocument(document["command"], line, folder, document["started"], jobs, end)
