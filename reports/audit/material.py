"""The input of a checklist: one set of records, the files beside them, and the worker's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cases.documents import encoded, parsed, plain
from cases.record.reading import contents, leaves
from cases.record.record import Record
from reports.audit.statistics import world_of
from reports.record.bundle import VERDICT_NAME
from reports.record.seal import MANIFEST

COMMAND_NAME = "command.json"
"""The file beside a command's records that says what it was asked for and how it ended."""

AT_ITS_END = ("ended", "exit_code", "outcome", "why", "counts", "cases_not_run")
"""What command.json gets when its command ends, however it ends, but for a kill."""

COMPLETE = "complete"

Asked = tuple[int, str]
"""The number of a job, and the id of a case that it asked for."""


@dataclass(frozen=True)
class Material:
    """One set of records. places: the files, folders and bundles that it was read from, empty for records from MLflow,
    which source names. again: the worker's answer (runner/audit_worker.py), or None, and problem gives the reason."""

    records: tuple[Record, ...]
    places: tuple[Path, ...] = ()
    again: dict[str, Any] | None = None
    problem: str = ""
    source: str = ""

    @cached_property
    def worlds(self) -> dict[str, list[Record]]:
        """Records by world, in order of appearance."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(world_of(record), []).append(record)
        return found

    @cached_property
    def by_case(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.id, []).append(record)
        return found

    @cached_property
    def timed(self) -> list[Record]:
        return [record for record in self.records if record.timing is not None]

    @cached_property
    def on_gpus(self) -> list[Record]:
        return [record for record in self.records if record.fabric is not None and not record.fabric.simulated]

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """Each environment once, in order of appearance."""
        documents = (encoded(record.environment) for record in self.records)
        return list({json.dumps(one, sort_keys=True): one for one in documents}.values())

    @cached_property
    def file_alone(self) -> Path | None:
        """The first place, if all are files of single records, which need not be a whole command; None otherwise."""
        is_alone = all(place.is_file() and place.suffix == ".json" for place in self.places)
        return self.places[0] if self.places and is_alone else None

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """Every folder with a command.json, which PTX and configurations lie beside."""
        tops = [place for place in self.places if place.is_dir()]
        return tuple(sorted({path.parent for top in tops for path in top.rglob(COMMAND_NAME)}))

    @cached_property
    def killed(self) -> frozenset[Path]:
        """The folders of commands that never ended, or are running: neither their end nor a manifest was written."""
        return frozenset(
            folder
            for folder, document in self.commands.items()
            if not any(key in document for key in AT_ITS_END) and not (folder / MANIFEST).exists()
        )

    @cached_property
    def not_run(self) -> dict[str, frozenset[Asked]]:
        """By command, the cases that it did not come to, as its command.json says; of a command that was killed, those
        without a record. A command that is not here came to all of its cases."""
        found = {}
        for folder, document in self.commands.items():
            name = str(document.get("command", folder.name))
            if document.get("outcome") not in (None, COMPLETE):
                found[name] = frozenset(_asked(document.get("cases_not_run")))
            elif folder in self.killed:
                here = {(one.request.job, one.id) for one in self.records if one.request.command == name}
                found[name] = frozenset(_listed(document.get("jobs"))) - here
        return {name: cases for name, cases in found.items() if cases}

    @cached_property
    def commands(self) -> dict[Path, dict[str, Any]]:
        """The content of each folder's command.json. Raises ValueError naming a file that can't be read."""
        found = {}
        for folder in self.folders:
            path = folder / COMMAND_NAME
            try:
                if path.is_symlink() and leaves(path, folder):
                    raise ValueError("a link that leaves the folder")
                document = plain(parsed(contents(path).decode("utf-8")), COMMAND_NAME)
            except (OSError, ValueError) as error:
                raise ValueError(f"{path}: can't be read ({error})") from None
            if not isinstance(document, dict):
                raise ValueError(f"{path}: not a JSON object, which commands write")
            found[folder] = document
        return found


def _asked(entries: object) -> Iterator[Asked]:
    """Yield the cases of a list as cases_not_run is."""
    for one in entries if isinstance(entries, list) else ():
        if isinstance(one, dict) and type(one.get("job")) is int and isinstance(one.get("case"), str):
            yield one["job"], one["case"]


def _listed(jobs: object) -> Iterator[Asked]:
    """Yield the cases of the jobs of a command.json."""
    for job in jobs if isinstance(jobs, list) else ():
        if isinstance(job, dict) and type(job.get("number")) is int and isinstance(job.get("cases"), list):
            yield from ((job["number"], case) for case in job["cases"] if isinstance(case, str))


def verdict_beside(place: Path) -> Path:
    """Return the path of a replay's verdict, which exists if a place is a replay's folder or a file in it."""
    return (place if place.is_dir() else place.parent) / VERDICT_NAME


def values_at(environment: dict[str, Any], path: str) -> list[Any]:
    """Return all values at a dotted path, through lists, without empty ones: "gpus.model" gives that of every GPU."""
    return list(_walk(environment, path.split(".")))


def _walk(value: Any, names: Sequence[str]) -> Iterator[Any]:
    if isinstance(value, list) and names:
        for item in value:
            yield from _walk(item, names)
    elif not names:
        if value not in (None, "", [], {}):
            yield value
    elif isinstance(value, dict) and names[0] in value:
        yield from _walk(value[names[0]], names[1:])


def why_missing(environment: dict[str, Any], path: str) -> str:
    """Return the reason that the capture gives for a gap, "" if it gives none."""
    reasons = environment.get("not_captured")
    parts = path.split(".")
    if isinstance(reasons, dict):
        for name in (path, parts[-1], parts[0], "_".join(parts)):
            if name in reasons:
                return str(reasons[name])
    if isinstance(environment.get("problem"), str):
        return str(environment["problem"])
    return ""
