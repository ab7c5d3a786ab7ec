"""Verdicts on times: what they say of worlds whose truth is known, how often they are wrong, what they can find."""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from scipy import stats

from symlab.evidence.audit import statistics
from symlab.evidence.audit.order import pairs as drawn_pairs
from symlab.evidence.audit.statistics import Judgement, Sides, Speed, corrected, parse_band, world_medians
from tests.reports.synthetic import record

TRIALS = 400
SEED = 20261121

Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]


def judge(pairs, band=statistics.BAND):
    """The judgement of pairs whose worlds alternate; those that one side has more than the other come in between."""
    return statistics.judge(
        [Sides(tuple(one), tuple(other), mixed(len(one), len(other))) for one, other in pairs], band
    )


def mixed(before, after):
    """An order of so many worlds: A B B A as far as they go, else evenly spread."""
    if before == after:
        return ("ABBA" * before)[: 2 * before]
    places = sorted(
        [((at + 0.5) / before, "A") for at in range(before)] + [((at + 0.5) / after, "B") for at in range(after)]
    )
    return "".join(side for _, side in places)


@cache
def simulated(spread, change=0.0, worlds=10, families=TRIALS, together=1):
    """So many families of judgements of worlds whose log medians are normal: judge(), but for that all families'
    figures are computed at once."""
    source = np.random.default_rng(SEED)
    before = np.exp(source.normal(0, spread, (families * together, worlds)))
    after = np.exp(source.normal(math.log1p(change), spread, (families * together, worlds)))
    pairs = [(tuple(one), tuple(other)) for one, other in zip(before, after, strict=True)]
    tests = statistics._tested(pairs)
    found = []
    for start in range(0, len(pairs), together):
        here = slice(start, start + together)
        holm = corrected([test.p for test in tests[here]])
        judged = zip(tests[here], holm, pairs[here], strict=True)
        found.append([statistics._verdict(test, p, pair, statistics.BAND, together) for test, p, pair in judged])
    return found


def test_the_simulation_is_what_judge_does():
    family = simulated(0.02, families=2, together=3, worlds=5)[1]
    source = np.random.default_rng(SEED)
    before = np.exp(source.normal(0, 0.02, (6, 5)))
    after = np.exp(source.normal(0, 0.02, (6, 5)))
    again = judge([(tuple(before[one]), tuple(after[one])) for one in (3, 4, 5)])
    assert [one.speed for one in again] == [one.speed for one in family]
    assert [one.corrected for one in again] == [one.corrected for one in family]


def shares(families):
    """How often each verdict was given, in all families, as a share."""
    found = Counter(one.speed for family in families for one in family)
    return Counter({speed: count / found.total() for speed, count in found.items()})


def is_change(one):
    return one.speed in (Speed.FASTER, Speed.SLOWER)


@pytest.mark.parametrize("worlds", [4, 10])
@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_without_a_change_false_verdicts_stay_below_5_percent(spread, worlds):
    found = shares(simulated(spread, worlds=worlds))
    assert found[Speed.FASTER] + found[Speed.SLOWER] < 0.05
    if worlds == 10 and spread == 0.005:
        assert found[Speed.SAME] > 0.95


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.02])
def test_without_a_change_false_verdicts_of_a_sweep_stay_below_5_percent(spread):
    families = simulated(spread, families=100, together=10, worlds=8)
    assert sum(any(map(is_change, family)) for family in families) / len(families) < 0.05


def test_without_holm_a_sweep_would_often_be_wrong():
    families = simulated(0.02, families=100, together=10, worlds=8)
    assert sum(any(one.p is not None and one.p < 0.05 for one in family) for family in families) / 100 > 0.25


@pytest.mark.parametrize("spread", [0.005, 0.01, 0.015])
def test_ten_worlds_find_a_change_of_3_percent(spread):
    found = shares(simulated(spread, change=0.03, families=1000 if spread == 0.015 else TRIALS))
    assert found[Speed.SLOWER] >= 0.95
    assert found[Speed.FASTER] == 0


