"""The history of a set of records: its series with their change points, as tables and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from cases.documents import encoded
from cases.gathered import gathered
from cases.record.record import Record
from reports.table import sheet, table
from reports.table.compare import accumulator, heading
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text
from symlab.evidence.audit.data import Data
from symlab.evidence.audit.differences import differences
from symlab.evidence.audit.items import listed
from symlab.evidence.history.changes import ALPHA, LEAST_WORLDS, Change, changes, family
from symlab.evidence.history.series import PACKAGES, DataStep, Point, Series, Version, data_steps, series_of
from symlab.evidence.history.states import States, are_clocked, states_of

_COLUMNS = ("algorithm", "size", "worlds", "versions", "first (us)", "last (us)", "last/first", "times", "data")
_NUMERIC = frozenset({"size", "worlds", "versions", "first (us)", "last (us)", "last/first", "ranks", "p", "ratio"})
_TIMED = frozenset({"first (us)", "last (us)", "last/first"})
_REST_OF_CASE = ("op", "dtype", "accumulator", "ranks", "machine")
_LONG_HEX = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
_GOOD, _BAD, _OPEN = "green", "bold red", "yellow"
_MOST_DIFFERENCES = 4


@dataclass(frozen=True, slots=True)
class Told:
    """A series, the change points of its times, what became of its data, and the machine's states that it shows."""

    series: Series
    changes: tuple[Change, ...]
    data: tuple[DataStep, ...]
    states: States | None = None

    @property
    def data_changes(self) -> list[DataStep]:
        return [step for step in self.data if step.data is Data.DIFFERENT]

    @property
    def is_compared(self) -> bool:
        return any(step.is_compared for step in self.data)

    @property
    def is_changed(self) -> bool:
        return bool(self.changes or self.data_changes)

    @property
    def times_text(self) -> str:
        """What is said of its times."""
        worlds = len(self.series.timed)
        if self.series.is_simulated:
            return "simulated: no times"
        if not worlds:
            return "no times"
        if worlds < LEAST_WORLDS:
            return f"too few worlds ({worlds} of {LEAST_WORLDS})"
        found = counted(len(self.changes), "change") if self.changes else "no change found"
        unknown = "" if are_clocked(self.series.timed) else "; clocks not recorded: states of the machine are unknown"
        return f"{found}; {self.states.text}" if self.states is not None else f"{found}{unknown}"

    @property
    def data_text(self) -> str:
        """What is said of its data."""
        if not self.data:
            return "one world"
        found = Counter(step.data for step in self.data)
        if found[Data.DIFFERENT]:
            return f"changed {counted(found[Data.DIFFERENT], 'time')}"
        if found[Data.NOT_COMPARABLE]:
            return f"not comparable ({found[Data.NOT_COMPARABLE]} of {counted(len(self.data), 'step')})"
        return "same" if not found[Data.WITHIN_BOUND] else "within the bound"


