"""command.json in a records folder: what a command was asked to do and, once it has ended, how.

Written before the first case runs and again at the end. Without an end the command was killed, or still runs: what was
asked for is known all the same, and a reader can tell how many records are missing. It holds what every job was
composed to, so that a command that was cut short can be resumed (runner/command/resume.py): the first job's
configuration in full, and of each other job only the values that differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cases.documents import decoded, parsed, plain
from cases.record.reading import contents
from cases.record.record import Record
from reports.table.average import too_slow

COMMAND_JSON = "command.json"
MANIFEST_SCHEMA = 1
"""Raised when a field changes its meaning or goes."""

COMPLETE, INTERRUPTED, STOPPED, KILLED = "complete", "interrupted", "stopped", "killed"

EXIT_PASSED, EXIT_FAILED = 0, 1


_DIFFERS = "differs"
"""Key of a job: what differs from the first job's plan, by dotted path."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a job was composed to: its experiment's name ("" without), the fabric that it was decided to run on, its
    configuration without secrets."""

    experiment: str
    fabric: str
    configuration: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskedJob:
    """A job as it was asked for: its number, its overrides, the ids of its cases in their order."""

    number: int
    overrides: tuple[str, ...]
    cases: tuple[str, ...]
    plan: JobPlan


@dataclass(frozen=True, slots=True)
class Resumption:
    """One resumption of a command that was cut short.

    at is ISO 8601 in UTC. after is the outcome that the command had. commit is that of the sources which went on (""
    if git does not say); changed lists in words what of the code was no longer as before. cases_left is the number of
    cases that it had to run; set_aside are names of files that it no longer counts as records.
    """

    at: str
    after: str
    commit: str
    changed: tuple[str, ...]
    cases_left: int
    set_aside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended. outcome: complete (every case ran), interrupted (why: the signal) or stopped (why).

    ended is ISO 8601 in UTC; counts are numbers of cases by status; cases_not_run are pairs of job and case id.
    """

    ended: str
    exit_code: int
    outcome: str
    why: str
    counts: Mapping[str, int]
    cases_not_run: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class CommandDocument:
    """A command. started is ISO 8601 in UTC; working_folder is a name without a path. end: None without one.

    resumed lists its resumptions, the first one first. launcher has the override lines that chose a launcher; it is
    empty of a command that ran in its own process.
    """

    command: str
    command_line: tuple[str, ...]
    working_folder: str
    started: str
    jobs: tuple[AskedJob, ...]
    end: End | None = None
    resumed: tuple[Resumption, ...] = ()
    launcher: tuple[str, ...] = ()

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
        self, records: Iterable[Record], *, ended: str, exit_code: int, signal: str, stopped: str
    ) -> CommandDocument:
        """The same with its end. signal is "" without an interrupt, stopped is why the work was given up, or ""."""
        records = list(records)
        missing = self.not_run(records)
        # An interrupt after the last case took nothing away.
        outcome = COMPLETE if not missing else INTERRUPTED if signal else STOPPED
        why = "" if not missing else signal or stopped or "no reason was given"
        counts = dict(Counter(str(record.status) for record in records))
        return replace(self, end=End(ended, exit_code, outcome, why, counts, missing))

    def in_order(self, records: Iterable[Record]) -> list[Record]:
        """These records in the order in which their cases were asked for."""
        places = {case: place for place, case in enumerate(self.cases)}
        return sorted(records, key=lambda record: places.get((record.request.job, record.id), len(places)))

    def resuming(self, resumption: Resumption) -> CommandDocument:
        """The same without its end, and with one more resumption."""
        return replace(self, end=None, resumed=(*self.resumed, resumption))

    def to_json(self) -> str:
        """The document as JSON. A job is one line: a sweep has thousands of them."""
        document: dict[str, Any] = {
            "schema": MANIFEST_SCHEMA,
            "command": self.command,
            "command_line": self.command_line,
            "working_folder": self.working_folder,
            "started": self.started,
        }
        first = _document(self.jobs[0].plan)
        document |= {"plan": first, "jobs": _JOBS}
        document["cases_requested"] = len(self.cases)
        if self.launcher:
            document["launcher"] = self.launcher
        if self.resumed:
            document["resumed"] = [asdict(one) for one in self.resumed]
        if self.end is not None:
            missing = [{"job": job, "case": case} for job, case in self.end.cases_not_run]
            document |= asdict(self.end) | {"cases_not_run": missing}
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        jobs = ",\n".join(f"    {json.dumps(_job(job, first), ensure_ascii=False)}" for job in self.jobs)
        return text.replace(json.dumps(_JOBS), f"[\n{jobs}\n  ]", 1)


