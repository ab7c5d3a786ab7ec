"""The model adds up what its docstring says, and a fit finds the constants that made the times."""

import math
from dataclasses import astuple

import numpy as np
import pytest

from kernels.spec import Case
from runner.gpu.reading import gpu_type
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.predict.evidence import Measured
from symlab.speed.predict.model import COLD_FROM, COLD_TO, Fitted, Rates, Terms, coldness, terms_of
from symlab.speed.predict.rates import BULK_PUSH_SHARE, MEMORY_SHARE, rates_of
from symlab.speed.predict.score import fitted

COSTS = {"own_load": 0.3, "remote_load": 0.9, "hop": 0.7, "fence": 0.6}
RATES = Rates(
    0.5,
    COSTS,
    push_gbps=400.0,
    bulk_push_gbps=320.0,
    pull_gbps=250.0,
    pull_both_gbps=200.0,
    memory_gbps=1000.0,
    l2_bytes=1000,
    dependent_launch_us=0.25,
)
CONSTANTS = Fitted(begin_us=0.1, cold_us=0.8, dependent_path=1.0, dependent_cold_us=0.3)
PUSHED = PhaseWork((Direction(4e5, 0.0, 0.0),), 5e5)
"""400 KB over a link take 1 us, and 500 KB of memory half as long meanwhile."""
READ_AGAIN = PhaseWork((), 2e6)
"""2 MB of memory take 2 us, and nothing goes over links."""


def _terms_of(*phases):
    return terms_of(CaseWork({}, {}, phases), RATES, 0.0)


def test_terms_are_floors_times_counts_and_the_busiest_direction():
    work = CaseWork(
        {"hop": 2.0, "fence": 1.0},
        {"hop": 2.0, "fence": 1.0, "remote_load": 3.0},
        (PhaseWork((Direction(4e5, 0.0, 0.0), Direction(0.0, 2.5e5, 4e5))),),
    )
    terms = terms_of(work, RATES, footprint_bytes=100.0)
    assert (terms.launch_us, terms_of(work, RATES, 100.0, True).launch_us) == (0.5, 0.25)
    assert terms.least_us == pytest.approx(2 * 0.7 + 0.6)
    assert terms.more_us == pytest.approx(3 * 0.9)
    # 400 KB pushed at 400 GB/s take 1 us; 250 KB answered take 1 us, and requests of 400 KB 1/200 - 1/250 ns a byte.
    assert terms.link_us == pytest.approx(1.0 + 4e5 * (1 / 200 - 1 / 250) / 1e3)
    assert (terms.memory_us, terms.coldness) == (0.0, 0.0)


def test_bulk_copies_take_their_own_rate():
    terms = _terms_of(PhaseWork((Direction(4e5, 0.0, 0.0, 3.2e5),)))
    assert terms.link_us == pytest.approx(1.0 + 1.0)


def test_a_phase_begins_when_others_have_ended_theirs():
    """Each phase has a busy direction of its own: they add up, though no direction has both."""
    terms = _terms_of(PhaseWork((Direction(4e5, 0.0, 0.0),)), PhaseWork((Direction(0.0, 2.5e5, 0.0),)))
    assert terms.link_us == pytest.approx(1.0 + 1.0)


def test_memory_counts_where_no_link_hides_it():
    """A second pass over an inbox adds its 2 us; in a phase whose link takes longer the memory adds nothing."""
    assert (_terms_of(PUSHED).link_us, _terms_of(PUSHED).memory_us) == (pytest.approx(1.0), 0.0)
    both = _terms_of(PUSHED, READ_AGAIN)
    assert (both.link_us, both.memory_us) == (pytest.approx(1.0), pytest.approx(2.0))
    slower = _terms_of(PhaseWork(PUSHED.directions, 3e6))
    assert (slower.link_us, slower.memory_us) == (pytest.approx(1.0), pytest.approx(3.0 - 1.0))


def test_further_rounds_and_traffic_overlap_and_all_else_adds_up():
    waits = Terms(0.5, 2.0, 3.0, 1.0, 1.5, 0.5)
    streams = Terms(0.5, 2.0, 3.0, 50.0, 1.5, 0.5)
    assert waits.time_us(CONSTANTS) == pytest.approx(0.5 + 0.1 + 2.0 + 3.0 + 0.5 * 0.8)
    assert streams.time_us(CONSTANTS) == pytest.approx(0.5 + 0.1 + 2.0 + 51.5 + 0.5 * 0.8)


