"""From the records of finalists to the entries of a table.

One half of the turns chooses, and a figure is of the other half (halves.py): the median of its samples, of each the
maximum over ranks, with the 95 % interval that order statistics give, whatever the distribution is. It is of one world:
another world, or another day, differs by more than such an interval.

The catalogue's own tunings are the rivals that every other tuning has to beat, in both halves. What wins at one size
may owe it to that size, such as a power of two, which its blocks divide: another tuning is a choice from the first to
the last of the sizes in a row at which it wins, and on to the next where it is no slower than the catalogue's own;
between two sizes otherwise the catalogue's own is. Where the own one won at a single size between two of the same
tuning, neither is trusted further, and they meet where they cross. A tuning that wins at one size alone, which was not
asked for (it is between two others), is no choice there: the quickest that wins beside it, too, is, or the best of the
catalogue's own, and the ranges of its neighbours are between sizes whose choices were compared.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from cases.case import Case
from cases.gathered import gathered
from cases.record.record import Record, Status, load
from kernels.catalogue import find, is_known
from kernels.tuned_name import has_tuning, is_dependent_alone
from kernels.tuning import ANY_SIZE
from reports.record.bundle import begun, record_files
from reports.record.intervals import median_interval
from runner.case.bringing import is_place, recorded_place
from symlab.speed.tune.halves import choosing, judging
from symlab.speed.tuned.table import Entry, Figure, Searched

GAIN = 0.01
"""How much quicker than the catalogue's own a tuning has to be to take its place, as a share: a smaller gain may be
gone at the sizes beside it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A record of a finalist and the digest of its file, "sha256:<hex>"."""

    record: Record
    digest: str


def options_of(case: Case, finalists: Sequence[Kept]) -> list[str]:
    """Return the names that can be chosen at a case, whose algorithm does not matter, the quickest first: tunings that
    are quicker by GAIN than all of the catalogue's own, in the turns that choose and in those that judge, and the best
    of the catalogue's own by the turns that choose."""
    ours = _halves(case, finalists)
    best = sorted((name for name in ours if is_own(name)), key=lambda name: ours[name])[:1]
    return [*_quicker(ours, GAIN), *best]


def _halves(case: Case, finalists: Sequence[Kept]) -> dict[str, tuple[float, float]]:
    """The times of our kernels, by the turns that choose and by those that judge."""
    return {
        figure.name: (choosing_us, figure.value)
        for one in finalists
        if (choosing_us := score_of(one.record)) is not None
        and (figure := figure_of(one.record)) is not None
        and is_ours(case.op, figure.name)
    }


def _quicker(ours: Mapping[str, tuple[float, float]], gain: float) -> list[str]:
    """The tunings that are quicker by a share than all of the catalogue's own, in both halves, the quickest first."""
    own = [both for name, both in ours.items() if is_own(name)]
    limits = [min((both[half] for both in own), default=math.inf) * (1 - gain) for half in range(2)]
    found = [
        name
        for name, both in ours.items()
        if not is_own(name) and all(us <= limit for us, limit in zip(both, limits, strict=True))
    ]
    return sorted(found, key=lambda name: ours[name])


def best_own(case: Case, finalists: Sequence[Kept], factor: float) -> set[str]:
    """Return the catalogue's own that took at most the time of the quickest of them, times a factor, by the turns that
    choose."""
    own = {name: us for name, (us, _) in _halves(case, finalists).items() if is_own(name)}
    return {name for name, us in own.items() if us <= factor * min(own.values())}


def is_own(name: str) -> bool:
    """Return whether a kernel's name is that of the catalogue's own tuning."""
    return not is_place(name) and (not has_tuning(name) or is_dependent_alone(name))


def is_ours(op: str, name: str) -> bool:
    """Return whether a contestant's name is that of a kernel, the catalogue's or a brought one, and no library's."""
    return is_place(name) or is_known(f"{op}/{name}")


def entry_of(case: Case, finalists: Sequence[Kept], searched: Searched, choice: str) -> Entry:
    """Return the entry of a case, whose algorithm does not matter, without its range. choice: the name of one of its
    options; the runner-up is the quickest other kernel of ours."""
    figures = [(figure, one) for one in finalists if (figure := figure_of(one.record)) is not None]
    figures.sort(key=lambda pair: score_of(pair[1].record) or math.inf)
    ours = [figure for figure, _ in figures if is_ours(case.op, figure.name)]
    others = [figure for figure in ours if figure.name != choice]
    libraries = [figure for figure, _ in figures if figure not in ours]
    brought = [entry for one in finalists for entry in (one.record.request.brought or {}).values()]
    digests = {str(entry["place"]): str(entry["digest"]) for entry in brought}
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
        library=libraries[0] if libraries else None,
        searched=searched,
        records=tuple(one.digest for _, one in figures),
        kernel=digests.get(choice, ""),
        gemm=case.gemm,
    )


def figure_of(record: Record) -> Figure | None:
    """Return a record's figure: its time by the turns that judge. None if it did not pass."""
    samples = _samples(record)
    if not samples:
        return None
    ordered = sorted(judging(samples))
    low, high = median_interval(len(ordered))
    name = recorded_place(record) or record.case.algorithm
    return Figure(name, statistics.median(ordered), ordered[low], ordered[high], len(ordered))


