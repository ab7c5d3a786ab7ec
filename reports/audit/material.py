"""What an audit of one set works on: its records, where they lie, the worlds, the environments, the worker's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reports.audit.statistics import world_of
from reports.record.bundle import VERDICT_NAME
from reports.record.record import Record

COMMAND_NAME = "command.json"
"""Beside the records of a command: what it was asked for, and how it ended."""


@dataclass(frozen=True)
class Material:
    """One set. places are the files, folders and bundles that it was read from, none for records from elsewhere. again
    is what the worker answered (see runner/audit_worker.py), or None and problem says why. source names where records
    come from that are not from files."""

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
        documents = (record.environment.document() for record in self.records)
        return list({json.dumps(one, sort_keys=True): one for one in documents}.values())

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that holds what a command left: a command.json, PTX, configurations."""
        tops = [place for place in self.places if place.is_dir()]
        return tuple(sorted({path.parent for top in tops for path in top.rglob(COMMAND_NAME)}))

    @cached_property
    def commands(self) -> dict[Path, dict[str, Any]]:
        """Each folder's command.json. ValueError naming what can't be read."""
        found = {}
        for folder in self.folders:
            path = folder / COMMAND_NAME
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ValueError(f"{path}: can't be read ({error})") from None
            if not isinstance(document, dict):
                raise ValueError(f"{path}: not what a command leaves")
            found[folder] = document
        return found


def verdict_beside(place: Path) -> Path:
    """Where a replay's verdict would lie, if a place is a replay's folder or in one."""
    return (place if place.is_dir() else place.parent) / VERDICT_NAME


def values_at(environment: dict[str, Any], path: str) -> list[Any]:
    """All values at a dotted path, through lists, without None and empty text: ("gpus.model") of every GPU."""
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
    """The reason that the capture gives for a gap; "" where it gives none."""
    reasons = environment.get("not_captured")
    parts = path.split(".")
    if isinstance(reasons, dict):
        for name in (path, parts[-1], parts[0], "_".join(parts)):
            if name in reasons:
                return str(reasons[name])
    if isinstance(environment.get("problem"), str):
        return str(environment["problem"])
    return ""
