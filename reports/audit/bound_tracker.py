"""Records against what MLflow has of them: the runs' metrics, tags, parameters and status, and the records they hold.

Names, descriptions and colours of runs, and the pages and pictures among their artifacts, are not compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from reports import sent
from reports.audit.items import Ground, Item, Outcome, Point, listed
from reports.audit.material import Material
from reports.numerics.study import studied
from reports.record import bundle
from reports.record.record import Record
from reports.record.seal import MANIFEST, digest_of
from reports.table.text import counted
from reports.tracked import (
    BUNDLE_NAME,
    LAYOUT,
    LAYOUT_TAG,
    MANIFEST_TAG,
    RECORDS_FOLDER,
    SENT_TAG,
    STUDY,
    MetricPoint,
    TrackedRun,
    Tracker,
    Unreadable,
)

_CONFIGURATION, _COMMIT, _KERNELS, _SOFTWARE, _MACHINE = 1, 2, 3, 4, 5
_DATA, _METHOD, _FIGURES, _COUNTS, _COMMAND, _FILES = 9, 10, 12, 16, 17, 18
"""Numbers of the checklist's items."""

_SECTIONS = {
    **{"latency": _FIGURES, "bandwidth": _FIGURES, "prediction": _FIGURES, "study": _DATA, "cases": _COUNTS},
    **{"errors": _DATA, "races": _DATA, "simulator": _DATA},
}
"""The item that a metric belongs to, by what stands before the slash of its name."""

_TAGS = {
    **{"status": _COUNTS, "passed": _COUNTS, "reason": _COUNTS, "races": _DATA, "counters": _DATA},
    **{"library": _SOFTWARE, "mode": _METHOD, "window": _METHOD, "l2": _METHOD, "record_schema": _FILES},
    **{"fabric": _MACHINE, "simulated": _MACHINE, "mlflow.user": _MACHINE},
    **{"mlflow.source.git.commit": _COMMIT, "git_dirty": _COMMIT},
    **dict.fromkeys(("ptx_digest", "code_digest", "cubin_digest", "source_digest"), _KERNELS),
    **{SENT_TAG: _FILES, MANIFEST_TAG: _FILES},
}
"""The item that a tag belongs to."""

_LONGEST = {"tag": 5000, "parameter": 6000}
"""Characters that are sent of a value."""

_TOLERANCE = 1e-12
"""Relative difference of two values that are the same: some databases round the last digit."""

_MOST_TOLD = 4

Points = dict[str, list[MetricPoint]]