def score_of(record: Record) -> float | None:
    """Return the median by which a record's case is chosen or not, of other turns than its figure is; None if it did
    not pass."""
    samples = _samples(record)
    return statistics.median(choosing(samples)) if samples else None


def _samples(record: Record) -> Sequence[float]:
    """What was measured of a record that passed, in the order of turns."""
    is_right = record.status is Status.PASSED and record.check is not None
    return record.timing.per_iteration_us if is_right and record.timing is not None else ()


def series_of(
    cases: Sequence[Case],
    measured: Sequence[Sequence[Kept]],
    found: Sequence[Searched],
    between: Sequence[bool] = (),
) -> list[Entry | None]:
    """Return the entries of a series of sizes, in any order, with the sizes at which neighbours' choices cross; None
    for a size of which no finalist passed.

    measured: the finalists of each size; found: how each was searched; between: whether each was measured between two
    that were asked for, none by default.
    """
    options = [options_of(case, ran) for case, ran in zip(cases, measured, strict=True)]
    places = sorted((place for place, one in enumerate(options) if one), key=lambda place: cases[place].size_bytes)
    values = [_values(measured[place]) for place in places]
    as_good = [_quicker(_halves(cases[place], measured[place]), 0.0) for place in places]
    names = [options[place][0] for place in places]
    for at, place in enumerate(places):
        if between and between[place]:
            near = [beside for beside in (at - 1, at + 1) if 0 <= beside < len(places)]
            there = {name for beside in near for name in (options[places[beside]][0], *as_good[beside])}
            names[at] = next((name for name in options[place] if is_own(name) or name in there), names[at])
    made = [
        entry_of(cases[place], measured[place], found[place], name) for place, name in zip(places, names, strict=True)
    ]
    entries: list[Entry | None] = [None] * len(cases)
    for place, one in zip(places, crossed(made, values, as_good), strict=True):
        entries[place] = one
    return entries


def _crossing(before: Mapping[str, float], after: Mapping[str, float], one: str, other: str) -> float:
    """Where a choice's time crosses the next one's, as a share of the way from one size to the next, 0 to 1."""
    lead, lag = before[other] - before[one], after[one] - after[other]
    return min(max(lead / (lead + lag), 0.0), 1.0) if lead + lag > 0 else 0.5


def _values(finalists: Sequence[Kept]) -> dict[str, float]:
    """The figures of a size's finalists, by name."""
    return {figure.name: figure.value for one in finalists if (figure := figure_of(one.record)) is not None}


def crossed(
    entries: Sequence[Entry], values: Sequence[Mapping[str, float]], as_good: Sequence[Sequence[str]]
) -> list[Entry]:
    """Return the entries of a series; those whose neighbours' choices were measured at both sizes with the size at
    which the two cross. Between two sizes times are taken to be linear in bytes.

    values: the finalists' figures of each entry, by name; as_good: the tunings that are no slower there than the
    catalogue's own. A choice that is for its own sizes alone goes no further than to where it is as good: another
    tuning than the catalogue's, and one between two sizes that agree on another.
    """
    found = list(entries)
    names = [one.choice.name for one in entries]
    bound = [
        not is_own(name) or (0 < at < len(names) - 1 and names[at - 1] == names[at + 1] != name)
        for at, name in enumerate(names)
    ]
    for at, (one, other) in enumerate(itertools.pairwise(entries)):
        both = names[at], names[at + 1]
        if both[0] == both[1]:
            continue
        if bound[at] != bound[at + 1]:
            is_later = not bound[at]
            goes_on = both[is_later] in as_good[at + 1 - is_later]
            end = other.size_bytes - 1 if goes_on != is_later else one.size_bytes
        elif all(set(both) <= set(values[place]) for place in (at, at + 1)):
            share = _crossing(values[at], values[at + 1], *both)
            end = min(one.size_bytes + int(share * (other.size_bytes - one.size_bytes)), other.size_bytes - 1)
        else:
            continue
        found[at] = replace(found[at], up_to_bytes=end)
        found[at + 1] = replace(found[at + 1], from_bytes=end + 1)
    return found


def with_ranges(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with the ranges that they are for: up to where two neighbours' choices cross, if they say so
    (crossed), else up to the geometric mean of the two sizes, and no further than the kernel takes; before the first
    size and beyond the last one as far as to a neighbour at a factor of four."""
    series = gathered((one.key, one) for one in entries)
    found = []
    for members in series.values():
        if members[0].gemm is not None:  # one shape has one size
            found += members
            continue
        members.sort(key=lambda one: one.size_bytes)
        begin = members[0].size_bytes // 2
        for number, one in enumerate(members):
            following = members[number + 1] if number + 1 < len(members) else None
            after = following.size_bytes if following is not None else 4 * one.size_bytes
            meet = following is not None and following.from_bytes == one.up_to_bytes + 1
            middle = one.up_to_bytes if meet else math.isqrt(one.size_bytes * after)
            end = min(middle, ANY_SIZE, max(after - 1, one.size_bytes))
            name = one.choice.name
            most = None if is_place(name) else find(f"{one.op}/{name}").limit_bytes(one.ranks)
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
    found = [Kept(load(path), f"sha256:{sha256(path.read_bytes()).hexdigest()}") for path in record_files(folder)]
    if not found:
        raise ValueError(f"{folder}: no records here")
    return gathered((kept.record.request.job, kept) for kept in sorted(found, key=lambda one: begun(one.record)))
