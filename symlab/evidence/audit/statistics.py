"""Did the times change? Verdicts on worlds' medians, against a declared band of changes that do not matter.

**The world is the replicate, not the iteration** (Hunold and Carpen-Amarie, arXiv 1505.07734): iterations of one world
share its placement, clocks and links, so that many of them say little about the next world, and a test on pooled
iterations finds changes where there are none. So each world counts once, with its median over iterations of the maximum
over ranks (Timing.median_us). All arithmetic is on logarithms, for a change is a ratio.

For each case: the Hodges-Lehmann ratio after/before (the median of all ratios of a world after to a world before), a
bootstrap interval of it, and the p-value of the exact two-sided Mann-Whitney test, corrected by Holm's procedure over
all cases that are judged together. From these, see Speed, one word.

**A verdict needs sides that alternate in time** (in pairs, see order.py): the test takes worlds for
exchangeable, and worlds that lie apart in time are not. Blocks of 10 worlds with a lag-1 correlation of 0.5 and no
change give about 19 % false verdicts, and with linear drift of 4 % nearly always one. Of sides that alternate,
neighbours' resemblance and drift widen each side's spread and hardly move one against the other, so the test then errs
on the side of no change. Sides that do not alternate are at most INSIDE or OUTSIDE the band.

The interval is the bootstrap's percentile interval, expanded: a plain one is too narrow for few worlds. Its tail
probability is not alpha/2 but Phi(-sqrt(n / (n - 1)) t), t being Student's quantile (Tim Hesterberg, What Teachers
Should Know about the Bootstrap, arXiv 1411.5279, gives it for one sample); n is the smaller number of worlds, and t
has the degrees of freedom of both sides together. Simulated with normal worlds it then covers the truth in 95 to 97 of
100 cases for 4 to 10 worlds a side.

What ten worlds a side can find: with worlds that spread by sigma (the standard deviation of a world's log median), a
change of 3 % is found in all but a few of 100 cases up to sigma = 1.5 %. At 2 % no two-sided test at 5 % can do so 95
times in 100: even one that knew sigma would find it 92 times (Phi(0.03 / 0.02 * sqrt(10 / 2) - 1.96) = 0.918), and this
one, which has to estimate, about 82 times. The others end INCONCLUSIVE, with how many worlds would do.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from cases.gathered import gathered
from cases.record.record import Record
from symlab.evidence.audit.order import AFTER, APART, BEFORE, alternates, in_pairs, order_of

BAND = 0.02
"""Default band: changes within 2 % do not matter."""

LEAST_WORLDS = 4
"""Below that on either side no two-sided test can reach 5 %, and no verdict is given (3 and 3: 0.1; 4 and 4: 0.029)."""

CONFIDENCE, SIGNIFICANCE = 0.95, 0.05

RESAMPLES = 999


class Speed(StrEnum):
    """What is said about a case's times after, compared with those before.

    The band is the ratios from 1 / (1 + band) to 1 + band.
    """

    SAME = "SAME"
    """The interval lies wholly within the band."""
    FASTER = "FASTER"
    """The corrected p-value is below 5 %, and the interval lies wholly below 1 and not wholly within the band."""
    SLOWER = "SLOWER"
    """The same above 1."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """None of these: too few worlds for how far they lie apart."""
    INSIDE = "INSIDE"
    """Fewer than LEAST_WORLDS on a side, or sides apart in time, so no verdict: the ratio of the medians is within the
    band."""
    OUTSIDE = "OUTSIDE"
    """The same, and it is outside. Or too few worlds for the test of this number of cases, and the whole interval lies
    beyond the band."""
    NOT_COMPARABLE = "NOT COMPARABLE"
    """The times do not measure the same thing, or there are none: the reason is beside it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said about one case's times. worlds are those before and after.

    ratio is after over before, above 1 is slower; low and high are its 95 % interval; p is the test's p-value, and
    corrected that of Holm's procedure; None where there is no such figure. advice says what would help, or the reason
    why nothing can be compared; "" if there is nothing to say.
    """

    speed: Speed
    worlds: tuple[int, int]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    corrected: float | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Sides:
    """Times of one case in microseconds, one a world, each side in the order in which its worlds ran. order has both
    sides' worlds, see order.py."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    order: str

    def __post_init__(self) -> None:
        assert (self.order.count(BEFORE), self.order.count(AFTER)) == self.worlds

    @property
    def worlds(self) -> tuple[int, int]:
        return len(self.before), len(self.after)


