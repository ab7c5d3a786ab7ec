"""The input of a checklist: one set of records, the files beside them, and what was recomputed of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cases.documents import encoded, parsed, plain
from cases.gathered import gathered
from cases.record.reading import below, contents, leaves
from cases.record.record import Record
from reports.record.seal import MANIFEST
from symlab.evidence.audit.items import Point
from symlab.evidence.audit.level import Recomputed
from symlab.evidence.audit.statistics import world_of

COMMAND_NAME = "command.json"
"""The file beside a command's records that says what it was asked for and how it ended."""

AT_ITS_END = ("ended", "exit_code", "outcome", "why", "counts", "cases_not_run")
"""What command.json gets when its command ends, however it ends, but for a kill."""

COMPLETE = "complete"

Asked = tuple[int, str]
"""The number of a job, and the id of a case that it asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was recomputed: points by the names of the items that they belong to, and the level. problem: why nothing
    was, "" if something was."""

    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    level: Recomputed = field(default_factory=Recomputed)
    problem: str = ""


@dataclass(frozen=True)
class Material:
    """One set of records. places: the files, folders and bundles that it was read from."""

    records: tuple[Record, ...]
    places: tuple[Path, ...] = ()

    @cached_property
    def worlds(self) -> dict[str, list[Record]]:
        """Records by world, in order of appearance."""
        return self._by(world_of)

    @cached_property
    def by_case(self) -> dict[str, list[Record]]:
        return self._by(lambda record: record.id)

    @cached_property
    def by_command(self) -> dict[str, list[Record]]:
        return self._by(lambda record: record.request.command)

    def _by(self, key: Any) -> dict[str, list[Record]]:
        return gathered((key(record), record) for record in self.records)

    @cached_property
    def timed(self) -> list[Record]:
        return [record for record in self.records if record.timing is not None]

    @cached_property
    def on_gpus(self) -> list[Record]:
        return [record for record in self.records if record.fabric is not None and not record.fabric.simulated]

    @cached_property
    def environments(self) -> list[dict[str, Any]]:
        """Each environment once, in order of appearance."""
        by_object = {id(record.environment): record.environment for record in self.records}
        return list({repr(one): encoded(one) for one in by_object.values()}.values())

    @cached_property
    def file_alone(self) -> Path | None:
        """The first place, if all are files of single records, which need not be a whole command; None otherwise."""
        is_alone = all(place.is_file() and place.suffix == ".json" for place in self.places)
        return self.places[0] if self.places and is_alone else None

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """Every folder with a command.json, which PTX and configurations lie beside."""
        return tuple(sorted({path.parent for place in self.places for path in below(place, COMMAND_NAME)}))

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
            name = name_of(folder, document)
            if document.get("outcome") not in (None, COMPLETE):
                found[name] = frozenset(_not_run(document.get("cases_not_run")))
            elif folder in self.killed:
                here = {(one.request.job, one.id) for one in self.by_command.get(name, ())}
                found[name] = frozenset(cases_of(document.get("jobs"))) - here
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


def name_of(folder: Path, document: Mapping[str, Any]) -> str:
    """Return a command's name, as its command.json has it."""
    return str(document.get("command", folder.name))


def _not_run(entries: object) -> Iterator[Asked]:
    """Yield the cases of a list as cases_not_run is."""
    for one in entries if isinstance(entries, list) else ():
        if isinstance(one, dict) and type(one.get("job")) is int and isinstance(one.get("case"), str):
            yield one["job"], one["case"]


def cases_of(jobs: object) -> Iterator[Asked]:
    """Yield the cases of the jobs of a command.json."""
    for job in jobs if isinstance(jobs, list) else ():
        if isinstance(job, dict) and type(job.get("number")) is int and isinstance(job.get("cases"), list):
            yield from ((job["number"], case) for case in job["cases"] if isinstance(case, str))


def values_at(environment: Mapping[str, Any], path: str) -> list[Any]:
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