def test_a_change_as_large_as_the_band_is_rarely_called_the_same():
    assert shares(simulated(0.005, change=0.02))[Speed.SAME] < 0.05
    assert shares(simulated(0.01, change=0.03))[Speed.SAME] < 0.01


@pytest.mark.parametrize("worlds", [4, 6])
def test_the_interval_covers_the_truth(worlds):
    families = simulated(0.01, change=0.03, worlds=worlds)
    covered = sum(one.low <= 1.03 <= one.high for (one,) in families if one.low and one.high) / TRIALS
    assert 0.94 < covered < 0.98


def test_a_world_counts_once_with_its_median():
    twice = [record(world=1, samples_us=[[time, 1.0]] * 4) for time in (3.0, 5.0)]
    other = record(world=2, samples_us=[[8.0, 8.0]] * 4)
    assert world_medians([*twice, other, record(world=3, is_timed=False)]) == {"command1": 2.5, "command2": 8.0}


def test_figures_are_those_that_scipy_and_arithmetic_give():
    before, after = (10.0, 10.2, 10.1, 10.3, 10.2), (11.0, 11.4, 11.1, 11.2, 11.3)
    (one,) = judge([(before, after)])
    assert one.ratio == pytest.approx(float(np.median([b / a for a in before for b in after])), rel=1e-3)
    assert one.p == pytest.approx(2 / math.comb(10, 5))
    assert one.p == one.corrected
    assert 1.05 < one.low < one.ratio < one.high < 1.15
    assert (one.speed, one.worlds, one.advice) == (Speed.SLOWER, (5, 5), "")
    (mirrored,) = judge([(after, before)])
    assert mirrored.speed is Speed.FASTER
    assert mirrored.ratio == pytest.approx(1 / one.ratio)
    assert judge([(before, after)]) == [one]


def test_a_clear_change_within_the_band_is_the_same():
    (one,) = judge([((10.0, 10.01, 10.02, 10.03), (10.1, 10.11, 10.12, 10.13))])
    assert one.p < 0.05
    assert one.speed is Speed.SAME
    (strict,) = judge([((10.0, 10.01, 10.02, 10.03, 10.0), (10.1, 10.11, 10.12, 10.13, 10.1))], band=0.005)
    assert strict.speed is Speed.SLOWER


@pytest.mark.parametrize(
    ("after", "band", "speed"),
    [
        ((10.1, 10.3, 10.2), 0.02, Speed.INSIDE),
        ((10.1, 10.3, 10.21), 0.02, Speed.OUTSIDE),
        ((9.8, 9.81, 9.85), 0.02, Speed.INSIDE),
        ((9.7, 9.8, 9.85), 0.02, Speed.OUTSIDE),
        ((9.7, 9.8, 9.85), 0.05, Speed.INSIDE),
    ],
)
def test_below_four_worlds_there_is_no_verdict(after, band, speed):
    (one,) = judge([((9.9, 10.0, 10.1, 10.1, 9.9), after)], band)
    assert (one.speed, one.p, one.low) == (speed, None, None)
    assert one.advice == "no verdict below 4 worlds a side"


def test_no_times_are_not_comparable():
    assert judge([((), (1.0,))]) == [Judgement(Speed.NOT_COMPARABLE, (0, 1), advice="no times before")]
    assert judge([((1.0, 2.0), ())]) == [Judgement(Speed.NOT_COMPARABLE, (2, 0), advice="no times after")]
    assert judge([]) == []


def test_holm_is_as_in_the_book():
    assert corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert corrected([0.6, 0.9]) == [1.0, 1.0]
    assert corrected([]) == []


def test_worlds_of_different_numbers_are_judged_in_their_order():
    few, many = (10.0, 10.1, 9.9, 10.05), tuple(10 + 0.01 * step for step in range(8))
    slow = tuple(1.2 * time for time in many)
    found = judge([(few, slow), (few, (10.0,)), (many, many), (many, slow)])
    assert [one.worlds for one in found] == [(4, 8), (4, 1), (8, 8), (8, 8)]
    assert [one.speed for one in found] == [Speed.SLOWER, Speed.INSIDE, Speed.SAME, Speed.SLOWER]
    assert found[2].p == 1