def parse_band(text: str) -> float:
    """A band as a share: "2%" and "0.02" are 0.02. Raises ValueError for anything else."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else math.nan
    if found and not found[2] and value >= 1:
        raise ValueError(f"band '{text}': give {found[1]}% for percent, or a share below 1 such as 0.02")
    return checked_band(value, text)


def checked_band(band: float, text: str = "") -> float:
    """Return the band. Raises ValueError unless it lies between 0 and 1. text: how the user wrote it."""
    if not 0 < band < 1:
        raise ValueError(f"band '{text or band}': give more than 0 and less than 100 %, such as 2%")
    return band


def not_comparable(reason: str, worlds: tuple[int, int] = (0, 0)) -> Judgement:
    """No verdict, and why."""
    return Judgement(Speed.NOT_COMPARABLE, worlds, advice=reason)


def world_of(record: Record) -> str:
    """The world that a record came from, as far as it says: a command is one world, and each resumption another, for
    it is another process, perhaps of other code. A record that does not name its command stands for itself."""
    request = record.request
    if not request.command:
        return f"{record.id} {record.started}"
    return f"{request.command}, resumption {request.resumed}" if request.resumed else request.command


def world_medians(records: Iterable[Record]) -> dict[str, float]:
    """Each world's time of one case in microseconds a call, in the order in which the worlds began. Records without a
    timing are left out; of several that a world has the median counts."""
    records = list(records)
    found = gathered((world_of(record), record.timing.median_us) for record in records if record.timing is not None)
    return {world: statistics.median(found[world]) for world in world_starts(records)}


def world_starts(records: Iterable[Record]) -> dict[str, datetime]:
    """When each world began, in that order: the earliest start of its records that have a timing."""
    found: dict[str, datetime] = {}
    for record in records:
        if record.timing is not None:
            began, world = datetime.fromisoformat(record.started), world_of(record)
            found[world] = min(found.get(world, began), began)
    return dict(sorted(found.items(), key=lambda one: one[1]))


def sides_of(before: Sequence[Record], after: Sequence[Record]) -> Sides:
    """The times of one case's records of both sides, and the order of their worlds."""
    times = [tuple(world_medians(side).values()) for side in (before, after)]
    return Sides(times[0], times[1], order_of(world_starts(before), world_starts(after)))


def judge(cases: Sequence[Sides], band: float = BAND) -> list[Judgement]:
    """A judgement for each case, in their order; all that are tested are one family for Holm's procedure. Raises
    ValueError for an invalid band; the times must be positive and finite."""
    checked_band(band)
    judged: list[Judgement | None] = [None] * len(cases)
    testable: list[int] = []
    for index, case in enumerate(cases):
        if not case.before or not case.after:
            side = "before" if not case.before else "after"
            judged[index] = not_comparable(f"no times {side}", case.worlds)
        elif min(case.worlds) < LEAST_WORLDS:
            judged[index] = without_test(case, band, f"no verdict below {LEAST_WORLDS} worlds a side")
        elif not alternates(case.order):
            judged[index] = without_test(case, band, APART)
        else:
            testable.append(index)
    pairs = [(cases[index].before, cases[index].after) for index in testable]
    tests = _tested(pairs)
    holm = corrected([test.p for test in tests])
    for index, pair, test, p in zip(testable, pairs, tests, holm, strict=True):
        found = _verdict(test, p, pair, band, len(testable))
        if found.speed in (Speed.FASTER, Speed.SLOWER) and not _pairs_agree(cases[index]):
            found = replace(found, speed=Speed.INCONCLUSIVE, advice="too few pairs of worlds differ in this direction")
        judged[index] = found
    return [one for one in judged if one is not None]


PAIRS_AGREE = 1 / 16
"""Maximum p-value of the signed-rank test over pairs for FASTER and SLOWER. All of five pairs have to agree; four say
too little, whatever they say."""


def _pairs_agree(case: Sides) -> bool:
    """Whether the pairs of worlds, in which the order is drawn, differ in one direction: by the signed-rank test, which
    holds whatever disturbs the machine. True where worlds did not run in pairs."""
    if not in_pairs(case.order):
        return True
    from scipy import stats

    logs = [math.log(after / before) for before, after in zip(case.before, case.after, strict=True)]
    return bool(stats.wilcoxon(logs, method="exact").pvalue <= PAIRS_AGREE)


