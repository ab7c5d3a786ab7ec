"""Records side by side: whose cases belong in one section, worlds of one case as one row, who is best at a size.

A case that was run several times, by new worlds each time, is one Row: its figures are the median over its worlds.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cases.case import UNIFORM
from cases.record.record import Record, Status
from cases.record.timing import SAMPLING, LinkLimit, Timing, Window
from reports.table.text import counted, place_text

LIMIT_LABEL = "limit of the link (peer copy, measured)"
"""What the line of the measured limit is called in legends."""

LIBRARY = "library"
"""The accumulator of a baseline's case: what a library does inside is its own matter."""

_SHOWN = (
    *("op", "algorithms", "dtype", "accumulator", "reduction", "world_size", "sizes", "placement", "inputs"),
    *("root", "offset", "counts", "stress", "m", "n", "k"),
)
"""Keys whose values a heading or a line says anyway."""

_NO_BEARING = (
    "exp",
    "baselines",
    "deadline_s",
    "fabric",
    "launches",
    "library",
    "stress_seeds",
    "records",
    "cache_dir",
    "timing",
    "track",
    "tuned",
)
"""Keys that tell no timings apart, beyond what headings and captions say of them."""

_TELLING = tuple(f"timing.{name}" for name in SAMPLING)
"""Keys of a section with no bearing that have one."""


@dataclass(frozen=True)
class Section:
    """A job's part of a table, or that of several jobs that ran the same: its heading and its records."""

    heading: str
    records: tuple[Record, ...]

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """See rows."""
        return _rows(self)


@dataclass(frozen=True)
class Row:
    """One case of a section, as all its worlds ran it: at least one record, of one status.

    best: the quickest of its size. ratio: on the row of our best algorithm at a size only, its time over that of
    the best baseline, so below 1 is faster; None elsewhere, and where no baseline was measured. version: of the library
    that ran it, where the section has several of one library.
    """

    records: tuple[Record, ...]
    best: bool = False
    ratio: float | None = None
    version: str = ""

    @property
    def algorithm(self) -> str:
        """The algorithm's name, with the library's version where there are several."""
        return f"{self.records[0].case.algorithm} {self.version}".rstrip()

    @property
    def placement(self) -> str:
        return self.records[0].case.placement

    @property
    def size_bytes(self) -> int:
        return self.records[0].case.size_bytes

    @property
    def count(self) -> int:
        """Elements, as nccl-tests counts them: the size over the dtype's."""
        return self.records[0].case.numel

    @property
    def status(self) -> Status:
        return self.records[0].status

    @property
    def is_ours(self) -> bool:
        return not is_baseline(self.records[0])

    @property
    def timings(self) -> tuple[Timing, ...]:
        """One a world; none where nothing was measured."""
        return tuple(record.timing for record in self.records if record.timing is not None)

    @property
    def times_us(self) -> tuple[float, ...]:
        """The median time of each world."""
        return tuple(timing.median_us for timing in self.timings)

    def figure(self, name: str) -> float | None:
        """The median over worlds of a figure of Timing: min_us, median_us, p95_us, p99_us, max_us, algbw_gbps,
        busbw_gbps, of_limit. None where no world has it."""
        if name not in self._figures:
            self._figures[name] = self._figure(name)
        return self._figures[name]

    @cached_property
    def _figures(self) -> dict[str, float | None]:
        return {}

    def _figure(self, name: str) -> float | None:
        timings = [one for one in self.timings if one.has_bandwidth or name.endswith("_us")]
        values = [getattr(timing, name) for timing in timings]
        values = [value(self.size_bytes) if callable(value) else value for value in values]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    @property
    def tflops(self) -> float | None:
        """10^12 operations a second of a rank's product, by the median time of all that is fused with it;
        None of an op that multiplies nothing, and if it was not timed."""
        flops, time_us = self.records[0].case.flops, self.figure("median_us")
        return flops / time_us / 1e6 if flops and time_us else None

    @property
    def wrong(self) -> int | None:
        """Number of wrong elements in all worlds; None if none was checked."""
        checks = [record.check for record in self.records if record.check is not None]
        return sum(check.wrong for check in checks) if checks else None


def rows(section: Section) -> tuple[Row, ...]:
    """The rows of a section, by size, ours first, then in order of appearance, versions of one library together; best
    and ratio are set."""
    return section.rows


def _rows(section: Section) -> tuple[Row, ...]:
    cases: dict[tuple[str, Status, bool, str], list[Record]] = {}
    libraries: dict[str, set[str]] = {}
    for record in section.records:
        cases.setdefault((record.id, record.status, record.timing is None, record.library), []).append(record)
        libraries.setdefault(record.case.algorithm, set()).add(record.library)
    several = {algorithm for algorithm, versions in libraries.items() if len(versions - {""}) > 1}
    groups: dict[object, list[Row]] = {}
    for key, records in cases.items():
        name = records[0].case.algorithm
        groups.setdefault(name if name in several else key, []).append(
            Row(tuple(records), version=_version(records[0], several))
        )
    found = sorted(
        (row for group in groups.values() for row in group), key=lambda row: (row.size_bytes, not row.is_ours)
    )
    judged: list[Row] = []
    for size_bytes in dict.fromkeys(row.size_bytes for row in found):
        judged += _judged([row for row in found if row.size_bytes == size_bytes])
    return tuple(judged)


