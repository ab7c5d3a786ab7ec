"""The history of a set of records: its versions, and of each case the times of the first and the last, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cases.gathered import gathered
from cases.record.record import Record
from reports.table import sheet, table
from reports.table.compare import accumulator, heading
from reports.table.sheet import Line, Sheet
from reports.table.text import counted, size_text
from symlab.evidence.audit.data import Data
from symlab.evidence.history.series import PACKAGES, DataStep, Point, Series, Version, data_steps, series_of

_COLUMNS = ("algorithm", "size", "worlds", "versions", "first (us)", "last (us)", "last/first", "data")
_NUMERIC = frozenset({"size", "worlds", "versions", "first (us)", "last (us)", "last/first", "ranks"})
_TIMED = frozenset({"first (us)", "last (us)", "last/first"})
_OF_DATA = ("algorithm", "size", "before", "after", "what changed", "op", "dtype", "accumulator", "ranks", "machine")
_GOOD, _BAD, _OPEN = "green", "bold red", "yellow"


@dataclass(frozen=True, slots=True)
class Told:
    """A series, and whether its data stayed the same, world by world."""

    series: Series
    data: tuple[DataStep, ...]

    @property
    def data_changes(self) -> list[DataStep]:
        return [step for step in self.data if step.data is Data.DIFFERENT]

    @property
    def is_compared(self) -> bool:
        return any(step.is_compared for step in self.data)

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
    """The result: the series in order of appearance."""

    told: tuple[Told, ...]

    @cached_property
    def verdict(self) -> str:
        """The result in one line."""
        simulated = sum(one.series.is_simulated for one in self.told)
        compared = sum(one.is_compared for one in self.told)
        changed = sum(bool(one.data_changes) for one in self.told)
        machines = len({one.series.machine for one in self.told})
        worlds = len({point.world for point in self.points()})
        says = {
            f"{counted(len(self.told), 'case')} on {counted(machines, 'machine')}, {counted(worlds, 'world')}, "
            f"{counted(len(self.versions), 'version')}": True,
            f"{counted(simulated, 'case')} simulated, which have no times": simulated,
            f"data changed in {changed:,} of {counted(compared, 'case')}": compared,
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

    def sheets(self) -> list[Sheet]:
        """Return the tables: versions, each section's series, changes of data."""
        sections = gathered((f"{one.series.machine}: {heading(one.series.first)}", one) for one in self.told)
        found = [self.versions_sheet()]
        for title, own in sections.items():
            columns = tuple(name for name in _COLUMNS if name not in _TIMED or any(one.series.timed for one in own))
            found.append(Sheet(title, columns, (tuple(map(line_of, own)),), _NUMERIC, spare=("versions", "first (us)")))
        data = tuple(self._data_line(one, step) for one in self.told for step in one.data_changes)
        return [*found, *([Sheet("changes of data", _OF_DATA, (data,), _NUMERIC)] if data else [])]

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
        return (
            "versions: distinct commits (+: a changed checkout), libraries and drivers, in order of time; first and "
            "last: the median over the worlds of the first version and of the last; a changed machine looks like "
            "changed code: symlab replay --launches alternates both",
            "data: what every launch gave every rank, each world against the last one before it that has data",
        )

    def text(self, form: str) -> str:
        """Return the history as text or markdown, ending in a newline."""
        if form == "markdown":
            return f"{sheet.markdown(self.sheets(), self.captions)}\n\n**{self.verdict}**\n"
        verdict = "\n".join(sheet.wrapped(self.verdict, sheet.room_here()))
        return f"{table.rendering()(self.sheets(), self.captions)}\n\n{verdict}\n"

    def _data_line(self, one: Told, step: DataStep) -> Line:
        before, after = (one.series.points[at] for at in (step.before, step.at))
        digests = f"{before.data_digest or '-'} to {after.data_digest or '-'}"
        sides = {"before": self._point_text(before), "after": self._point_text(after)}
        cells = {**case_cells(one.series), **sides, "what changed": f"{step.remark or 'other bits'} ({digests})"}
        return Line(cells, {"what changed": "text"}, _raw(one.series))

    def _point_text(self, point: Point) -> str:
        """When a world began, and its commit."""
        number = self.versions[point.version]
        return f"{point.started:%Y-%m-%d %H:%M} {point.version.commit or 'unknown'} (version {number})"


def history(records: Sequence[Record]) -> History:
    """Return the history of records. Raises ValueError if no record is of a case that ran."""
    found = series_of(records)
    if not found:
        raise ValueError("no record here is of a case that ran: all were refused, and have no history")
    return History(tuple(Told(one, tuple(data_steps(one))) for one in found))


def line_of(one: Told) -> Line:
    """Return the line of a series, with the cells of all columns of its tables."""
    series = one.series
    timed = [point.version for point in series.timed] or [series.points[0].version]
    first, last = (series.version_us(version) for version in (timed[0], timed[-1]))
    ratio = last / first if first and last and len(series.versions) > 1 else None
    cells = {
        **case_cells(series),
        "worlds": str(len(series.points)),
        "versions": str(len(series.versions)),
        "first (us)": f"{first:.4g}" if first else "-",
        "last (us)": f"{last:.4g}" if last else "-",
        "last/first": f"{ratio:.4f}" if ratio else "-",
        "data": one.data_text,
    }
    is_open = one.data_text.startswith(("not", "one"))
    styles = {"data": _BAD if one.data_changes else _OPEN if is_open else _GOOD}
    figures = {"first (us)": first, "last (us)": last, "last/first": ratio}
    return Line(cells, styles, _raw(series) | {name: value for name, value in figures.items() if value is not None})


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


def _raw(series: Series) -> dict[str, float]:
    return {"size": float(series.first.case.size_bytes)}
