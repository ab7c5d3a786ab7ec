"""Predictions beside measured times: each against its record, and against the others of its set.

A model's word is recomputable: the time follows from the terms, the ratio from the timing, and what has one digest has
the same constants in every record. Whether floors and constants are those of the project, and whether the work is what
the simulator finds, the worker says (runner/audit_worker.py): item 12 has both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from cases.record.prediction import PredictedTime
from cases.record.record import Record
from reports.audit.contradiction import Contradiction
from reports.audit.items import Ground, Outcome, Point, listed, verified_or
from reports.audit.material import Material
from reports.table.compare import is_baseline
from reports.table.text import counted

FIGURES = 12
"""The number of the item that these rules belong to."""

SINCE = 8
"""The first schema whose timings have the predictions that were asked for."""

_ROUNDING = 1e-9


def contradictions(records: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the predictions of a set say against their records, and against each other."""
    for record in records:
        for sentence in (*_asked(record), *_of_record(record)):
            yield Contradiction(FIGURES, f"{record.id}: {sentence}")
    yield from (Contradiction(FIGURES, sentence) for sentence in _across(records))


def points(material: Material) -> list[Point]:
    """Return what is known of the predictions of a set: none for a set without predicted times."""
    told = [record for record in material.records if predicted(record) is not None]
    if not told:
        return []
    again = (material.again or {}).get("predictions")
    found = counted(len(told), "prediction")
    if again is None:
        why = material.problem or "the worker says nothing of them"
        return [Point(Outcome.NOT_COMPARABLE, f"{found}: floors and work were not looked at again: {why}")]
    looked_at, work = again["weighed"], again["simulated"]
    good = f"{counted(looked_at, 'prediction')} weighed again by the project's floors and constants, "
    good += f"{counted(work, 'case')} of them simulated again; 0 differ"
    different = [f"{case}: {what}" for case, what in again["different"]]
    points = []
    if looked_at or different:
        points.append(verified_or(different, good, looked_at, "predictions", Ground.RECOMPUTED, (looked_at, len(told))))
    if unknown := [f"{case}: {why}" for case, why in again["not_comparable"]]:
        points.append(Point(Outcome.NOT_COMPARABLE, f"{counted(len(unknown), 'prediction')}: {listed(unknown)}"))
    return points


def predicted(record: Record) -> PredictedTime | None:
    """Return the predicted time of a record; None if it has none."""
    return record.prediction.time if record.prediction is not None else None


def _asked(record: Record) -> Iterator[str]:
    """Whether a timing has a prediction just where its configuration asked for one. No configuration of before schema 8
    could ask for one, so one that does is held to it whatever its record's schema."""
    if record.timing is None or record.request.configuration is None:
        return
    timing = record.request.configuration.get("timing")
    is_asked = isinstance(timing, dict) and timing.get("predict") is True
    if is_asked and record.prediction is None:
        yield "the configuration asked for predictions, and this timing has none, nor a reason"
    if record.schema >= SINCE and record.prediction is not None and not is_asked:
        yield "it has a prediction, and the configuration asked for none"


def _of_record(record: Record) -> Iterator[str]:
    told = predicted(record)
    if told is None or record.timing is None:
        return
    if is_baseline(record):
        yield f"{record.case.name} is a library's, and the model is of kernels of ours"
    ratio = record.timing.median_us / told.time_us
    if not _same(told.ratio, ratio):
        yield f"measured over predicted is {told.ratio:g}, the timing gives {ratio:g}"
    if not _same(told.terms.time_us, told.time_us):
        yield f"the predicted time is {told.time_us:g} us, its terms make {told.terms.time_us:g} us"
    rest_us = max(sum(told.path_us.values()) - told.terms.least_us, 0.0)
    if not math.isclose(told.terms.more_us, rest_us, rel_tol=_ROUNDING, abs_tol=_ROUNDING * told.time_us):
        yield f"the rest of the path is {told.terms.more_us:g} us, its steps make {rest_us:g} us"
    if set(told.path_us) != set(_steps(told)):
        yield "the path has other kinds of steps than the work that it was computed from"


def _across(records: Sequence[Record]) -> Iterator[str]:
    """What has the same digest has the same constants: launch of the floors, begin of the fit, and each kind of step of
    both. One command has the same floors and the same constants in all its records, whatever type they name: jobs of a
    sweep over fabric.gpu, and jobs on other devices, apart. How wide an interval is depends on the case's work, too, so
    only weighing again tells (points)."""
    digests: dict[tuple[str, str], tuple[tuple[str, str], str]] = {}
    for record in records:
        if (told := predicted(record)) is not None:
            both = (told.floors_digest, told.constants_digest)
            before, where = digests.setdefault((record.request.command, _runs_on(record)), (both, record.id))
            if both != before:
                yield f"{record.id}: floors of {told.gpu} or constants have other digests than in {where}"
    known: dict[tuple[str, ...], tuple[float, str]] = {}
    for record in records:
        told = predicted(record)
        if told is None:
            continue
        for key, what, value in _constants(told):
            first, where = known.setdefault(key, (value, record.id))
            if not _same(value, first):
                yield f"{record.id}: {what} is {value:g}, {where} with the same digest has {first:g}"


def _runs_on(record: Record) -> str:
    """What decides a prediction's type of GPU: fabric.gpu of the configuration, else the devices."""
    fabric = (record.request.configuration or {}).get("fabric")
    named = fabric.get("gpu") if isinstance(fabric, dict) else None
    return json.dumps(record.environment.devices if named is None else named, sort_keys=True)


def _constants(told: PredictedTime) -> Iterator[tuple[tuple[str, ...], str, float]]:
    """Yield what is the same wherever the digests are: a key, what it is called, its value."""
    floors, fitted = told.floors_digest, told.constants_digest
    yield (floors, "launch"), "an empty node in us", told.terms.launch_us
    yield (fitted, "begin"), "begin in us", told.terms.begin_us
    steps = _steps(told)
    for kind, value in told.path_us.items():
        if count := steps.get(kind):
            yield (floors, fitted, kind), f"a step of kind {kind} in us", value / count


def _steps(told: PredictedTime) -> dict[str, Any]:
    steps = told.work.get("steps")
    return {kind: count for kind, count in steps.items() if _is_number(count)} if isinstance(steps, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING)
