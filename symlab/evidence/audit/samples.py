"""Item "samples": the number of raw samples, and whether they look edited.

Honest samples are noise around a level that may drift, in steps of the clock's resolution. Editing leaves three traces:

- a long run in one direction with steps as uneven as those of sorted noise; a drift has even ones;
- equal values, or blocks of them, far more often than values a few of the clock's steps apart;
- many samples at the largest value, or the smallest, and few near it.

Resolution is what the samples of a whole world show. Where a clock is so coarse, or noise so small, that values repeat
anyway, nothing is said.

A test holds simulated honest records, with white and correlated noise, drift, warm-up, two states and stragglers, to
fewer than 0.1 % with a finding. Samples that were redrawn from honest ones leave no trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cases.record.record import Record
from cases.record.timing import Timing
from reports.table.text import counted
from symlab.evidence.audit.clocks import untimed
from symlab.evidence.audit.items import Outcome, Point, held
from symlab.evidence.audit.material import Material
from symlab.evidence.audit.timing import asked_timing

_PLACES = {1: "tenths", 2: "hundredths"}
"""Decimal places at which unrounded samples do not all end: CUDA events give binary milliseconds."""

_FEW = 10
"""Minimum number of samples, over all ranks, to call a timing rounded: fewer may all be round by chance."""

_CLOCKS_APART_S = 1.0
"""Maximum time by which samples may last longer than their case, beside a hundredth of it."""

LONGEST_RUN = 32
"""Minimum length of a run in one direction that is looked at. Among the published samples, 50 a rank, it is 8."""

UNEVEN, NEIGHBOURS = 0.8, 0.6
"""Minimum ratio of standard deviation and mean of a run's steps, the two largest left out, and maximum correlation of
neighbouring steps, of sorted noise. Of the simulated drifts none has both."""

LEAST_SAMPLES = 40
"""Minimum number of samples, over all ranks, to look for copies and a cut-off."""

NEAR = 4
"""Maximum number of the clock's steps between values that are near each other."""

MORE_OFTEN, MORE_PAIRS = 3.0, 12
"""Equal pairs are copies if there are more than MORE_OFTEN times as many as of any one small distance, and MORE_PAIRS.
Among the published timings the largest ratio is 2.2."""

CHANCE = 1e-9
"""Maximum probability of a block that is there twice, if values follow each other at random."""

EDGE, AT_THE_EDGE = 8, 7
"""A cut-off: at least AT_THE_EDGE samples at the last value, and more than MORE_OFTEN times as many as in each of the
EDGE steps before it, on average. Among the published timings at most 6 are, with few near them."""

Series = NDArray[np.float64]
Steps = NDArray[np.int64]


def samples(material: Material) -> Iterator[Point]:
    """How many samples there are, and what speaks against them."""
    if not material.timed:
        yield untimed(material)
        return
    sentences = [
        f"{record.id}: {text}" for record in material.timed for text in (*_other_number(record), *_rounded(record))
    ]
    sentences += [f"{name}: {text}" for name, world in material.worlds.items() for text in _edited(world)]
    count = sum(len(row) for record in material.timed if record.timing for row in record.timing.samples_us)
    good = (
        f"{counted(count, 'sample')} of {counted(len(material.timed), 'timing')}: none rounded, sorted, copied, cut off"
    )
    yield from held(sentences, good)
    if unknown := sum("samples" not in asked_timing(record) for record in material.timed):
        yield Point(Outcome.NOT_CAPTURED, f"how many were asked for: of {counted(unknown, 'timing')}")


def _other_number(record: Record) -> Iterator[str]:
    there, wanted = len(record.timing.samples_us[0]) if record.timing else 0, asked_timing(record).get("samples")
    if isinstance(wanted, int) and there != wanted:
        yield f"{counted(there, 'sample')}, asked were {wanted}"


def _rounded(record: Record) -> Iterator[str]:
    """Whether all samples are round, of enough to tell that from chance."""
    rows = record.timing.samples_us if record.timing is not None else ()
    places = next((n for n in _PLACES if all(value == round(value, n) for row in rows for value in row)), 0)
    if places and sum(map(len, rows)) >= _FEW:
        yield f"all samples are whole {_PLACES[places]} of a microsecond"


def _edited(world: Sequence[Record]) -> Iterator[str]:
    """Yield in which records of a world the samples are sorted, copied or cut off, or last longer than the case."""
    timed = [(record, record.timing) for record in world if record.timing is not None]
    step_us = resolution_us([timing for _, timing in timed])
    for record, timing in timed:
        yield from (f"{record.id}: {sentence}" for sentence in traces(timing, step_us))
        spent_s = sum(timing.per_iteration_us) * timing.calls_per_sample / 1e6
        if spent_s > record.duration_s * 1.01 + _CLOCKS_APART_S:
            yield f"{record.id}: the samples took {spent_s:.3g} s, the case {record.duration_s:.3g} s"