def test_the_memorys_rate_is_that_of_the_most_blocks():
    """Fewer blocks sum what the L2 cache holds: on H100 they are faster than the memory."""
    floors = gpu_type("h100").floors
    assert rates_of(gpu_type("h100")).rates.dependent_launch_us == floors.empty_node_dependent_us[1]
    assert max(floors.reduce_gbps.values()) > floors.reduce_gbps[128] == rates_of(gpu_type("h100")).rates.memory_gbps


def test_bulk_copies_have_a_floor_of_their_rate_and_wait_as_loads_do():
    type_ = gpu_type("h200")
    floors, rates = type_.floors, rates_of(type_).rates
    assert rates.bulk_push_gbps == max(floors.bulk_push_gbps.values()) < rates.push_gbps
    own, remote = floors.load_own_l2_us, floors.load_remote_hot_us
    assert [rates.costs_us[kind] for kind in ("bulk_own_load", "bulk_read", "lane_copy")] == [own] * 3
    assert [rates.costs_us[kind] for kind in ("bulk_remote_load", "bulk_store", "bulk_switch_store")] == [remote] * 3


def test_what_no_floor_says_of_memory_and_bulk_copies_is_a_share_of_the_datasheets():
    known = rates_of(gpu_type("b200"))
    assert {"bulk_push_gbps", "reduce_gbps"} <= set(known.assumed)
    assert known.rates.memory_gbps == gpu_type("b200").memory.gbps * MEMORY_SHARE
    assert known.rates.bulk_push_gbps == gpu_type("b200").links.one_way_gbps * BULK_PUSH_SHARE


@pytest.mark.parametrize(("link_us", "regime"), [(0.0, "latency"), (5.0, "mixed"), (500.0, "bandwidth")])
def test_the_regime_is_the_share_of_links_and_memory(link_us, regime):
    assert Terms(0.5, 2.0, 0.0, link_us, 0.0, 0.0).regime(CONSTANTS) == regime
    assert Terms(0.5, 2.0, 0.0, link_us / 2, link_us / 2, 0.0).regime(CONSTANTS) == regime
    assert Terms(0.5, 2.0, 0.0, link_us, 0.0, 0.0, True).regime(CONSTANTS) == "dependent"


def test_coldness_grows_by_the_logarithm_between_two_footprints():
    assert coldness(0.0) == coldness(COLD_FROM) == 0.0
    assert coldness(COLD_TO) == coldness(50.0) == 1.0
    assert coldness(math.sqrt(COLD_FROM * COLD_TO)) == pytest.approx(0.5)


def test_a_step_without_a_cost_is_an_error():
    with pytest.raises(KeyError, match="sleep"):
        terms_of(CaseWork({"sleep": 1.0}, {}, ()), RATES, 0.0)


def test_work_is_the_same_after_its_document():
    phases = (PhaseWork((Direction(1.0, 2.0, 3.0, 4.0),), 5.0), READ_AGAIN)
    work = CaseWork({"hop": 2.0}, {"hop": 3.5}, phases, "rounds")
    assert CaseWork.of(work.document()) == work
    with pytest.raises(ValueError, match="guessed"):
        CaseWork.of({**work.document(), "how": "guessed"})


def _terms():
    return [
        Terms(0.56, least, more, link, memory, cold, is_dependent)
        for is_dependent in (False, True)
        for least, cold in ((1.8, 0.0), (2.5, 0.4), (4.0, 1.0), (4.3, 0.2))
        for more, link, memory in ((0.0, 0.1, 0.0), (0.6, 3.0, 0.0), (9.0, 2.0, 1.0), (30.0, 200.0, 40.0))
    ]


def _cases(times):
    return [
        Measured(
            "h200-x2", "h200", Case("all_reduce", "one_shot", "bfloat16", "float32", "sum", 1024, 2), time_us, terms
        )
        for time_us, terms in zip(times, _terms(), strict=True)
    ]


TRUE = Fitted(0.23, 0.87, 1.11, 0.36)


def test_a_fit_finds_the_constants_that_made_the_times():
    found = fitted(_cases([one.time_us(TRUE) for one in _terms()]))
    assert astuple(found) == pytest.approx(astuple(TRUE), rel=1e-4)


def test_one_odd_case_moves_a_fit_less_than_least_squares_would():
    times = np.array([one.time_us(TRUE) for one in _terms()])
    times[5] *= 3
    found = fitted(_cases(times))
    others = np.arange(len(times)) != 5
    assert np.abs([one.time_us(found) for one in _terms()] / times - 1)[others].max() < 0.05