@dataclass
class _Found:
    """What came of the comparison so far: differences by item, what could not be compared, and what was looked at."""

    differences: dict[int, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    runs: int = 0
    values: int = 0
    records: int = 0

    def differs(self, item: int, sentence: str) -> None:
        self.differences.setdefault(item, []).append(sentence)


@dataclass(frozen=True, slots=True)
class _Set:
    """The records of one command in the order in which they were begun. document: its command.json, None without one;
    folder: where that lies. is_part: MLflow has more records of the command."""

    command: str
    records: tuple[Record, ...]
    document: Mapping[str, Any] | None = None
    folder: Path | None = None
    is_part: bool = False

    def missing(self, run: TrackedRun) -> list[tuple[int, str]] | int:
        """Return the cases that were asked for and have no record, or how many a run says that there are."""
        if self.document is None:
            return _number_not_run(run, len(self.records))
        left = Counter((record.request.job, record.id) for record in self.records)
        found = []
        for one in _asked(self.document):
            if left[one]:
                left[one] -= 1
            else:
                found.append(one)
        return found

    @property
    def is_resumed(self) -> bool:
        return bool((self.document or {}).get("resumed")) or any(one.request.resumed for one in self.records)


def _asked(document: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the cases that a command.json names, as pairs of job and id; what is malformed belongs to other items."""
    jobs = document.get("jobs")
    for job in jobs if isinstance(jobs, list) else ():
        cases, number = (job.get("cases"), job.get("number")) if isinstance(job, dict) else (None, None)
        if isinstance(number, int):
            yield from ((number, case) for case in cases or () if isinstance(case, str))


def with_tracked(
    items: Iterable[Item], material: Material, tracker: Tracker, say: Callable[[str], None] = lambda text: None
) -> tuple[Item, ...]:
    """Return the items with the points that a comparison with MLflow gives. Raises ValueError if it can't be read."""
    found = _Found()
    sets = _sets(material)
    for number, one in enumerate(sets):
        say(f"comparing with MLflow: command {number + 1} of {len(sets)}")
        _command(one, tracker, found)
    points = _points(found, bool(material.source), len(sets))
    return tuple(replace(item, points=(*item.points, *points.get(item.number, ()))) for item in items)


def _sets(material: Material) -> list[_Set]:
    documents = {str(one.get("command", folder.name)): (one, folder) for folder, one in material.commands.items()}
    by_command: dict[str, list[Record]] = {}
    for record in material.records:
        by_command.setdefault(record.request.command, []).append(record)
    return [_Set(name, tuple(some), *documents.get(name, (None, None))) for name, some in by_command.items()]


def _points(found: _Found, is_from_there: bool, commands: int) -> dict[int, list[Point]]:
    """Return the points by item. is_from_there: the records are MLflow's own, so that their agreement is no more than
    that of two parts of one set."""
    points = {
        item: [
            Point(
                Outcome.FINDING,
                f"MLflow differs in {counted(len(sentences), 'value')}: {listed(sentences, _MOST_TOLD)}",
                Ground.STATED if is_from_there else Ground.COMPARED,
            )
        ]
        for item, sentences in found.differences.items()
    }
    if found.unknown:
        points.setdefault(_FIGURES, []).append(Point(Outcome.NOT_COMPARABLE, listed(found.unknown, _MOST_TOLD)))
    good = {
        _FIGURES: (found.values, f"{found.values:,} metrics, tags and parameters of {counted(found.runs, 'run')} are"),
        _FILES: (found.records, f"{found.records:,} copies of records among the artifacts are"),
    }
    of_values = any(item != _FILES for item in found.differences)
    for item, (number, text) in good.items():
        if not number or item in found.differences or (item == _FIGURES and of_values):
            continue
        says = f"MLflow: {text} as the records of {counted(commands, 'command')} give them"
        outside = Point(Outcome.VERIFIED, says, Ground.COMPARED)
        points.setdefault(item, []).append(Point(Outcome.CAPTURED, says) if is_from_there else outside)
    return points


def _command(one: _Set, tracker: Tracker, found: _Found) -> None:
    """Compare the records of a command with each of its runs."""
    if not one.command:
        found.unknown.append(
            f"{counted(len(one.records), 'record')} without a command's name, which MLflow does not have"
        )
        return
    runs = tracker.parents(one.command)
    alive = [run for run in runs if not run.is_deleted]
    if not alive:
        deleted = f"its run {runs[0].id} was deleted" if runs else "no run of it"
        found.differs(_COUNTS, f"{one.command}: {deleted} in MLflow")
    _twice(one.command, [run.experiment for run in alive], "experiment", found)
    for run in alive:
        if run.tags.get(LAYOUT_TAG) != LAYOUT or not run.tags.get(SENT_TAG):
            says = "was not sent to its end" if not run.tags.get(SENT_TAG) else "was sent by another version"
            found.unknown.append(f"{one.command}: run {run.id} {says}; symlab track sends it again")
            continue
        _run(replace(one, is_part=_bundle(one, run, tracker, found)), run, tracker, found)


def _twice(what: str, places: Iterable[str], kind: str, found: _Found) -> None:
    for place, number in Counter(places).items():
        if number > 1:
            found.differs(_COUNTS, f"{what}: {number} runs in MLflow's {kind} {place}")


def _bundle(one: _Set, run: TrackedRun, tracker: Tracker, found: _Found) -> bool:
    """Compare a command's records with those in its run's bundle. Return whether the bundle has more of them."""
    name = f"{one.command}: {BUNDLE_NAME} of run {run.id}"
    there = _artifact(one.records, run, BUNDLE_NAME, name, tracker, found)
    more = sorted(there[key].id for key in set(there) - set(map(_key, one.records)))
    digest = bundle.digest(there.values()).removeprefix("sha256:")
    if there and digest != run.tags[SENT_TAG]:
        found.differs(_FILES, f"{name}: digest {digest[:16]}, the tag {SENT_TAG} has {run.tags[SENT_TAG][:16]}")
    if more and one.document is not None:
        found.differs(_COUNTS, f"{name} has {counted(len(more), 'record')} that this set has not: {listed(more)}")
    elif more:
        found.unknown.append(f"{name} has {counted(len(more), 'more record')}: tags and counts are not compared")
    return bool(more)


def _key(record: Record) -> tuple[int, str, str]:
    return record.request.job, record.id, record.started


def _artifact(
    records: Sequence[Record], run: TrackedRun, artifact: str, name: str, tracker: Tracker, found: _Found
) -> dict[tuple[int, str, str], Record]:
    """Compare records with those in an artifact, and return these."""
    try:
        there = {_key(record): record for record in tracker.records(run, artifact)}
    except Unreadable:
        raise
    except ValueError as error:
        found.differs(_FILES, f"{name}: {error}")
        return {}
    if not there:
        found.differs(_FILES, f"{name}: it is gone")
        return {}
    for record in records:
        other = there.get(_key(record))
        if other is None:
            found.differs(_FILES, f"{name} has not the record {record.id} begun at {record.started}")
        elif bundle.line_of(other) != bundle.line_of(record):
            found.differs(_FILES, f"{name}: {record.id}: {_first_difference(other, record)}")
        else:
            found.records += 1
    return there


def _first_difference(there: Record, here: Record) -> str:
    """Return the first value in which two records differ, and the number of others."""
    found = list(_differences(there.document(), here.document(), ""))
    if not found:
        return "they are written differently"
    path, *values = found[0]
    texts = [str(value)[:80] for value in values]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{path} is {texts[0]} there, {texts[1]} here{more}"


def _differences(there: Any, here: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted paths of values that differ, with both values, "nothing" where one is missing."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*here, *there]):
            yield from _differences(there.get(key, "nothing"), here.get(key, "nothing"), f"{path}.{key}".lstrip("."))
    elif isinstance(there, (list, tuple)) and isinstance(here, (list, tuple)) and len(there) == len(here):
        for at, (one, other) in enumerate(zip(there, here, strict=True)):
            yield from _differences(one, other, f"{path}.{at}")
    elif there != here:
        yield path, there, here


def _run(one: _Set, run: TrackedRun, tracker: Tracker, found: _Found) -> None:
    """Compare a command's run and those below it."""
    records = list(one.records)
    missing = one.missing(run)
    number = missing if isinstance(missing, int) else len(missing)
    name = f"{one.command}: run {run.id}"
    request = records[0].request
    parameters = {"experiment": request.experiment, "jobs": request.jobs or 1}
    parameters["command_line"] = " ".join(request.command_line)
    _compare_texts(name, run.parameters, parameters, "parameter", dict.fromkeys(parameters, _COMMAND), found)
    if not one.is_part:
        tags = {"status": sent.status_tag(records, number), **sent.origin_tags(records)}
        tags[SENT_TAG] = bundle.digest(records).removeprefix("sha256:")
        if one.folder is not None and (one.folder / MANIFEST).is_file() and MANIFEST_TAG in run.tags:
            tags[MANIFEST_TAG] = digest_of(one.folder)
        _compare_texts(name, run.tags, tags, "tag", _TAGS, found)
        _status(name, run, sent.run_status(records, number), found)
        for key, value in sent.command_metrics(records, number).items():
            found.values += 1
            if run.metrics.get(key) != value:
                found.differs(_COUNTS, f"{name}: {key} is {_shown(run.metrics.get(key))}, the records give {value:g}")
    found.runs += 1
    _series(one, run, [] if isinstance(missing, int) else missing, tracker, found)


def _series(one: _Set, parent: TrackedRun, missing: Sequence[tuple[int, str]], tracker: Tracker, found: _Found) -> None:
    """Compare the runs of a command's series, and of its studies' curves."""
    children = tracker.children(parent)
    alive = [child for child in children if not child.is_deleted]
    _twice(one.command, (f"{parent.experiment}, series {child.series}" for child in alive), "experiment", found)
    by_series = {child.series: child for child in alive}
    series: dict[str, list[Record]] = {}
    for record in one.records:
        series.setdefault(sent.series_of(record), []).append(record)
    curves = {} if one.is_part else {f"{STUDY}{curve.name}": curve for curve in studied(one.records)}
    for name in [*series, *curves]:
        if name not in by_series:
            deleted = "was deleted" if any(child.series == name for child in children) else "is missing"
            found.differs(_COUNTS, f"{one.command}: the run of {name} {deleted} in MLflow")
    if not one.is_part:
        for name in sorted(set(by_series) - {*series, *curves}):
            found.differs(_COUNTS, f"{one.command}: MLflow has a run of {name}, and the records have no such series")
    for name, records in series.items():
        if child := by_series.get(name):
            _child(one, child, records, missing, tracker, found)
    for name, curve in curves.items():
        if child := by_series.get(name):
            label = f"{one.command}: run {child.id} ({name})"
            parameters = sent.study_parameters(curve)
            _compare_texts(label, child.parameters, parameters, "parameter", {}, found)
            ended: dict[int, int] = {}
            for record in one.records:
                ranks = record.case.world_size
                ended[ranks] = max(ended.get(ranks, 0), _milliseconds(record.ended))
            points: Points = {}
            for key, value, step in sent.study_metrics(curve):
                points.setdefault(key, []).append((step, value, ended[step]))
            _compare_points(label, child, points, one, tracker, found)
            found.runs += 1


def _child(
    one: _Set,
    run: TrackedRun,
    records: Sequence[Record],
    missing: Sequence[tuple[int, str]],
    tracker: Tracker,
    found: _Found,
) -> None:
    """Compare the run of a series."""
    name = f"{one.command}: run {run.id} ({run.series})"
    number = _number_not_run(run, len(records)) if one.document is None else sent.missing_of(records[0], missing)
    _compare_texts(name, run.parameters, sent.parameters_of(records[0]), "parameter", {}, found)
    if not one.is_part:
        _compare_texts(name, run.tags, sent.series_tags(records, number), "tag", _TAGS, found)
        _status(name, run, sent.run_status(records, number), found)
    points: Points = {}
    for record in records:
        for key, value in sent.metrics_of(record).items():
            points.setdefault(key, []).append((record.case.size_bytes, value, _milliseconds(record.ended)))
    _compare_points(name, run, points, one, tracker, found)
    _artifact(records, run, RECORDS_FOLDER, f"{name}: {RECORDS_FOLDER}/", tracker, found)
    found.runs += 1


def _compare_texts(
    name: str,
    there: Mapping[str, str],
    wanted: Mapping[str, Any],
    kind: str,
    items: Mapping[str, int],
    found: _Found,
) -> None:
    """Compare tags or parameters. items: the number of the item that each belongs to, configuration if not named."""
    for key, value in wanted.items():
        found.values += 1
        text = str(value)[: _LONGEST[kind]]
        if there.get(key) != text:
            has = there[key][:80] if key in there else "nothing"
            says = f"{name}: the {kind} {key} is {has}, the records give {text[:80]}"
            found.differs(items.get(key, _CONFIGURATION), says)


def _status(name: str, run: TrackedRun, wanted: str, found: _Found) -> None:
    found.values += 1
    if run.status != wanted:
        found.differs(_COUNTS, f"{name}: its status is {run.status}, the records give {wanted}")


def _compare_points(name: str, run: TrackedRun, wanted: Points, one: _Set, tracker: Tracker, found: _Found) -> None:
    """Compare all values of a run's metrics, and the last one, which lists show."""
    ours = {key for key in run.metrics if key.partition("/")[0] in _SECTIONS and "/" in key}
    for key in sorted(ours | set(wanted)):
        expected = wanted.get(key, [])
        there = tracker.points(run, key) if key in run.metrics else []
        found.values += len(expected)
        for item, sentence in _point_differences(key, there, expected, one):
            if item:
                found.differs(item, f"{name}: {sentence}")
            else:
                found.unknown.append(f"{name}: {sentence}")
        last = max(expected, default=None, key=lambda point: (point[0], point[2], point[1]))
        if last is not None and key in run.metrics and not one.is_part and not _same(run.metrics[key], last[1]):
            says = f"{name}: {key} is {_shown(run.metrics[key])} at last, the records give {_shown(last[1])}"
            found.differs(_SECTIONS[key.partition("/")[0]], says)


def _point_differences(
    key: str, there: Sequence[MetricPoint], expected: Sequence[MetricPoint], one: _Set
) -> Iterator[tuple[int, str]]:
    """Yield the differences of one metric, each with its item; 0 for what a resumption may have left."""
    item = _SECTIONS[key.partition("/")[0]]
    left = list(there)
    for step, value, time_ms in expected:
        at = [point for point in left if point[0] == step]
        same = [point for point in at if _same(point[1], value)]
        if exact := next((point for point in same if point[2] == time_ms), None):
            left.remove(exact)
        elif same:
            left.remove(same[0])
            yield _COMMAND, f"{key} at {step:,} has the time {same[0][2]} ms, the records give {time_ms} ms"
        else:
            for point in at[:1]:
                left.remove(point)
            has = _shown(at[0][1]) if at else "missing"
            yield item, f"{key} at {step:,} is {has}, the records give {_shown(value)}"
    steps = {step for step, _, _ in expected}
    for step, value, _ in left:
        if one.is_part and step not in steps:
            continue
        says = f"{key} at {step:,} is {_shown(value)}, and no record gives it"
        yield (0 if one.is_resumed else item), says


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=0.0)


def _shown(value: float | None) -> str:
    return "missing" if value is None else f"{value!r}"


def _number_not_run(run: TrackedRun, records: int) -> int:
    """Return how many cases did not run, as a run says, where no command.json does: 0 if it says nothing."""
    _, _, total = run.tags.get("passed", "").partition("/")
    if total.isascii() and total.isdigit() and len(total) < 10:
        return max(int(total) - records, 0)
    value = run.metrics.get("cases/not_run", 0.0)
    return int(value) if 0 <= value < 1e9 else 0


def _milliseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1000)
