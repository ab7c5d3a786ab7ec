"""Change points: how often they are named without a change, how often with one, and whether their intervals hold it."""

import tracemalloc

import numpy as np
import pytest

from symlab.evidence.history.changes import ALPHA, CORRELATIONS, LEAST_WORLDS, _intervals, changes, family


def correlated(lag1, spread):
    """AR(1) noise with this lag-1 correlation, and spread as standard deviation."""

    def make(draw, count):
        noise, innovations = np.zeros(count), draw.normal(0, np.sqrt(1 - lag1**2), count)
        noise[0] = draw.normal()
        for at in range(1, count):
            noise[at] = lag1 * noise[at - 1] + innovations[at]
        return spread * noise

    return make


def independent(spread):
    return lambda draw, count: draw.normal(0, spread, count)


def drifting(total):
    return lambda draw, count: draw.normal(0, 0.005, count) + np.linspace(0, total, count)


def with_outliers(draw, count):
    """Each world is 10 % slower with a probability of 7 %."""
    return draw.normal(0, 0.01, count) + 0.1 * (draw.random(count) < 0.07)


def of_two_modes(draw, count):
    return draw.normal(0, 0.002, count) + 0.05 * (draw.random(count) < 0.5)


def drifting_and_noisy(draw, count):
    """Slow drift with a lag-1 correlation of 0.95 below independent noise: no AR(1) process."""
    return correlated(0.95, 0.02)(draw, count) + draw.normal(0, 0.005, count)


UNCHANGED = {
    "independent, 0.5 %": independent(0.005),
    "independent, 2 %": independent(0.02),
    "lag-1 correlation 0.5": correlated(0.5, 0.02),
    "lag-1 correlation 0.9": correlated(0.9, 0.02),
    "linear drift of 4 %": drifting(0.04),
    "linear drift of 20 %": drifting(0.2),
    "outliers": with_outliers,
    "two modes": of_two_modes,
    "slow drift below noise": drifting_and_noisy,
}


def alarms(make, count, trials, seed=1):
    """The share of series without a change in which one is named."""
    draw = np.random.default_rng(seed)
    return float(np.mean([bool(changes(np.exp(make(draw, count)))) for _ in range(trials)]))


@pytest.mark.parametrize("kind", ["independent, 0.5 %", "lag-1 correlation 0.9", "linear drift of 4 %", "outliers"])
def test_without_a_change_few_series_name_one(kind):
    assert alarms(UNCHANGED[kind], 20, 150) < ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 12, 20, 40])
@pytest.mark.parametrize("kind", UNCHANGED)
def test_without_a_change_few_series_of_any_kind_name_one(kind, count):
    assert alarms(UNCHANGED[kind], count, 500) < ALPHA