@dataclass(frozen=True)
class History:
    """The result. band: the share within which changes of times are not named. tests: the number of tests of all
    series. records: their number, refused ones too."""

    told: tuple[Told, ...]
    band: float
    tests: int
    records: int

    @cached_property
    def verdict(self) -> str:
        """The result in one line."""
        timed = [one for one in self.told if one.series.timed]
        few = sum(len(one.series.timed) < LEAST_WORLDS for one in timed)
        simulated = sum(one.series.is_simulated for one in self.told)
        compared = sum(one.is_compared for one in self.told)
        machines = len({one.series.machine for one in self.told})
        worlds = len({point.world for point in self.points()})
        states = sum(one.states is not None for one in timed)
        changed = [
            sum(map(bool, some)) for some in ((one.changes for one in timed), (o.data_changes for o in self.told))
        ]
        says = {
            f"{counted(len(self.told), 'case')} on {counted(machines, 'machine')}, {counted(worlds, 'world')}, "
            f"{counted(len(self.versions), 'version')}": True,
            f"times changed in {changed[0]:,} of {counted(len(timed) - few, 'case')}": len(timed) > few,
            f"two states of the machine in {counted(states, 'case')}": states,
            f"too few worlds for change points in {counted(few, 'case')} ({LEAST_WORLDS} are the minimum)": few,
            f"{counted(simulated, 'case')} simulated, which have no times": simulated,
            f"data changed in {changed[1]:,} of {counted(compared, 'case')}": compared,
            f"no data could be compared in {counted(len(self.told) - compared, 'case')}": len(self.told) - compared,
        }
        return "; ".join(text for text, is_so in says.items() if is_so)

    @cached_property
    def versions(self) -> dict[Version, int]:
        """All versions with their numbers from 1, in order of time."""
        first: dict[Version, Any] = {}
        for point in self.points():
            began = first.setdefault(point.version, point.started)
            first[point.version] = min(began, point.started)
        return {version: number for number, version in enumerate(sorted(first, key=first.__getitem__), start=1)}

    def points(self) -> Iterator[Point]:
        """Yield the points of all series."""
        return (point for one in self.told for point in one.series.points)

    def sheets(self, is_changed: bool = False) -> list[Sheet]:
        """Return the tables: versions, each section's series, changes of times, changes of data. is_changed: only
        series with a change."""
        shown = [one for one in self.told if one.is_changed or not is_changed]
        sections = gathered((f"{one.series.machine}: {heading(one.series.first)}", one) for one in shown)
        found = [self.versions_sheet()]
        for title, own in sections.items():
            columns = tuple(name for name in _COLUMNS if name not in _TIMED or any(one.series.timed for one in own))
            found.append(Sheet(title, columns, (tuple(map(line_of, own)),), _NUMERIC, spare=("versions", "first (us)")))
        return [*found, *self.change_sheets()]

    def change_sheets(self) -> list[Sheet]:
        """Return the tables of changes of times and of data, those that have a line."""
        of_times = ("algorithm", "size", "ratio", "95 % interval", "p", "before", "after", "what differs")
        of_data = ("algorithm", "size", "before", "after", "what changed")
        times = tuple(self._change_line(one, change) for one in self.told for change in one.changes)
        data = tuple(self._data_line(one, step) for one in self.told for step in one.data_changes)
        sheets = (("changes of times", of_times, times), ("changes of data", of_data, data))
        return [Sheet(name, (*own, *_REST_OF_CASE), (lines,), _NUMERIC) for name, own, lines in sheets if lines]

    def versions_sheet(self) -> Sheet:
        """Return the table of versions."""
        columns = ("version", "from", "commit", *PACKAGES, "CUDA driver", "worlds")
        lines = []
        for version, number in self.versions.items():
            own = [point for point in self.points() if point.version == version]
            cells = {
                "version": str(number),
                "from": f"{min(point.started for point in own):%Y-%m-%d %H:%M}",
                "commit": version.commit or "unknown",
                **{name: text or "-" for name, text in zip(PACKAGES, version.libraries, strict=True)},
                "CUDA driver": version.driver or "-",
                "worlds": str(len({point.world for point in own})),
            }
            lines.append(Line(cells))
        return Sheet("versions", columns, (tuple(lines),), frozenset({"version", "worlds"}))

    @property
    def captions(self) -> tuple[str, ...]:
        times = (
            f"changes of times: steps that stand out from drift and noise, whatever their correlation; in fewer than "
            f"{100 * ALPHA:.0f} of 100 sets without a change one is named; from {LEAST_WORLDS} worlds on; changes "
            f"within {self.band:.1%} are not named; a changed machine looks like changed code"
        )
        simulated = "simulated cases have no times: there is no clock of real hardware; their data is compared"
        return (
            "versions: distinct commits (+: a changed checkout), libraries and drivers, in order of time; first and "
            "last: the median over the worlds of the first version and of the last",
            *([times] if any(one.series.timed for one in self.told) else []),
            *([simulated] if any(one.series.is_simulated for one in self.told) else []),
            "data: what every launch gave every rank, each world against the last one before it that has data",
        )

    def text(self, form: str, is_changed: bool) -> str:
        """Return the history as text, markdown or json, ending in a newline. is_changed: see sheets; JSON has every
        series."""
        if form == "json":
            return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"
        sheets = self.sheets(is_changed)
        if form == "markdown":
            return f"{sheet.markdown(sheets, self.captions)}\n\n**{self.verdict}**\n"
        verdict = "\n".join(sheet.wrapped(self.verdict, sheet.room_here()))
        return f"{table.rendering()(sheets, self.captions)}\n\n{verdict}\n"

    def document(self) -> dict[str, Any]:
        """The whole result as plain JSON values."""
        versions = [
            {
                "version": number,
                "commit": version.commit,
                "change": version.change,
                "libraries": dict(zip(PACKAGES, version.libraries, strict=True)),
                "cuda_driver": version.driver,
            }
            for version, number in self.versions.items()
        ]
        return {
            "kind": "history",
            "verdict": self.verdict,
            "alpha": ALPHA,
            "band": self.band,
            "least_worlds": LEAST_WORLDS,
            "tests": self.tests,
            "records": self.records,
            "versions": versions,
            "series": [self._series_document(one) for one in self.told],
        }

    def _series_document(self, one: Told) -> dict[str, Any]:
        series = one.series
        changes = [
            {
                **asdict(change),
                "what_differs": differing(series, change),
                "worlds": [series.timed[at].world for at in (change.first - 1, change.last)],
            }
            for change in one.changes
        ]
        return {
            "machine": series.machine,
            "id": series.first.id,
            "case": encoded(series.first.case),
            "setup": series.setup,
            "simulated": series.is_simulated,
            "times": one.times_text,
            "data": one.data_text,
            "points": [self._point_document(point) for point in series.points],
            "changes": changes,
            "data_steps": [{**asdict(step), "data": str(step.data)} for step in one.data],
        }

    def _point_document(self, point: Point) -> dict[str, Any]:
        return {
            "world": point.world,
            "started": point.started.isoformat(),
            "version": self.versions[point.version],
            "status": point.status,
            "library": point.records[0].library,
            "us": point.us,
            "data_digest": point.data_digest or None,
        }

    def _change_line(self, one: Told, change: Change) -> Line:
        cells = {
            **self._cells(one, one.series.timed[change.first - 1], one.series.timed[change.last]),
            "ratio": f"{change.ratio:.4f}",
            "95 % interval": f"{change.low:.4f} .. {change.high:.4f}",
            "p": f"{change.p:.2g}",
            "what differs": listed(differing(one.series, change), _MOST_DIFFERENCES) or "nothing that the records say",
        }
        return Line(cells, {"ratio": _BAD if change.ratio > 1 else _GOOD, "what differs": "text"}, _raw(one.series))

    def _data_line(self, one: Told, step: DataStep) -> Line:
        before, after = (one.series.points[at] for at in (step.before, step.at))
        digests = f"{before.data_digest or '-'} to {after.data_digest or '-'}"
        cells = {**self._cells(one, before, after), "what changed": f"{step.remark or 'other bits'} ({digests})"}
        return Line(cells, {"what changed": "text"}, _raw(one.series))

    def _cells(self, one: Told, before: Point, after: Point) -> dict[str, str]:
        return {**case_cells(one.series), "before": self.point_text(before), "after": self.point_text(after)}

    def point_text(self, point: Point) -> str:
        """Return when a world began, and its commit."""
        number = self.versions[point.version]
        return f"{point.started:%Y-%m-%d %H:%M} {point.version.commit or 'unknown'} (version {number})"


