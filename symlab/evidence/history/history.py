"""The history of a set of records: its series with what changed from day to day, as tables."""

from __future__ import annotations

import re
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
from symlab.evidence.audit.differences import differences
from symlab.evidence.audit.items import listed
from symlab.evidence.history.series import (
    PACKAGES,
    DataStep,
    Point,
    Series,
    TimeStep,
    Version,
    data_steps,
    series_of,
    time_changes,
)

_COLUMNS = ("algorithm", "size", "worlds", "versions", "first (us)", "last (us)", "last/first", "times", "data")
_OF_CHANGES = ("algorithm", "size", "ratio", "before", "after", "what differs")
_REST_OF_CASE = ("op", "dtype", "accumulator", "ranks", "machine")
_NUMERIC = frozenset({"size", "worlds", "versions", "first (us)", "last (us)", "last/first", "ranks", "ratio"})
_LONG_HEX = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
_MOST_DIFFERENCES = 4


@dataclass(frozen=True, slots=True)
class Told:
    """A series, the changes of its times, and what became of its data."""

    series: Series
    changes: tuple[TimeStep, ...]
    data: tuple[DataStep, ...]

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
        if self.series.is_simulated:
            return "simulated: no times"
        if not self.series.timed:
            return "no times"
        if len(self.series.stretches) < 2:
            return "one version on one day"
        return counted(len(self.changes), "change") if self.changes else "within the band"

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
    """The result. band: the share within which changes of times are not named."""

    told: tuple[Told, ...]
    band: float

    @cached_property
    def verdict(self) -> str:
        """The result in one line."""
        timed = [one for one in self.told if one.series.timed]
        apart = [one for one in timed if len(one.series.stretches) > 1]
        simulated = sum(one.series.is_simulated for one in self.told)
        compared = sum(one.is_compared for one in self.told)
        machines = len({one.series.machine for one in self.told})
        worlds = len({point.world for point in self.points()})
        says = {
            f"{counted(len(self.told), 'case')} on {counted(machines, 'machine')}, {counted(worlds, 'world')}, "
            f"{counted(len(self.versions), 'version')}": True,
            f"times changed in {sum(bool(one.changes) for one in apart):,} of {counted(len(apart), 'case')}": apart,
            f"times of one version on one day in {counted(len(timed) - len(apart), 'case')}": len(timed) - len(apart),
            f"{counted(simulated, 'case')} simulated, which have no times": simulated,
            f"data changed in {sum(bool(one.data_changes) for one in self.told):,} of {counted(compared, 'case')}": (
                compared
            ),
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
        """Return the tables: versions, each section's series, changes of times and of data. is_changed: only series
        with a change."""
        shown = [one for one in self.told if one.is_changed or not is_changed]
        sections = gathered((f"{one.series.machine}: {heading(one.series.first)}", line_of(one)) for one in shown)
        series = [Sheet(name, _COLUMNS, (tuple(own),), _NUMERIC) for name, own in sections.items()]
        lines = tuple(line for one in shown for line in self._changes(one))
        changes = [Sheet("changes", (*_OF_CHANGES, *_REST_OF_CASE), (lines,), _NUMERIC)] if lines else []
        return [self.versions_sheet(), *series, *changes]

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
            "changes of times: the median of worlds in a row, of one version on one day, is more than "
            f"{self.band:.1%} from that of the last ones named, or of the first; such worlds are apart in time: a "
            "changed machine or drift looks like changed code, and symlab replay --launches tells them apart"
        )
        simulated = "simulated cases have no times: there is no clock of real hardware; their data is compared"
        return (
            "versions: distinct commits (+: a changed checkout), libraries and drivers, in order of time; first and "
            "last: the median over the worlds of the first version and of the last",
            *([times] if any(one.series.timed for one in self.told) else []),
            *([simulated] if any(one.series.is_simulated for one in self.told) else []),
            "data: what every launch gave every rank, each world against the last one before it that has data",
        )

    def text(self, is_changed: bool) -> str:
        """Return the history as text, ending in a newline. is_changed: see sheets."""
        verdict = "\n".join(sheet.wrapped(self.verdict, sheet.room_here()))
        return f"{table.rendering()(self.sheets(is_changed), self.captions)}\n\n{verdict}\n"

    def _changes(self, one: Told) -> Iterator[Line]:
        """Yield a line for each change of a series' times, and of its data."""
        for change in one.changes:
            before, after = change.before[-1], change.after[0]
            differs = listed(differing(change), _MOST_DIFFERENCES) or "nothing that the records say"
            yield self._line(one, before, after, differs, f"{change.ratio:.4f}")
        for step in one.data_changes:
            before, after = (one.series.points[at] for at in (step.before, step.at))
            digests = f"{before.data_digest or '-'} to {after.data_digest or '-'}"
            yield self._line(one, before, after, f"data: {step.remark or 'other bits'} ({digests})", "-")

    def _line(self, one: Told, before: Point, after: Point, differs: str, ratio: str) -> Line:
        worlds = {"before": self.point_text(before), "after": self.point_text(after)}
        return Line(case_cells(one.series) | worlds | {"what differs": differs, "ratio": ratio})

    def point_text(self, point: Point) -> str:
        """Return when a world began, and its commit."""
        number = self.versions[point.version]
        return f"{point.started:%Y-%m-%d %H:%M} {point.version.commit or 'unknown'} (version {number})"


def history(records: Sequence[Record], band: float) -> History:
    """Return the history of records. band: a share. Raises ValueError if no record is of a case that ran."""
    found = series_of(records)
    if not found:
        raise ValueError("no record here is of a case that ran: all were refused, and have no history")
    told = [Told(one, tuple(time_changes(one, band)), tuple(data_steps(one))) for one in found]
    return History(tuple(told), band)


def line_of(one: Told) -> Line:
    """Return the line of a series, with the cells of all columns of its tables."""
    series = one.series
    timed = [point.version for point in series.timed]
    first, last = (series.version_us(timed[at]) if timed else None for at in (0, -1))
    return Line(
        {
            **case_cells(series),
            "worlds": str(len(series.points)),
            "versions": str(len(series.versions)),
            "first (us)": f"{first:.4g}" if first else "-",
            "last (us)": f"{last:.4g}" if last else "-",
            "last/first": f"{last / first:.4f}" if first and last and len(series.versions) > 1 else "-",
            "times": one.times_text,
            "data": one.data_text,
        }
    )


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


def differing(change: TimeStep) -> list[str]:
    """Return what the records say that differs between the worlds around a change, the most important first."""
    before, after = change.before[-1].records, change.after[0].records
    found = [
        _LONG_HEX.sub(r"\1..", f"{one.what}: {' | '.join(one.before) or '-'} to {' | '.join(one.after) or '-'}")
        for one in differences(before, after)
        if not one.what.startswith("configuration.")
    ]
    calls = [{one.timing.calls_per_sample for one in side if one.timing is not None} for side in (before, after)]
    return [*found, *(["calls a sample"] if calls[0] != calls[1] else [])]