def found_steps(step, spread, count, trials, make=None):
    """The shares of series with a step in the middle of which the step is found; and of the changes that were found,
    of those whose intervals of place and of ratio hold it."""
    draw = np.random.default_rng(4)
    make = make or independent(spread)
    found = places = ratios = 0
    for _ in range(trials):
        logs = make(draw, count)
        logs[count // 2 :] += np.log(step)
        named = changes(np.exp(logs))
        found += len(named) == 1
        places += len(named) == 1 and named[0].first <= count // 2 <= named[0].last
        ratios += len(named) == 1 and named[0].low <= step <= named[0].high
    return found / trials, places / max(found, 1), ratios / max(found, 1)


@pytest.mark.parametrize(("step", "spread", "count"), [(1.1, 0.01, 20), (1.05, 0.005, 20), (0.9, 0.01, 40)])
def test_a_large_change_is_found_and_its_intervals_hold_it(step, spread, count):
    found, places, ratios = found_steps(step, spread, count, 100)
    assert found >= 0.9
    assert places >= 0.95
    assert ratios >= 0.95


def test_a_change_that_is_taken_back_is_two():
    draw = np.random.default_rng(5)
    counts = []
    for _ in range(40):
        logs = draw.normal(0, 0.005, 36)
        logs[12:24] += np.log(1.1)
        named = changes(np.exp(logs))
        counts.append([one.at for one in named])
    assert sum(places == [12, 24] for places in counts) >= 36


def levels(draw, parts, *, is_stair=False):
    """Parts of these numbers of worlds, each 30 % above the one before, or alternately up and down."""
    logs = [np.full(count, np.log(1.3) * (at if is_stair else at % 2)) for at, count in enumerate(parts)]
    return np.exp(np.concatenate(logs) + draw.normal(0, 0.003, sum(parts)))


def found_all(parts, *, is_stair=False):
    """The share of series of which exactly the true changes are named, each at its place."""
    draw = np.random.default_rng(9)
    named = [changes(levels(draw, parts, is_stair=is_stair)) for _ in range(20)]
    return float(np.mean([[one.at for one in each] == list(np.cumsum(parts)[:-1]) for each in named]))


@pytest.mark.parametrize(
    "parts",
    [(8, 8, 8), (6, 6, 6), (4, 4, 4), (20, 5, 15), (20, 4, 20), (30, 10, 10), (40, 5, 5), (6, 6, 6, 6), (8,) * 6],
)
def test_left_and_right_of_a_change_are_searched_again(parts):
    assert found_all(parts) >= 0.95


@pytest.mark.parametrize("parts", [(4, 4, 40), (20, 4, 20), (8, 8, 8, 8)])
def test_of_stairs_the_middle_of_a_stair_is_no_change(parts):
    assert found_all(parts, is_stair=True) >= 0.95


def test_what_no_step_stands_out_of_is_not_found():
    """Said in the README: fewer than 4 worlds, even stairs, and a time that goes up and down all the time."""
    assert found_all((20, 3, 20)) == 0
    assert found_all((8,) * 6, is_stair=True) == 0
    assert found_all((8,) * 10) == 0


def named_beside(make, count, at, step, trials):
    """The shares of series with one change in which something is named, and in which more than one change is."""
    draw = np.random.default_rng(11)
    named = []
    for _ in range(trials):
        logs = make(draw, count)
        logs[at:] += np.log(step)
        named.append(len(changes(np.exp(logs))))
    return float(np.mean(np.array(named) > 0)), float(np.mean(np.array(named) > 1))


@pytest.mark.parametrize("kind", ["independent, 0.5 %", "lag-1 correlation 0.9", "linear drift of 4 %", "two modes"])
def test_beside_a_change_few_series_name_another(kind):
    found, more = named_beside(UNCHANGED[kind], 24, 8, 1.3, 60)
    assert found > 0.9
    assert more < ALPHA


def test_the_family_has_a_test_for_each_part_beside_a_change():
    """Intervals without the change and the two parts beside it: no more tests than the series is charged for."""
    for count in range(LEAST_WORLDS, 100):
        for at in range(4, count - 3):
            spans = {(start, end) for start, end in _intervals(count) if not start < at < end} | {(0, at), (at, count)}
            assert sum(max(0, end - start - LEAST_WORLDS + 1) for start, end in spans) <= family(count)


@pytest.mark.slow
def test_a_long_series_takes_little_memory():
    """Matrices of worlds by worlds would take 500 MB here."""
    draw = np.random.default_rng(12)
    changes(np.exp(draw.normal(0, 0.01, 20)))  # imports, of which the first test of a process has the memory
    tracemalloc.start()
    for count in (1000, 1001):
        changes(np.exp(draw.normal(0, 0.01, count)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_a_change_on_top_of_drift_is_the_step_alone():
    logs = np.random.default_rng(6).normal(0, 0.003, 30) + np.linspace(0, 0.1, 30)
    logs[15:] += np.log(1.2)
    (one,) = changes(np.exp(logs))
    assert one.first <= 15 <= one.last
    assert one.ratio == pytest.approx(1.2, abs=0.01)


def test_what_is_within_the_band_is_not_named():
    logs = np.random.default_rng(7).normal(0, 0.0005, 30)
    logs[15:] += np.log(1.015)
    assert len(changes(np.exp(logs))) == 1
    assert changes(np.exp(logs), band=0.02) == []
    assert len(changes(np.exp(logs), band=0.01)) == 1


@pytest.mark.parametrize("count", [0, 1, 4, LEAST_WORLDS - 1])
def test_few_worlds_have_no_test(count):
    assert family(count) == 0
    assert changes([10.0] * (count // 2) + [20.0] * (count - count // 2)) == []


def test_equal_readings_and_ticks_of_a_clock():
    """Noise counts as at least 0.1 %: one tick of 0.1 % is no change, a clean step of 50 % is."""
    assert changes([10.0] * 20) == []
    assert changes([10.0] * 10 + [10.01] * 10) == []
    (one,) = changes([10.0] * 10 + [15.0] * 10)
    assert (one.at, one.first, one.last) == (10, 10, 10)
    assert one.ratio == pytest.approx(1.5)


def test_more_series_make_the_test_stricter():
    logs = np.random.default_rng(8).normal(0, 0.01, 20)
    logs[10:] += np.log(1.08)
    assert changes(np.exp(logs))
    assert changes(np.exp(logs), 10**9) == []


def fitted(logs, correlation, at):
    """The step at a place and its standard error by generalised least squares, written out with matrices: level, drift
    and step are fitted under noise of this lag-1 correlation, so that the residuals have n - 3 degrees of freedom."""
    count = len(logs)
    whiten = np.eye(count) - correlation * np.eye(count, k=-1)
    whiten[0, 0] = np.sqrt(1 - correlation**2)
    model = whiten @ np.stack([np.ones(count), np.arange(count), np.arange(count) >= at], axis=1)
    if correlation == 1:  # differences have no level, and one datum less
        model, whiten = model[1:, 1:], whiten[1:]
    estimate, (squares,), *_ = np.linalg.lstsq(model, whiten @ logs, rcond=None)
    covariance = np.linalg.inv(model.T @ model) * squares / (count - 3)
    return float(estimate[-1]), float(np.sqrt(covariance[-1, -1]))


@pytest.mark.parametrize("count", [LEAST_WORLDS, LEAST_WORLDS + 1, 14])
def test_the_interval_of_a_ratio_is_that_of_students_t_by_least_squares(count):
    from scipy import stats

    logs = np.random.default_rng(13).normal(0, 0.01, count)
    logs[4:] += np.log(2.5)
    (one,) = changes(np.exp(logs), tests=1)
    reach = stats.t.ppf(0.975, count - 3)
    fits = [fitted(logs, correlation, one.at) for correlation in CORRELATIONS]
    assert one.low == pytest.approx(np.exp(min(step - reach * error for step, error in fits)), rel=1e-9)
    assert one.high == pytest.approx(np.exp(max(step + reach * error for step, error in fits)), rel=1e-9)
    assert one.p == pytest.approx(2 * stats.t.sf(min(abs(step) / error for step, error in fits), count - 3), rel=1e-6)