def _version(record: Record, several: Collection[str]) -> str:
    """The version in the name of a record's library, of algorithms that several ran, with what it was restricted to:
    "2.28.9" of "NCCL 2.28.9", "2.28.9 (Ring, LL)" of "NCCL 2.28.9 (Ring, LL)"."""
    if record.case.algorithm not in several:
        return ""
    return " ".join(re.findall(r" (\d\S*)", record.library)[:1] + re.findall(r"\(.+\)$", record.library))


def _judged(contestants: Sequence[Row]) -> list[Row]:
    """The rows of one size, with the best marked and the ratio on ours."""
    times = [row.figure("median_us") for row in contestants]
    timed = [(time, row.is_ours) for time, row in zip(times, contestants, strict=True) if time is not None]
    ours = min((time for time, is_ours in timed if is_ours), default=None)
    theirs = min((time for time, is_ours in timed if not is_ours), default=None)
    best = min((time for time, _ in timed), default=None)
    judged = []
    for time, row in zip(times, contestants, strict=True):
        ratio = time / theirs if time is not None and row.is_ours and time == ours and theirs is not None else None
        judged.append(replace(row, best=time is not None and time == best, ratio=ratio))
    return judged


def split(records: Sequence[Record]) -> tuple[list[Section], list[Record]]:
    """Records in sections of which something was timed, in order of appearance; and all others.

    A section is what can be compared: op, dtype, accumulator, reduction, world size, inputs, device, how it was timed,
    and the commit that ran it. A heading names the last three only where the records differ in them.
    """
    requests = {id(record.request): record.request for record in records}
    differing = varying([request.overrides for request in requests.values()])
    setups = {setup for record in records if record.timing is not None and (setup := setup_text(record))}
    machines = {(id(record.environment), id(record.fabric)): record for record in records if record.fabric is not None}
    devices = set(map(device_text, machines.values()))
    commits = {commit_text(record) for record in {id(one.environment): one for one in records}.values()} - {""}
    found: dict[tuple[str, ...], list[Record]] = {}
    told: dict[int, tuple[str, ...]] = {}
    headings: dict[tuple[int, int, str], str] = {}
    naming_counts = ops_of_several_counts(records)
    for record in records:  # parts that were read together are the same objects: each is looked at once
        case, request = record.case, record.request
        if id(request) not in told:
            told[id(request)] = tuple(one for one in request.overrides if one in differing and _tells(one))
        if (key := (id(case), id(request), record.library)) not in headings:
            headings[key] = heading(record, naming_counts)
        parts = [headings[key]]
        parts += [device_text(record)] if len(devices) > 1 else []
        parts += [setup_text(record)] if len(setups) > 1 and setup_text(record) else []
        parts += [f"symlab {commit}"] if len(commits) > 1 and (commit := commit_text(record)) else []
        found.setdefault((*parts, *told[id(request)]), []).append(record)
    timed = {key for key, members in found.items() if any(record.timing is not None for record in members)}
    sections = [Section(", ".join(key), tuple(found[key])) for key in found if key in timed]
    return sections, [record for key, members in found.items() if key not in timed for record in members]


def commit_text(record: Record) -> str:
    """Return the commit that ran a record, shortened, with "+changes" if its tree had any; "" if it is unknown."""
    git = record.environment.git or {}
    commit = str(git.get("commit") or "")[:12]
    return f"{commit}+changes" if commit and git.get("dirty") else commit


def contestant_text(row: Row, judged: Sequence[Row]) -> str:
    """A contestant's name among others: its algorithm, with the placement where that was run in both."""
    placements = {one.placement for one in judged if one.algorithm == row.algorithm}
    return _contestant_text(row, len(placements) > 1)


def _contestant_text(row: Row, is_paired: bool) -> str:
    return f"{row.algorithm} ({place_text(row.placement)})" if is_paired else row.algorithm