def corrected(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down procedure: each p-value times the number of hypotheses that are not yet rejected, in their order
    of size, never below an earlier one. Below alpha, the chance of any false rejection is below alpha."""
    found = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        found[index] = highest
    return found


@dataclass(frozen=True, slots=True)
class _Test:
    """The raw figures of one pair; low and high are logarithms, as is shift."""

    shift: float
    low: float
    high: float
    p: float


def _tested(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[_Test]:
    """Estimate, interval and p-value of each pair; pairs with as many worlds are computed together."""
    if not pairs:
        return []
    import numpy as np

    shapes = [(len(before), len(after)) for before, after in pairs]
    order = sorted(range(len(pairs)), key=shapes.__getitem__)
    found: dict[int, _Test] = {}
    for _, group in groupby(order, key=shapes.__getitem__):
        members = list(group)
        before, after = (np.log([pairs[index][side] for index in members]) for side in (0, 1))
        low, high = _intervals(before, after)
        figures = zip(shifts(before, after), low, high, _p_values(before, after), strict=True)
        for index, values in zip(members, figures, strict=True):
            found[index] = _Test(*map(float, values))
    return [found[index] for index in range(len(pairs))]


def shifts(before: Any, after: Any, axis: int = -1) -> Any:
    """The Hodges-Lehmann estimate along the last axis of two arrays: the median of all differences after - before."""
    import numpy as np

    assert axis == -1
    differences = after[..., None, :] - before[..., :, None]
    flat = np.sort(differences.reshape(*differences.shape[:-2], -1), axis=-1)  # sorting is quicker than np.median
    count = flat.shape[-1]
    return (flat[..., (count - 1) // 2] + flat[..., count // 2]) / 2


def _intervals(before: Any, after: Any) -> tuple[Any, Any]:
    """The lower and the upper end of the expanded percentile interval of each row's shift."""
    import numpy as np
    from scipy import stats

    worlds = before.shape[-1], after.shape[-1]
    student = stats.t.ppf((1 + CONFIDENCE) / 2, sum(worlds) - 2)
    tail = stats.norm.cdf(-math.sqrt(min(worlds) / (min(worlds) - 1)) * student)
    found = stats.bootstrap(
        (before, after),
        shifts,
        axis=-1,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, 65_536 // (before.size * worlds[1])),  # what fits a cache is quicker
        confidence_level=1 - 2 * float(tail),
        method="percentile",
        rng=np.random.default_rng(0),  # the same records give the same verdict
    ).confidence_interval
    return found.low, found.high


def _p_values(before: Any, after: Any) -> Any:
    """Of the exact two-sided Mann-Whitney test; with ties it errs on the side of no change."""
    from scipy import stats

    return stats.mannwhitneyu(before, after, method="exact", axis=-1).pvalue


def without_test(case: Sides, band: float, why: str) -> Judgement:
    """Return INSIDE or OUTSIDE the band, with the reason why there is no verdict."""
    ratio = statistics.median(case.after) / statistics.median(case.before)
    inside = 1 / (1 + band) <= ratio <= 1 + band
    return Judgement(Speed.INSIDE if inside else Speed.OUTSIDE, case.worlds, ratio, advice=why)


def _verdict(
    test: _Test, p: float, pair: tuple[Sequence[float], Sequence[float]], band: float, comparisons: int
) -> Judgement:
    edge = math.log1p(band)
    worlds = len(pair[0]), len(pair[1])
    found = Judgement(
        Speed.INCONCLUSIVE, worlds, math.exp(test.shift), math.exp(test.low), math.exp(test.high), test.p, p
    )
    if -edge <= test.low and test.high <= edge:
        return replace(found, speed=Speed.SAME)
    if p < SIGNIFICANCE and (test.low > 0 or test.high < 0):
        return replace(found, speed=Speed.SLOWER if test.low > 0 else Speed.FASTER)
    advice = "more worlds would tell"
    if not _is_testable(worlds, comparisons) and (test.low > edge or test.high < -edge):
        return replace(found, speed=Speed.OUTSIDE, advice=f"too few worlds for a verdict on this many cases; {advice}")
    return replace(found, advice=advice)


def _is_testable(worlds: tuple[int, int], comparisons: int) -> bool:
    """Whether the exact test can reach the level at all: with all times of one side below all of the other."""
    return 2 * comparisons / math.comb(sum(worlds), worlds[0]) < SIGNIFICANCE
