"""The nouns of a history: series, each a case on a machine, and their points, one a world, in order of time."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise

from cases.gathered import gathered
from cases.record.nccl_settings import said_settings
from cases.record.record import Record, Status
from reports.table.compare import device_text, is_simulated, setup_text
from symlab.evidence.audit.data import Data, data_of
from symlab.evidence.audit.order import APART
from symlab.evidence.audit.statistics import Speed, sides_of, without_test, world_of

PACKAGES = {
    "torch": "torch",
    "NCCL": "nvidia-nccl-cu13",
    "NVSHMEM": "nvidia-nvshmem-cu13",
    "CuTe DSL": "nvidia-cutlass-dsl",
}
"""Packages that make a version, by their names in tables."""


@dataclass(frozen=True, slots=True)
class Version:
    """What a world ran: the commit with "+" if its checkout was changed, the digest of that change, and versions of
    libraries by the names in PACKAGES, "" where the records do not say."""

    commit: str
    change: str
    libraries: tuple[str, ...]
    driver: str


@dataclass(frozen=True, slots=True)
class Point:
    """A world of a series: its records (one, but for a case that was run again), and when it began."""

    world: str
    started: datetime
    records: tuple[Record, ...]

    @property
    def us(self) -> float | None:
        """The time of a call in microseconds; None if nothing was timed."""
        times = [record.timing.median_us for record in self.records if record.timing is not None]
        return statistics.median(times) if times else None

    @property
    def version(self) -> Version:
        return version_of(self.records[0])

    @property
    def has_data(self) -> bool:
        """Whether it has data that was found right."""
        return any(record.verified for record in self.records)

    @property
    def is_unchecked(self) -> bool:
        """Whether one of its records ended without a check of its data."""
        return any(record.status is Status.PASSED and not record.verified for record in self.records)

    @property
    def data_digest(self) -> str:
        """The digest of what every launch gave every rank, 12 digits; "" if the records do not say."""
        check = next((record.check for record in self.records if record.check is not None), None)
        if check is None or check.output_digests is None:
            return ""
        rows = "\n".join(" ".join(row) for row in check.output_digests)
        return hashlib.sha256(rows.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Series:
    """A case on a machine, timed in one way: its points in order of time, at least one."""

    machine: str
    setup: str
    points: tuple[Point, ...]

    @property
    def first(self) -> Record:
        return self.points[0].records[0]

    @property
    def timed(self) -> list[Point]:
        return [point for point in self.points if point.us is not None]

    @property
    def stretches(self) -> list[list[Point]]:
        """The timed points, those in a row that ran one version on one day together."""
        groups = groupby(self.timed, key=lambda point: (point.version, point.started.date()))
        return [list(some) for _, some in groups]

    @property
    def is_simulated(self) -> bool:
        return is_simulated(self.first)

    @property
    def versions(self) -> list[Version]:
        """Each version once, in order of time."""
        return list(dict.fromkeys(point.version for point in self.points))

    def version_us(self, version: Version) -> float | None:
        """Return the median time of a version's worlds; None if none was timed."""
        times = [point.us for point in self.points if point.us is not None and point.version == version]
        return statistics.median(times) if times else None


@dataclass(frozen=True, slots=True)
class TimeStep:
    """A change of times: the stretches before and after, and the ratio of their medians, above 1 slower."""

    before: list[Point]
    after: list[Point]
    ratio: float


def time_changes(series: Series, band: float) -> list[TimeStep]:
    """Return the stretches whose median lies outside the band around that of the stretch of the last change, at first
    that of the first stretch: so slow drift is named, too."""
    found: list[TimeStep] = []
    stretches = series.stretches
    for before, after in pairwise(stretches):
        level = found[-1].after if found else stretches[0]
        sides = sides_of(*([record for point in some for record in point.records] for some in (level, after)))
        judged = without_test(sides, band, APART)
        if judged.speed is Speed.OUTSIDE and judged.ratio is not None:
            found.append(TimeStep(before, after, judged.ratio))
    return found


