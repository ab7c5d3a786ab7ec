"""What a set is to hold: experiments, overrides, number of worlds, whose code; kept in a file of its folder.

Which worlds are done is no entry of the file: a world is done when its bundle is there, which is written in one step.
So a call that was killed at any time, and a copy of the folder on another machine, know what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cases.documents import decoded, encoded, parsed
from cases.gathered import gathered
from reports.record.bundle import PLAN_NAME, SUFFIX
from reports.record.writing import write_file
from runner.request_error import RequestError

FORM = 3
MAX_BYTES = 1 << 22
MAX_WORLDS = 100
LEAST_WORLDS = 5
"""Number of worlds of each experiment where none is given: fewer give no verdict worth publishing."""


@dataclass(frozen=True, slots=True)
class PlannedWorld:
    """One run of one experiment in new processes."""

    experiment: str
    number: int

    @property
    def name(self) -> str:
        """The name of its bundle below the plan's folder, without the suffix."""
        return f"{self.experiment.replace('/', '-')}-world{self.number}"

    def path(self, folder: Path) -> Path:
        """Return where its bundle is or will be."""
        return folder / f"{self.name}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. commit: that of the sources, as git says, "" if it says none. code: their digests, by folder.
    asked: a digest of each experiment's composed jobs."""

    experiments: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    multirun: bool = False
    worlds: int = LEAST_WORLDS
    commit: str = ""
    code: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)

    def order(self) -> tuple[PlannedWorld, ...]:
        """Return all worlds in the order in which they run: all experiments once, then again."""
        numbers = range(1, self.worlds + 1)
        return tuple(PlannedWorld(experiment, number) for number in numbers for experiment in self.experiments)

    def done(self, folder: Path) -> tuple[PlannedWorld, ...]:
        """Return the worlds whose bundles are there, in order."""
        return tuple(one for one in self.order() if one.path(folder).is_file())

    def left(self, folder: Path) -> tuple[PlannedWorld, ...]:
        """Return the worlds without a bundle, in order."""
        return tuple(one for one in self.order() if not one.path(folder).is_file())

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all. ValueError naming it if that can't be done."""
        text = json.dumps({"symlab_publish": FORM, **encoded(self)}, indent=2, ensure_ascii=False, allow_nan=False)
        write_file(folder / PLAN_NAME, f"{text}\n".encode())


def read_plan(folder: Path) -> Plan | None:
    """Return the plan of a folder, None if it has none. RequestError for a file that no plan was written to."""
    path = folder / PLAN_NAME
    try:
        if not path.exists():
            return None
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        return _decoded(parsed(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise RequestError(f"{path} is no plan ({why}; FOLDER), restore it or begin another folder") from None


def _decoded(document: Any) -> Plan:
    """Return the plan of a document. Raises ValueError if it is none."""
    if not isinstance(document, dict) or document.pop("symlab_publish", None) != FORM:
        raise ValueError("it is of another form")
    plan = decoded(Plan, document, "plan")
    assert isinstance(plan, Plan)
    if not (
        plan.experiments
        and 1 <= plan.worlds <= MAX_WORLDS
        and all(isinstance(one, str) for one in (*plan.code.values(), *plan.asked.values()))
    ):
        raise ValueError("a value of it is none that a plan has")
    return plan


def missing_text(worlds: Sequence[PlannedWorld]) -> Iterator[str]:
    """Yield a line for each experiment of which worlds are missing: their numbers."""
    groups = gathered((one.experiment, one.number) for one in worlds)
    for experiment, numbers in groups.items():
        yield f"{experiment}, world {', '.join(map(str, sorted(numbers)))}"
