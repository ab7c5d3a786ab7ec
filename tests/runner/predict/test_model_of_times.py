"""The model adds up what its docstring says, and a fit finds the constants that made the times."""

import math

import numpy as np
import pytest

from runner.predict.case_work import CaseWork, Direction
from runner.predict.fitting import fitted
from runner.predict.model import COLD_FROM, COLD_TO, Fitted, Rates, Terms, coldness, columns, terms_of, times_us

COSTS = {"own_load": 0.3, "remote_load": 0.9, "hop": 0.7, "fence": 0.6}
RATES = Rates(0.5, COSTS, push_gbps=400.0, pull_gbps=250.0, pull_both_gbps=200.0, l2_bytes=1000)
CONSTANTS = Fitted(begin_us=0.1, stretch=2.0, cold_us=0.8)


def test_terms_are_floors_times_counts_and_the_busiest_direction():
    work = CaseWork(
        {"hop": 2.0, "fence": 1.0},
        {"hop": 2.0, "fence": 1.0, "remote_load": 3.0},
        (Direction(4e5, 0.0, 0.0), Direction(0.0, 2.5e5, 4e5)),
    )
    terms = terms_of(work, RATES, footprint_bytes=100.0)
    assert terms.launch_us == 0.5
    assert terms.least_us == pytest.approx(2 * 0.7 + 0.6)
    assert terms.more_us == pytest.approx(3 * 0.9)
    # 400 KB pushed at 400 GB/s take 1 us; 250 KB answered take 1 us, and requests of 400 KB 1/200 - 1/250 ns a byte.
    assert terms.link_us == pytest.approx(1.0 + 4e5 * (1 / 200 - 1 / 250) / 1e3)
    assert terms.coldness == 0.0


def test_further_rounds_and_the_link_overlap_and_all_else_adds_up():
    waits = Terms(0.5, 2.0, 3.0, 1.0, 0.5)
    streams = Terms(0.5, 2.0, 3.0, 50.0, 0.5)
    assert waits.time_us(CONSTANTS) == pytest.approx(0.5 + 0.1 + 2 * 2.0 + 2 * 3.0 + 0.5 * 0.8)
    assert streams.time_us(CONSTANTS) == pytest.approx(0.5 + 0.1 + 2 * 2.0 + 50.0 + 0.5 * 0.8)


@pytest.mark.parametrize(("link_us", "regime"), [(0.0, "latency"), (5.0, "mixed"), (500.0, "bandwidth")])
def test_the_regime_is_the_links_share(link_us, regime):
    assert Terms(0.5, 2.0, 0.0, link_us, 0.0).regime(CONSTANTS) == regime


def test_coldness_grows_by_the_logarithm_between_two_footprints():
    assert coldness(0.0) == coldness(COLD_FROM) == 0.0
    assert coldness(COLD_TO) == coldness(50.0) == 1.0
    assert coldness(math.sqrt(COLD_FROM * COLD_TO)) == pytest.approx(0.5)


def test_a_step_without_a_cost_is_an_error():
    with pytest.raises(KeyError, match="sleep"):
        terms_of(CaseWork({"sleep": 1.0}, {}, ()), RATES, 0.0)


def test_work_is_the_same_after_its_document():
    work = CaseWork({"hop": 2.0}, {"hop": 3.5}, (Direction(1.0, 2.0, 3.0),), "rounds")
    assert CaseWork.of(work.document()) == work
    with pytest.raises(ValueError, match="guessed"):
        CaseWork.of({**work.document(), "how": "guessed"})


def _terms() -> list[Terms]:
    return [
        Terms(0.56, least, more, link, cold)
        for least, cold in ((1.8, 0.0), (2.5, 0.4), (4.0, 1.0), (4.3, 0.2))
        for more, link in ((0.0, 0.1), (0.6, 3.0), (9.0, 2.0), (30.0, 200.0))
    ]


def test_a_fit_finds_the_constants_that_made_the_times():
    terms = columns(_terms())
    true = (0.23, 1.14, 0.87)
    found = fitted(lambda constants: times_us(terms, tuple(constants)), (0.5, 1.0, 0.5), times_us(terms, true))
    assert found == pytest.approx(true, rel=1e-4)


def test_one_odd_case_moves_a_fit_less_than_least_squares_would():
    terms = columns(_terms())
    true = (0.23, 1.14, 0.87)
    times = times_us(terms, true)
    times[5] *= 3
    found = fitted(lambda constants: times_us(terms, tuple(constants)), (0.5, 1.0, 0.5), times)
    others = np.arange(len(times)) != 5
    assert np.abs(times_us(terms, tuple(found)) / times - 1)[others].max() < 0.05