@dataclass(frozen=True, slots=True)
class DataStep:
    """Whether the data of a point is that of an earlier one: the index of each, and what is said."""

    before: int
    at: int
    data: Data
    remark: str

    @property
    def is_compared(self) -> bool:
        return self.data is not Data.NOT_COMPARABLE


def data_steps(series: Series) -> list[DataStep]:
    """Return a step to each point of a series but the first, from the last one before it that it can be compared with.

    A point with verified data is compared with the last that has some, with digests if both can have them; one that
    broke or was wrong with the last that was checked or broke, so that a case that stays broken changed once.
    """
    steps = []
    for at in range(1, len(series.points)):
        before = _compared_with(series.points[:at], series.points[at])
        found = data_of(series.points[before].records, series.points[at].records)
        steps.append(DataStep(before, at, found.data, found.remark))
    return steps


def _compared_with(earlier: Sequence[Point], point: Point) -> int:
    """Return the index of the point to compare with; the last one if none has data."""
    if not point.has_data:
        wanted = [at for at, one in enumerate(earlier) if one.has_data or not one.is_unchecked]
    else:
        wanted = [at for at, one in enumerate(earlier) if one.has_data]
        if point.data_digest:
            wanted = [at for at in wanted if earlier[at].data_digest] or wanted
    return wanted[-1] if wanted else len(earlier) - 1


def version_of(record: Record) -> Version:
    """Return what a record says of the code and of the libraries that it ran with."""
    git, packages = record.environment.git or {}, record.environment.packages or {}
    commit = str(git.get("commit") or "")[:12]
    libraries = tuple(str(packages.get(name) or "") for name in PACKAGES.values())
    driver = record.environment.cuda_driver or ""
    return Version(f"{commit}{'+' if git.get('dirty') else ''}", str(git.get("diff_digest") or ""), libraries, driver)


def series_of(records: Iterable[Record]) -> list[Series]:
    """Return the series of records that ran, in order of appearance. Refused cases did not run, and have none."""
    ran = [record for record in records if record.status is not Status.REFUSED]
    members: dict[tuple[str, ...], list[Record]] = {}
    known: dict[str, set[tuple[str, ...]]] = {}
    for record in ran:
        if record.fabric is not None:
            known.setdefault(record.id, set()).add(_key(record))
    for record in ran:
        keys = known.get(record.id, set())
        # A case that broke before there was a fabric belongs to the one way in which it ran at other times.
        key = next(iter(keys)) if record.fabric is None and len(keys) == 1 else _key(record)
        members.setdefault(key, []).append(record)
    return [Series(key[1], key[2], _points(own)) for key, own in members.items()]


def _key(record: Record) -> tuple[str, ...]:
    fabric = record.fabric
    settings = sorted(fabric.settings.items()) if fabric is not None and fabric.simulated else []
    setup = ", ".join(part for part in (setup_text(record), said_settings(record)) if part)
    return record.id, machine_of(record), setup, fabric.arch if fabric is not None else "", str(settings)


def machine_of(record: Record) -> str:
    """Return the machine's GPUs with their number, such as "4 x NVIDIA H200"; else what the fabric says of itself."""
    if is_simulated(record):
        return f"simulator ({record.fabric.arch})" if record.fabric is not None else "simulator"
    count = len(record.environment.gpus or ())
    return f"{count} x {device_text(record)}" if count else device_text(record) or "unknown machine"


def _points(members: Sequence[Record]) -> tuple[Point, ...]:
    worlds = gathered((world_of(record), record) for record in members)
    points = [
        Point(world, min(datetime.fromisoformat(record.started) for record in own), tuple(own))
        for world, own in worlds.items()
    ]
    return tuple(sorted(points, key=lambda point: (point.started, point.world)))