def exit_code_for(records: Sequence[Record]) -> int:
    """The exit code of a command that ran all of its cases, from how they ended and how fast they were. A library that
    did not finish counts for nothing."""
    statuses = {str(record.status) for record in records if not record.is_late_library}
    is_good = statuses <= {"PASSED", "REFUSED"} and "PASSED" in statuses and not too_slow(records)
    return EXIT_PASSED if is_good else EXIT_FAILED


_JOBS = "\0jobs"
"""Stands for the list of jobs while the rest of the document is laid out. No name and no path has a NUL."""


def _job(job: AskedJob, first: Mapping[str, Any]) -> dict[str, Any]:
    """A job as JSON: with what differs from the first job's plan."""
    differs = dict(differing_values(first, _document(job.plan)))
    return {"number": job.number, "overrides": job.overrides, "cases": job.cases, _DIFFERS: differs}


def _document(plan: JobPlan) -> dict[str, Any]:
    return {"experiment": plan.experiment, "fabric": plan.fabric, "configuration": plan.configuration}


def differing_values(first: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of other that first does not have, by dotted path. Keys of both are the same, as a schema has them;
    where those of a section are not, the section is one value."""
    for key, value in other.items():
        if key in first and first[key] == value:
            continue
        both = isinstance(value, Mapping) and isinstance(first.get(key), Mapping)
        if both and set(value) == set(first[key]):
            yield from differing_values(first[key], value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _plan(first: Mapping[str, Any], differs: Mapping[str, Any]) -> JobPlan:
    """A job's plan from the first job's and what differs from that."""
    document = dict(first)
    for path, value in differs.items():
        *sections, key = path.split(".")
        section = document
        for name in sections:
            section[name] = dict(section[name])  # only what differs is copied: a sweep has thousands of jobs
            section = section[name]
        section[key] = value
    return JobPlan(str(document["experiment"]), str(document["fabric"]), dict(document["configuration"]))


def command_document_of(folder: Path) -> CommandDocument | None:
    """The manifest in a folder of records; None where there is none. ValueError for what can't be read."""
    path = folder / COMMAND_JSON
    if not path.exists():
        return None
    try:
        text = contents(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: can't be read ({error})") from None
    try:
        document = plain(parsed(text), COMMAND_JSON)
        if document["schema"] > MANIFEST_SCHEMA:
            raise ValueError(f"schema {document['schema']}, this program reads up to {MANIFEST_SCHEMA}")
        return _decoded(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else "it has values of other types"
        why = str(error) if isinstance(error, ValueError) else why
        raise ValueError(f"{path}: not what a command leaves: {why}") from None


def _decoded(document: dict[str, Any]) -> CommandDocument:
    first = document["plan"]
    jobs = tuple(
        AskedJob(job["number"], tuple(job["overrides"]), tuple(job["cases"]), _plan(first, job[_DIFFERS]))
        for job in document["jobs"]
    )
    if not jobs:
        raise ValueError("it has no jobs")
    end = None
    if "ended" in document:
        missing = tuple((case["job"], case["case"]) for case in document["cases_not_run"])
        rest = {key: document[key] for key in ("ended", "exit_code", "outcome", "why", "counts")}
        end = End(**rest, cases_not_run=missing)
    return CommandDocument(
        command=document["command"],
        command_line=tuple(document["command_line"]),
        working_folder=document["working_folder"],
        started=document["started"],
        jobs=jobs,
        end=end,
        resumed=tuple(decoded(Resumption, one, "resumed") for one in document.get("resumed", ())),
        launcher=tuple(document.get("launcher", ())),
    )