def test_four_worlds_cannot_judge_a_sweep_and_it_says_what_could():
    pairs = [((10.0, 10.1, 10.2, 9.9), (11.0, 11.1, 10.9, 11.2))] * 10
    found = judge(pairs)
    # The interval alone lies far beyond the band: not a verdict, but nothing to pass over.
    assert {one.speed for one in found} == {Speed.OUTSIDE}
    assert [one.corrected for one in found] == pytest.approx([20 / math.comb(8, 4)] * 10)
    (advice,) = {one.advice for one in found}
    assert advice.startswith("too few worlds for a verdict on this many cases; more worlds would tell")
    near = [((10.0, 10.1, 10.2, 9.9), (10.3, 10.4, 10.2, 10.25))] * 10
    assert {one.speed for one in judge(near)} == {Speed.INCONCLUSIVE}
    six = [((10.0, 10.1, 10.2, 9.9, 10.0, 10.1), (11.0, 11.1, 10.9, 11.2, 11.0, 11.1))] * 10
    assert {one.speed for one in judge(six)} == {Speed.SLOWER}


@pytest.mark.parametrize(("text", "band"), [("2%", 0.02), ("0.02", 0.02), (" 1.5 % ", 0.015), (".5", 0.5)])
def test_a_band_is_read(text, band):
    assert parse_band(text) == pytest.approx(band)


@pytest.mark.parametrize("text", ["2", "0", "0%", "100%", "-2%", "two", "", "nan"])
def test_what_is_no_band_is_refused(text):
    with pytest.raises(ValueError, match="band '"):
        parse_band(text)


def test_judging_refuses_what_is_no_band():
    with pytest.raises(ValueError, match="band '2'"):
        judge([], band=2)


RULED_OUT = 0.05
"""A share of false verdicts that the simulations below must rule out, at a level of 5 % by the exact binomial test."""


def is_below(count, trials):
    """Whether so many false verdicts rule out that 5 % or more are false."""
    return bool(stats.binom.cdf(count, trials, RULED_OUT) < 0.05)


def neighbours(source, families, worlds, correlation):
    """Log times of series of worlds that spread by 2 %, each correlated with the next (AR(1))."""
    found = source.normal(0, 0.02, (families, 1, worlds))
    for at in range(1, worlds):
        found[..., at] = correlation * found[..., at - 1] + math.sqrt(1 - correlation**2) * found[..., at]
    return found


def drifting(source, families, worlds, drift, spread):
    """Log times of series of worlds that become slower evenly, by drift in all, and spread."""
    return source.normal(0, spread, (families, 1, worlds)) + np.linspace(0, drift, worlds)


def stepping(source, families, worlds, step, spread):
    """Log times of series of worlds of which all from a random one on are slower by a step, and spread."""
    is_later = np.arange(worlds) >= source.integers(0, worlds, (families, 1, 1))
    return source.normal(0, spread, (families, 1, worlds)) + step * is_later


def sweep(source, shared):
    """Log times of ten sizes, with an effect of each launch that all of its sizes share, and 0.3 % of their own."""
    return shared + source.normal(0, 0.003, (shared.shape[0], 10, shared.shape[2]))


def false_verdicts(series, order, today=True):
    """Number of families with a verdict FASTER or SLOWER, of worlds without a change, in an order of A and B. today:
    by judge(); else by the rule before, which did not look at the order: judge() of the same times as if in turns."""
    sides = [np.exp(series[..., [at for at, one in enumerate(order) if one == side]]) for side in "AB"]
    said = order if today else mixed(sides[0].shape[2], sides[1].shape[2])
    found = 0
    for before, after in zip(*sides, strict=True):
        cases = [Sides(tuple(one), tuple(other), said) for one, other in zip(before, after, strict=True)]
        found += any(map(is_change, statistics.judge(cases)))
    return found


@pytest.fixture
def quick_bootstrap(monkeypatch):
    """Intervals of fewer resamples: a false verdict needs the p-value, too."""
    monkeypatch.setattr(statistics, "RESAMPLES", 99)


