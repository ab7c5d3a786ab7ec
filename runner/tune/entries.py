"""From the records of finalists to the entries of a table.

One half of the turns chooses, and a figure is of the other half (halves.py): the median of its samples, of each the
maximum over ranks, with the 95 % interval that order statistics give, whatever the distribution is. It is of one world:
another world, or another day, differs by more than such an interval. Among candidates that are as quick the choice is
made for a whole series of sizes (ties.py).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from kernels.catalogue import find
from kernels.spec import Case
from kernels.tuned.table import Entry, Figure, Searched
from kernels.tuned_name import has_tuning
from kernels.tuning import ANY_SIZE
from reports.record.bundle import located
from reports.record.intervals import median_interval
from reports.record.record import Record, Status
from runner.tune.halves import choosing, judging
from runner.tune.model_first import blocks_of
from runner.tune.ties import TIE, Option, chosen


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of a finalist and the digest of its file, "sha256:<hex>"."""

    record: Record
    digest: str


def options_of(case: Case, finalists: Sequence[Kept]) -> list[Option]:
    """Return what can be chosen at a case, whose algorithm does not matter, by the turns that choose; the quickest
    first."""
    options = []
    for one in finalists:
        score, name = score_of(one.record), one.record.case.algorithm
        if score is not None and has_tuning(name):
            options.append(Option(name, score, blocks_of(case, name)))
    return sorted(options, key=lambda option: option.value)


def entry_of(case: Case, finalists: Sequence[Kept], searched: Searched, choice: str) -> Entry:
    """Return the entry of a case, whose algorithm does not matter, without its range. choice: the name of one of its
    options; the runner-up is the quickest other one."""
    figures = [(figure, one) for one in finalists if (figure := figure_of(one.record)) is not None]
    figures.sort(key=lambda pair: score_of(pair[1].record) or math.inf)
    ours = [figure for figure, _ in figures if has_tuning(figure.name)]
    others = [figure for figure in ours if figure.name != choice]
    return Entry(
        op=case.op,
        dtype=case.dtype,
        accumulator=case.accumulator,
        reduction=case.reduction,
        placement=case.placement,
        ranks=case.world_size,
        size_bytes=case.size_bytes,
        from_bytes=case.size_bytes,
        up_to_bytes=case.size_bytes,
        choice=next(figure for figure in ours if figure.name == choice),
        runner_up=others[0] if others else None,
        searched=searched,
        records=tuple(one.digest for _, one in figures),
    )


def figure_of(record: Record) -> Figure | None:
    """Return a record's figure: its time by the turns that judge, or of a simulated one its number of executed
    instructions. None if it did not pass."""
    samples = _samples(record)
    if not samples:
        return None
    ordered = sorted(judging(samples))
    low, high = median_interval(len(ordered))
    return Figure(record.case.algorithm, statistics.median(ordered), ordered[low], ordered[high], len(ordered))


def score_of(record: Record) -> float | None:
    """Return the median by which a record's case is chosen or not, of other turns than its figure is; None if it did
    not pass."""
    samples = _samples(record)
    return statistics.median(choosing(samples)) if samples else None


def _samples(record: Record) -> Sequence[float]:
    """What was measured of a record that passed, in the order of turns; of a simulated one its one count."""
    if record.status is not Status.PASSED or record.check is None or record.fabric is None:
        return ()
    if record.timing is not None:
        return record.timing.per_iteration_us()
    count = record.counters.get("instructions")
    return (float(count),) if record.fabric.simulated and type(count) is int and count >= 1 else ()


def chosen_names(
    keys: Sequence[tuple[object, ...]], options: Sequence[Sequence[Option]], tie: float = TIE
) -> list[str]:
    """Return the name of the choice at each point; "" without options. keys: of the points, those of one series have
    the same key and are in the order of their sizes. tie: see ties.chosen; 0 where figures are exact."""
    names = [""] * len(keys)
    for key in dict.fromkeys(keys):
        members = [number for number, one in enumerate(keys) if one == key and options[number]]
        if members:
            for number, one in zip(members, chosen([options[number] for number in members], tie), strict=True):
                names[number] = one.name
    return names


def crossed(entries: Sequence[Entry], measured: Sequence[Sequence[Kept]]) -> list[Entry]:
    """Return entries whose neighbours' choices were measured at both sizes, with the size at which the two cross.

    measured are the finalists of each entry. Between two sizes times are taken to be linear in bytes.
    """
    found = list(entries)
    values = [
        {figure.name: figure.value for one in finalists if (figure := figure_of(one.record)) is not None}
        for finalists in measured
    ]
    order = sorted(range(len(found)), key=lambda number: (found[number].key, found[number].size_bytes))
    for first, second in itertools.pairwise(order):
        one, other = found[first], found[second]
        names = one.choice.name, other.choice.name
        if (
            one.key != other.key
            or names[0] == names[1]
            or not all(set(names) <= set(values[at]) for at in (first, second))
        ):
            continue
        before = values[first][names[1]] - values[first][names[0]]
        after = values[second][names[0]] - values[second][names[1]]
        share = before / (before + after) if before + after > 0 else 0.5
        end = min(one.size_bytes + int(share * (other.size_bytes - one.size_bytes)), other.size_bytes - 1)
        found[first] = replace(found[first], up_to_bytes=end)
        found[second] = replace(found[second], from_bytes=end + 1)
    return found


def with_ranges(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with the ranges that they are for: up to where two neighbours' choices cross, if they say so
    (crossed), else up to the geometric mean of the two sizes, and no further than the kernel takes; before the first
    size and beyond the last one as far as to a neighbour at a factor of four."""
    series: dict[tuple[object, ...], list[Entry]] = {}
    for one in entries:
        series.setdefault(one.key, []).append(one)
    found = []
    for members in series.values():
        members.sort(key=lambda one: one.size_bytes)
        begin = members[0].size_bytes // 2
        for number, one in enumerate(members):
            following = members[number + 1] if number + 1 < len(members) else None
            after = following.size_bytes if following is not None else 4 * one.size_bytes
            meet = following is not None and following.from_bytes == one.up_to_bytes + 1
            middle = one.up_to_bytes if meet else math.isqrt(one.size_bytes * after)
            end = min(middle, ANY_SIZE, max(after - 1, one.size_bytes))
            most = find(f"{one.op}/{one.choice.name}").limit_bytes(one.ranks)
            end = max(one.size_bytes, min(end, most if most is not None else end))
            found.append(replace(one, from_bytes=begin, up_to_bytes=end))
            begin = end + 1
    return tuple(found)


def ranges_in(entries: Sequence[Entry]) -> int:
    """Return the number of ranges of sizes with one choice; entries are in the order of merged()."""
    names = [(one.key, one.choice.name) for one in entries]
    return len(names) - sum(one == other for one, other in itertools.pairwise(names))


def merged(earlier: Iterable[Entry], later: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries of both, later ones in place of earlier ones of the same case, with their ranges."""
    found = {(one.key, one.size_bytes): one for one in (*earlier, *later)}
    return with_ranges(sorted(found.values(), key=lambda one: (one.key, one.size_bytes)))


def kept_in(folder: Path) -> dict[int, list[Kept]]:
    """Return the records of a command's folder with the digests of their files, by job. ValueError without any."""
    jobs: dict[int, list[Kept]] = {}
    for record, path, _ in located([folder]):
        digest = f"sha256:{sha256(path.read_bytes()).hexdigest()}"
        jobs.setdefault(record.request.job, []).append(Kept(record, digest))
    return jobs
