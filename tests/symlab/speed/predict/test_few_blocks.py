"""The model knows what few blocks reach: they move what their multiprocessors move, however much a link carries."""

from dataclasses import replace

import pytest

from runner.gpu.reading import gpu_type
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.predict.model import terms_of
from symlab.speed.predict.rates import rates_of

MOVED = 64e6
"""Bytes: enough that no first wait counts."""

WAYS = {
    "push_gbps": Direction(MOVED, 0.0, 0.0),
    "pull_gbps": Direction(0.0, MOVED, 0.0),
    "bulk_push_gbps": Direction(0.0, 0.0, 0.0, MOVED),
}


@pytest.mark.parametrize("gpu", ["h100", "h200"])
@pytest.mark.parametrize("floor", WAYS)
def test_a_copy_by_few_blocks_takes_what_the_floors_say(gpu, floor):
    """A copy is one phase: its time over the link is that of the probe with as many blocks, within 15 %."""
    type_ = gpu_type(gpu)
    work = CaseWork({}, {}, (PhaseWork((WAYS[floor],)),))
    for blocks, gbps in getattr(type_.floors, floor).items():
        terms = terms_of(replace(work, blocks=blocks), rates_of(type_).rates, 0.0)
        assert terms.link_us == pytest.approx(MOVED / gbps / 1e3, rel=0.15), blocks


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_a_pass_over_memory_by_one_block_takes_what_its_floor_says(gpu):
    floors = gpu_type(gpu).floors
    work = CaseWork({}, {}, (PhaseWork((), MOVED),), blocks=1)
    terms = terms_of(work, rates_of(gpu_type(gpu)).rates, 0.0)
    assert terms.memory_us == pytest.approx(MOVED / floors.reduce_gbps[1] / 1e3, rel=0.01)


def test_the_first_turn_of_a_block_waits_once():
    """Its wait is on the least path: a share of one turn takes less than at the floor's rate, and never less than 0."""
    rates = rates_of(gpu_type("h200")).rates
    share = 16 << 10
    phase = PhaseWork((Direction(0.0, float(share), 0.0),))
    alone_us = share / rates.block_pull_gbps / 1e3
    assert 0 < rates.link_us(phase, 1) < alone_us
    assert rates.link_us(phase, 1) == pytest.approx(alone_us - rates.costs_us["remote_load"] / 4)
    assert rates.link_us(phase, 0) == pytest.approx(share / rates.pull_gbps / 1e3)


def test_further_turns_wait_for_memory_and_move_their_bytes():
    """A copy of many turns with few bytes in flight: each waits, cold from memory, and moves what it has."""
    rates = rates_of(gpu_type("h100")).rates
    share, turns = 8 << 20, 1 << 10
    phase = PhaseWork((Direction(0.0, float(share), 0.0),))
    work = CaseWork({"remote_load": 1.0}, {"remote_load": 1.0 + turns}, (phase,), blocks=1)
    cold = terms_of(work, rates, 10.0 * rates.l2_bytes)
    moving_us = share / rates.issue_pull_gbps / 1e3 * turns / (turns + 1)
    floors = gpu_type("h100").floors
    assert cold.more_us == pytest.approx(turns * floors.load_remote_cold_us + moving_us)
    hot = terms_of(work, rates, 0.0)
    assert hot.more_us == pytest.approx(turns * floors.load_remote_hot_us + moving_us)
    assert terms_of(replace(work, steps=work.least), rates, 0.0).more_us == 0.0, "a single turn is on the least path"


def test_a_look_without_a_hop_is_one():
    """ll128 stores its words weakly, so that the clock never sees how long they fly."""
    rates = rates_of(gpu_type("h100")).rates
    seen = terms_of(CaseWork({"own_load": 2.0, "hop": 1.0}, {}, ()), rates, 0.0)
    unseen = terms_of(CaseWork({"own_load": 2.0, "look": 1.0}, {}, ()), rates, 0.0)
    assert unseen.least_us == pytest.approx(seen.least_us)
    both = terms_of(CaseWork({"hop": 1.0, "look": 1.0}, {}, ()), rates, 0.0)
    assert both.least_us == pytest.approx(rates.costs_us["hop"] + rates.costs_us["look"])