def history(records: Sequence[Record], band: float) -> History:
    """Return the history of records.

    All series are judged together: the more there are, the more a change has to stand out. Raises ValueError if no
    record is of a case that ran.
    """
    found = series_of(records)
    if not found:
        raise ValueError("no record here is of a case that ran: all were refused, and have no history")
    tests = sum(family(len(one.timed)) for one in found)
    told = []
    for one in found:
        times = [point.us for point in one.timed if point.us is not None]
        states = states_of(one.timed)
        times = states.taken_off(times) if states is not None else times
        told.append(Told(one, tuple(changes(times, tests, band)), tuple(data_steps(one)), states))
    return History(tuple(told), band, tests, len(records))


def line_of(one: Told) -> Line:
    """Return the line of a series, with the cells of all columns of its tables."""
    series = one.series
    first, last = (series.version_us(version) for version in _timed_ends(series))
    ratio = last / first if first and last and len(series.versions) > 1 else None
    cells = {
        **case_cells(series),
        "worlds": str(len(series.points)),
        "versions": str(len(series.versions)),
        "first (us)": f"{first:.4g}" if first else "-",
        "last (us)": f"{last:.4g}" if last else "-",
        "last/first": f"{ratio:.4f}" if ratio else "-",
        "times": one.times_text,
        "data": one.data_text,
    }
    is_open = one.data_text.startswith(("not", "one"))
    styles = {
        "times": _times_style(one),
        "data": _BAD if one.data_changes else _OPEN if is_open else _GOOD,
    }
    figures = {"first (us)": first, "last (us)": last, "last/first": ratio}
    return Line(cells, styles, _raw(series) | {name: value for name, value in figures.items() if value is not None})


def _times_style(one: Told) -> str:
    if one.changes:
        return _BAD if any(change.ratio > 1 for change in one.changes) else _GOOD
    return _OPEN if one.times_text.startswith("too") else ""


def case_cells(series: Series) -> dict[str, str]:
    """Return the cells that say which case a series is of."""
    case = series.first.case
    in_place = " (in place)" if case.placement == "in_place" else ""
    return {
        "machine": series.machine,
        "op": case.op,
        "algorithm": f"{case.algorithm}{in_place}",
        "dtype": case.dtype,
        "accumulator": accumulator(series.first) or "-",
        "ranks": str(case.world_size),
        "size": size_text(case.size_bytes),
    }


def differing(series: Series, change: Change) -> list[str]:
    """Return what the records say that differs between the worlds around a change, the most important first."""
    before, after = (series.timed[at].records for at in (change.first - 1, change.last))
    found = [
        _LONG_HEX.sub(r"\1..", f"{one.what}: {' | '.join(one.before) or '-'} to {' | '.join(one.after) or '-'}")
        for one in differences(before, after)
        if not one.what.startswith("configuration.")
    ]
    calls = [{one.timing.calls_per_sample for one in side if one.timing is not None} for side in (before, after)]
    return [*found, *(["calls a sample"] if calls[0] != calls[1] else [])]


def _timed_ends(series: Series) -> tuple[Version, Version]:
    timed = [point.version for point in series.timed] or [series.points[0].version]
    return timed[0], timed[-1]


def _raw(series: Series) -> dict[str, float]:
    return {"size": float(series.first.case.size_bytes)}