SERIES = {
    "AR(1) 0.6": lambda source, trials, worlds: neighbours(source, trials, worlds, 0.6),
    "AR(1) 0.9": lambda source, trials, worlds: neighbours(source, trials, worlds, 0.9),
    "linear 4 %, quiet": lambda source, trials, worlds: drifting(source, trials, worlds, 0.04, 0.002),
    "linear 4 %": lambda source, trials, worlds: drifting(source, trials, worlds, 0.04, 0.01),
    "linear 20 %": lambda source, trials, worlds: drifting(source, trials, worlds, 0.2, 0.01),
    "a step": lambda source, trials, worlds: stepping(source, trials, worlds, 0.04, 0.005),
}


@pytest.mark.parametrize("order", ["ABBA" * 5, "ABAB" * 2, "ABBA" * 5 + "B", "AABBABABBA"])
@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.usefixtures("quick_bootstrap")
def test_drift_gives_fewer_than_5_percent_false_verdicts(kind, order):
    series = SERIES[kind](np.random.default_rng(SEED), 200, len(order))
    assert is_below(false_verdicts(series, order), 200)


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.usefixtures("quick_bootstrap")
def test_blocks_apart_in_time_get_no_verdict_and_the_rule_before_was_wrong(kind):
    """The guard of the tests around it: the same series, cut into blocks, break the rule that ignored the order."""
    blocks = "A" * 10 + "B" * 10
    series = SERIES[kind](np.random.default_rng(SEED), 200, 20)
    assert false_verdicts(series, blocks) == 0
    assert not is_below(false_verdicts(series, blocks, today=False), 200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.usefixtures("quick_bootstrap")
def test_drift_gives_fewer_than_5_percent_false_sweeps(kind):
    """Ten sizes of each launch share its effect."""
    source = np.random.default_rng(SEED)
    series = sweep(source, SERIES[kind](source, 80, 20))
    assert is_below(false_verdicts(series, "ABBA" * 5), 80)
    blocks = "A" * 10 + "B" * 10
    assert false_verdicts(series, blocks) == 0
    assert not is_below(false_verdicts(series, blocks, today=False), 80)


@pytest.mark.usefixtures("quick_bootstrap")
def test_ten_worlds_in_turns_find_a_change_of_3_percent_in_spite_of_drift():
    """Of worlds that spread by 1 % and drift by 4 %, and of neighbours that resemble one another, spread by 1.5 %."""
    source = np.random.default_rng(SEED)
    order = "ABBA" * 5
    slower = math.log1p(0.03) * np.array([side == "B" for side in order])
    for series in (drifting(source, 100, 20, 0.04, 0.01), 0.75 * neighbours(source, 100, 20, 0.6)):
        assert false_verdicts(series + slower, order) >= 95


def verdicts_of_a_disturbance(pattern, worlds, trials):
    """The share of comparisons without a change that end FASTER or SLOWER: worlds in drawn pairs, of which those that
    the pattern names, wherever it begins, are 5 % slower; their own spread is 0.5 %."""
    draw = np.random.default_rng(20261127)
    found = 0
    for trial in range(trials):
        order = "".join(drawn_pairs(worlds, str(trial)))
        begins = int(draw.integers(len(pattern)))
        logs = [0.05 * pattern[(at + begins) % len(pattern)] + draw.normal(0, 0.005) for at in range(len(order))]
        sides = [tuple(math.exp(log) for log, one in zip(logs, order, strict=True) if one == side) for side in "AB"]
        (judged,) = statistics.judge([Sides(sides[0], sides[1], order)])
        found += judged.speed in (Speed.FASTER, Speed.SLOWER)
    return found / trials


@pytest.mark.parametrize("worlds", [5, 10])
@pytest.mark.parametrize("pattern", [(1, 0), (1, 0, 0, 0), (1, 1, 0, 0)])
def test_a_disturbance_that_comes_back_gives_few_false_verdicts(pattern, worlds):
    """In the fixed order A B B A the last pattern gives one in two."""
    assert verdicts_of_a_disturbance(pattern, worlds, 300) < 0.05
