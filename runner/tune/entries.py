"""From the records of finalists to the entries of a table.

A figure is of one world: the median of its samples (of each the maximum over ranks), with the 95 % interval that order
statistics give, whatever the distribution is. Another world, or another day, differs by more than such an interval.
"""

from __future__ import annotations

import itertools
import math
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
from reports.record.record import Record, Status


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of a finalist and the digest of its file, "sha256:<hex>"."""

    record: Record
    digest: str


def entry_of(case: Case, finalists: Sequence[Kept], searched: Searched) -> Entry | None:
    """Return the entry of a case, whose algorithm does not matter, without its range; None if no finalist passed."""
    figures = [(figure, one) for one in finalists if (figure := figure_of(one.record)) is not None]
    figures.sort(key=lambda pair: pair[0].value)
    ours = [figure for figure, one in figures if has_tuning(one.record.case.algorithm)]
    if not ours:
        return None
    others = [figure for figure in ours if figure.name != ours[0].name]
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
        choice=ours[0],
        runner_up=others[0] if others else None,
        searched=searched,
        records=tuple(one.digest for _, one in figures),
    )


def figure_of(record: Record) -> Figure | None:
    """Return a record's figure: its time, or of a simulated one its number of executed instructions. None if it did not
    pass."""
    if record.status is not Status.PASSED or record.check is None or record.fabric is None:
        return None
    if record.timing is not None:
        ordered = record.timing.ordered_us()
        low, high = median_interval(len(ordered))
        median = record.timing.median_us
        return Figure(record.case.algorithm, median, ordered[low], ordered[high], len(ordered))
    count = record.counters.get("instructions")
    if not record.fabric.simulated or type(count) is not int or count < 1:
        return None
    return Figure(record.case.algorithm, float(count), float(count), float(count), 1)


def median_interval(count: int) -> tuple[int, int]:
    """Return the places, from 0, of the ordered samples between which the median lies with at least 95 %; the first and
    the last of fewer than six samples, which have less."""
    total, below = 2**count, 0
    place = 0
    while place < count // 2:
        below += math.comb(count, place)
        if 2 * below > 0.05 * total:
            break
        place += 1
    place = max(place - 1, 0)
    return place, count - 1 - place


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
            most = find(f"{one.op}/{one.choice.name}").max_size_bytes
            end = max(one.size_bytes, min(end, most if most is not None else end))
            found.append(replace(one, from_bytes=begin, up_to_bytes=end))
            begin = end + 1
    return tuple(found)


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