def resolution_us(timings: Sequence[Timing]) -> float:
    """Return the smallest difference of two samples' whole times, all calls of a sample together, in microseconds; 0 if
    there is none."""
    found = []
    for timing in timings:
        whole = np.unique(np.concatenate([np.asarray(row) for row in timing.samples_us])) * timing.calls_per_sample
        apart = np.diff(whole)
        apart = apart[apart > _ROUNDING * whole[-1]]
        found += [float(apart.min())] if len(apart) else []
    return min(found, default=0.0)


_ROUNDING = 2e-7
"""Relative size of what is a rounding of float32, in which CUDA gives times, and no difference."""


def traces(timing: Timing, step_us: float) -> Iterator[str]:
    """Yield what speaks against a timing's samples. step_us: the clock's resolution, see resolution_us."""
    if step_us <= 0:
        return
    rows = [np.rint(np.asarray(row) * timing.calls_per_sample / step_us).astype(np.int64) for row in timing.samples_us]
    if longest := _sorted_run(rows):
        yield f"{longest} samples in a row are sorted"
    values = np.sort(np.concatenate(rows))
    if len(values) < LEAST_SAMPLES or _is_coarse(values):
        return
    equal, near = _pairs(values)
    if equal > MORE_OFTEN * near + MORE_PAIRS:
        yield f"{equal} pairs of equal samples, where {near:.1f} pairs are one step of the clock apart"
    elif length := _block(rows, near):
        yield f"{length} samples in a row are there twice"
    for side, ordered in (("largest", values), ("smallest", -values[::-1])):
        if at_edge := _cut_off(ordered):
            yield f"{at_edge} of {len(values)} samples are the {side}: they are cut off there"


def _sorted_run(rows: Sequence[Steps]) -> int:
    """Return the length of the longest run in one direction with uneven steps, of one rank or, if the samples of all
    ranks are sorted, of all together; 0 if none is long enough."""
    longest = 0
    for sign in (1, -1):
        signed = [sign * np.diff(row) for row in rows]
        runs = [run for steps in signed for run in _rising(steps)]
        if all(len(steps) and steps.min() >= 0 for steps in signed):
            runs.append(np.concatenate(signed))
        longest = max([longest, *(len(run) + 1 for run in runs if _is_sorted_noise(run))])
    return longest


def _rising(steps: Steps) -> Iterator[Steps]:
    """Yield the steps of each run without a fall."""
    ends = np.flatnonzero(np.concatenate([[True], steps < 0, [True]]))
    yield from (steps[start : end - 1] for start, end in pairwise(ends))


def _is_sorted_noise(run: Steps) -> bool:
    """Whether the steps of a run are uneven, each on its own: those of a drift are even, those of a warm-up resemble
    their neighbours, and stragglers make a few that are large."""
    if len(run) + 1 < LONGEST_RUN:
        return False
    most = np.sort(run)[:-2]
    if most.mean() < 2 or most.std() < UNEVEN * most.mean():
        return False
    return float(np.corrcoef(run[1:], run[:-1])[0, 1]) < NEIGHBOURS


def _is_coarse(values: Steps) -> bool:
    """Whether sorted values repeat because the clock has few steps where they lie: in a few groups without gaps."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) >= len(values) / 4:
        return False
    group = np.concatenate([[0], np.cumsum(np.diff(distinct) > 2)])
    sizes = np.sort(np.bincount(group, counts))[::-1]
    return bool(sizes[:3].sum() >= 0.8 * len(values))


def _pairs(values: Steps) -> tuple[int, float]:
    """Return the number of pairs of equal values, and that to be expected from those up to NEAR steps apart."""
    upper = [int(np.searchsorted(values, values + far, side="right").sum()) for far in (0, NEAR)]
    places = np.arange(1, len(values) + 1).sum()
    equal, within = upper[0] - places, upper[1] - places
    return int(equal), (within - equal) / (2 * NEAR)


def _block(rows: Sequence[Steps], near: float) -> int:
    """Return the length of the longest block of samples that is there twice, in one rank or in two; 0 if chance may
    give it. near: the pairs of equal values to be expected."""
    count = sum(map(len, rows))
    pairs = count * (count - 1) / 2
    once = min(0.5, MORE_OFTEN * (near + 1) / pairs)
    least = max(4, math.ceil(math.log(CHANCE / pairs) / math.log(once)))
    seen: set[bytes] = set()
    for row in rows:
        mine = [row[at : at + least].tobytes() for at in range(len(row) - least + 1)]
        for at, block in enumerate(mine):
            if block in seen or block in mine[: max(0, at - least + 1)]:
                return least
        seen.update(mine)
    return 0


def _cut_off(values: Steps) -> int:
    """Return how many of sorted values are the last one, if that is a cut-off; else 0."""
    at_edge = int((values == values[-1]).sum())
    before = int((values >= values[-1] - EDGE).sum()) - at_edge
    return at_edge if at_edge >= AT_THE_EDGE and at_edge > MORE_OFTEN * before / EDGE + AT_THE_EDGE / 2 else 0
