"""Names and colours of MLflow's runs, and which records each has. What they say is in reports/mlflow_values.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cases.gathered import gathered
from cases.record.record import Record
from reports import mlflow_values
from reports.mlflow_values import is_second
from reports.table.compare import is_baseline

COLOUR_TAG = "mlflow.runColor"
"""MLflow draws a run in this colour wherever it shows it."""

_SHADES = (0.0, -0.45, 0.4, -0.65, 0.62, -0.25)
"""Of jobs, in order: how far a colour goes towards black (below 0) or white."""

_IN_THE_NAME = ("op", "algorithms", "dtype", "accumulator", "reduction", "world_size")


@dataclass(frozen=True, slots=True)
class Kept:
    """A record and the file it is kept in."""

    path: Path
    record: Record


def begun(kept: Kept) -> tuple[datetime, str]:
    """What sorts records by when they were begun."""
    return datetime.fromisoformat(kept.record.started), kept.path.name


def series_of(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    """The records by series, see mlflow_values.series_of, in the order in which they appear."""
    return gathered((mlflow_values.series_of(one.record), one) for one in kept)


def series_name(record: Record, distinction: Sequence[str] = ()) -> str:
    """A child run's name. distinction: what tells its job from the others of the command, see differing."""
    case = record.case
    name = f"{case.name} {case.dtype}"
    if case.reduction != "none":
        name += f"/{case.accumulator}"
        name += "" if case.reduction == "sum" else f" {case.reduction}"
    placed = ["in place"] if is_second(record) else []
    return " ".join([f"{name} n{case.world_size}", *placed, *distinction])


def differing(overrides: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Of each job's overrides those that not all jobs have, but for what a run's name says anyway."""
    common = set.intersection(*map(set, overrides.values())) if overrides else set()
    return {
        job: tuple(one for one in lines if one not in common and one.partition("=")[0].lstrip("+") not in _IN_THE_NAME)
        for job, lines in overrides.items()
    }


def series_tags(records: Sequence[Record], cases_not_run: int = 0) -> dict[str, str]:
    """The tags of a series, and its colour: its algorithm's in every picture, paler for a baseline, whose dashes MLflow
    does not draw, and in a shade for each job of a sweep."""
    from reports.figures import look

    colour = shaded(str(look(records[0].case.algorithm)["color"]), _SHADES[records[0].request.job % len(_SHADES)])
    tags = mlflow_values.series_tags(records, cases_not_run)
    return tags | {COLOUR_TAG: shaded(colour, 0.5) if is_baseline(records[0]) else colour}


def shaded(colour: str, amount: float) -> str:
    """A colour, #rrggbb, moved by amount towards white, or towards black where amount is below 0."""
    end = 255 if amount > 0 else 0
    values = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{int(value + (end - value) * abs(amount)):02x}" for value in values)