def contestants(judged: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each contestant, by its name among the others, in order of appearance. What a table chose at each
    size is one contestant, "best", whatever the algorithms are."""
    places: dict[str, set[str]] = {}
    for row in judged:
        places.setdefault(row.algorithm, set()).add(row.placement)
    found: dict[str, list[Row]] = {}
    for row in judged:
        name = _contestant_text(row, len(places[row.algorithm]) > 1)
        if by := row.records[0].request.chosen_by:
            name = name.replace(row.algorithm, by, 1)
        found.setdefault(name, []).append(row)
    return found


def is_second(own: Sequence[Row], judged: Sequence[Row]) -> bool:
    """Whether a contestant is the one in place of an algorithm that was run in both placements."""
    return own[0].placement == "in_place" and contestant_text(own[0], judged) != own[0].algorithm


def varying(overrides: Iterable[Sequence[str]]) -> frozenset[str]:
    """The overrides that some jobs have and others have not: what tells the jobs of a sweep apart."""
    jobs = {frozenset(one) for one in overrides}
    return frozenset().union(*jobs) - frozenset.intersection(*jobs) if jobs else frozenset()


def is_shown(override: str) -> bool:
    """A heading or a line says it anyway."""
    return _key(override) in _SHOWN


def _tells(override: str) -> bool:
    return _key(override) not in (*_SHOWN, *_NO_BEARING) or override.lstrip("+").partition("=")[0] in _TELLING


def _key(override: str) -> str:
    return override.lstrip("+").partition("=")[0].partition(".")[0]


def is_simulated(record: Record) -> bool:
    """Return whether a simulator ran it: False for a case that ended before its fabric was open."""
    return record.fabric is not None and record.fabric.simulated


def is_baseline(record: Record) -> bool:
    """A library ran it, or would have: it is not ours."""
    return bool(record.library) or record.case.accumulator == LIBRARY


def accumulator(record: Record) -> str:
    """The accumulator that the job asked for: a baseline's own is "library", and it stands beside ours. "" if
    unknown."""
    if is_baseline(record):
        for said in (record.request.resolved, record.request.configuration):  # records of before left nothing open
            if said is not None and "accumulator" in said:
                return str(said["accumulator"])
    return record.case.accumulator


def ops_of_several_counts(records: Iterable[Record]) -> frozenset[str]:
    """Return the ops whose records differ in their counts: their headings name the usual counts, too."""
    counts: dict[str, set[str]] = {}
    for record in records:
        counts.setdefault(record.case.op, set()).add(record.case.counts)
    return frozenset(op for op, found in counts.items() if len(found) > 1)


def heading(record: Record, naming_counts: Collection[str] = ()) -> str:
    """What a job fixes: "all_reduce bfloat16, accumulator float32, sum, 8 ranks, normal inputs"; for an op that reduces
    nothing "all_gather bfloat16, moves data, 8 ranks, normal inputs". Root, offset, counts, M, N, K and stress where
    there are any; of the ops in naming_counts the usual counts, too. Of a custom kernel "custom float32, 8 ranks"."""
    case = record.case
    size = case.world_size
    parts = [f"{case.op} {case.dtype}"]
    if case.op == "custom":
        return ", ".join([*parts, counted(size, "rank")])  # what it computes is its own matter
    if case.reduction == "none":
        parts += ["moves data"]
    else:
        parts += [f"accumulator {accumulator(record)}"] if accumulator(record) else []
        parts += [case.reduction]
    parts += [counted(size, "rank")]
    parts += [f"{name} {value}" for name, value in (("root", case.root), ("offset", case.offset)) if value]
    parts += [f"counts {case.counts}"] if case.counts != UNIFORM or case.op in naming_counts else []
    parts += ["M {}, N {}, K {}".format(*case.gemm)] if case.gemm else []
    parts += [f"stress {case.stress}"] if case.stress != "none" else []
    return ", ".join([*parts, f"{case.inputs} inputs"])


def setup_text(record: Record) -> str:
    """How it was timed, or was to be: "graph, window kernel, L2 rotate"; "" if unknown."""
    if record.timing is not None:
        mode, window, l2 = record.timing.mode, record.timing.window, record.timing.l2
    else:
        asked = (record.request.configuration or {}).get("timing")
        if not isinstance(asked, dict) or not {"mode", "l2"} <= set(asked):
            return ""
        mode, window, l2 = asked["mode"], asked.get("window", Window.kernel), asked["l2"]
    return f"{mode}, window {window}, L2 {l2}"


def device_text(record: Record) -> str:
    """The GPUs' model as the driver says it, else what the fabric says of itself."""
    models = {str(gpu.get("model", "")) for gpu in record.environment.gpus or ()}
    if record.fabric is not None and record.fabric.simulated:
        models = set()
    if models - {""}:
        return " and ".join(sorted(models - {""}))
    return record.fabric.description or record.fabric.name if record.fabric is not None else ""


def limits(records: Iterable[Record]) -> list[LinkLimit]:
    """All measured limits, each once."""
    timings = [record.timing for record in records if record.timing is not None]
    return list(dict.fromkeys(timing.limit for timing in timings if timing.limit is not None))


def limit_gbps(records: Iterable[Record]) -> float | None:
    """The better direction's measured limit, the middle one of several, in GB/s; None where none was measured."""
    found = sorted(one.gbps for one in limits(records))
    return found[len(found) // 2] if found else None
