"""The rooms beside the core: what each adds to it, in one table, which the core looks in by name.

A room is a folder of symlab/ that answers one further question of its users. It imports the core, which imports nothing
of it before it is asked for. Without its folder its verbs are not listed, what needs it is refused in one line, and a
default that needs it is off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

RUN, LOOK, MORE = "Run cases", "Look at records", "More"
RECORDS, MAINTAIN = (
    "More about records and memory models",
    "For maintainers of published records and of types of GPUs",
)
"""Headings of verbs."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its name, the module of its click command, the heading it is listed under, its line there."""

    name: str
    module: str
    heading: str
    line: str

    @property
    def place(self) -> str:
        """ "module:name" of the click command, which has the verb's name."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class Room:
    """What a room adds: verbs; and parts, "module:name" of what carries out a key, listens to a run, or works for
    another room, by the key or by what the other room does."""

    verbs: tuple[Verb, ...]
    parts: Mapping[str, str]


ROOMS = {
    "checks": Room(
        (
            Verb("explore", "symlab.checks.explore.verb", RUN, "Run an experiment under many orders of threads."),
            Verb(
                "check",
                "symlab.checks.proposing",
                MORE,
                "Check which forms of a PTX file the simulator does not have, and propose its YAML.",
            ),
            Verb(
                "litmus",
                "symlab.checks.trials.verb",
                RECORDS,
                "Print the final states of small programs that PTX allows, those that the machine showed, and races.",
            ),
        ),
        {"check.races": "symlab.checks.races.checker:Races"},
    ),
    "speed": Room(
        (
            Verb(
                "tune",
                "symlab.speed.tune.verb",
                RUN,
                "Search the best kernel and tuning for each size, for algorithms=best.",
            ),
            Verb(
                "predict", "symlab.speed.predict.verb", RUN, "Predict times on a type of GPU, on a machine without any."
            ),
            Verb(
                "calibrate",
                "symlab.speed.calibrate.verb",
                MAINTAIN,
                "Measure the floors of a type of GPU by small kernels.",
            ),
        ),
        {
            "algorithms=best": "symlab.speed.best:chooser_for",
            "tuned, its own kernels": "symlab.speed.best:places_in",
            "publish, kernels": "symlab.speed.predict.published:write_kernels",
            "publish --derive": "symlab.speed.predict.published:derive_set",
            "publish --derive, the score": "symlab.speed.predict.published:derive_score",
        },
    ),
    "evidence": Room(
        (
            Verb("replay", "symlab.evidence.replay.verb", RUN, "Run recorded cases again and compare the results."),
            Verb("audit", "symlab.evidence.verbs", LOOK, "Check records against a list of items, or compare two sets."),
            Verb("history", "symlab.evidence.verbs", RECORDS, "Show how cases changed over commits and libraries."),
            Verb(
                "publish",
                "symlab.evidence.publish.verb",
                MAINTAIN,
                "Run experiments in several worlds each, for publication.",
            ),
            Verb("bundle", "symlab.evidence.verbs", MAINTAIN, "Pack records into one compressed file."),
            Verb(
                "published",
                "symlab.evidence.verbs",
                MAINTAIN,
                "Make the tables, figures and README sections of what is published.",
            ),
            Verb("sign", "symlab.evidence.verbs", MAINTAIN, "Vouch for a folder of records with an SSH key."),
        ),
        {},
    ),
}


def is_here(room: str) -> bool:
    """Return whether a room's folder is installed."""
    return (Path(__file__).parent / room / "__init__.py").is_file()


def has(part: str) -> bool:
    """Return whether the room of a part is installed."""
    return is_here(_room_of(part))


def part_of(name: str) -> Any:
    """Return a part by its name in the table. RequestError without its room."""
    check(name)
    module, _, function = ROOMS[_room_of(name)].parts[name].partition(":")
    return getattr(import_module(module), function)


def check(wanted: str) -> None:
    """RequestError for a part or a verb whose room is not installed."""
    if not is_here(room := _room_of(wanted)):
        from runner.request_error import RequestError

        raise RequestError(
            f"{wanted} needs symlab/{room}, which is not installed ({wanted}), leave it out or install it"
        )


def _room_of(wanted: str) -> str:
    return next(
        name for name, room in ROOMS.items() if wanted in room.parts or any(one.name == wanted for one in room.verbs)
    )
