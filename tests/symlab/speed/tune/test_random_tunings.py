"""Random tunings for a score of the model: the same for a seed, each another code or launch, at every size."""

import pytest

from cases.case import Case
from kernels.catalogue import find
from kernels.tuned_name import has_tuning, step_of
from memory.fabric import Traits
from symlab.speed.tune.candidates import MOST_LOADS, Candidates
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.sample import drawn, shares
from tests.symlab.speed.tune.test_tune_on_gpus import Finals, on_gpus

ALGORITHMS = ("one_shot", "two_shot", "lamport")


def candidates(size_bytes):
    case = Case("all_reduce", "best", "bfloat16", "float32", "sum", size_bytes, 2)
    return Candidates(case, ALGORITHMS, Traits("nvshmem", "sm_90a", 2, 1 << 33, multicast=False))


def test_a_seed_draws_the_same_and_another_one_others():
    first, again, other = (drawn(candidates(1 << 20), 30, seed) for seed in (1, 1, 2))
    assert first == again
    assert len(first) == 30
    assert {one.algorithm for one in first} != {one.algorithm for one in other}
    assert len({(find(one.name).launch(one), str(find(one.name).choices(one))) for one in first}) == 30
    assert len({step_of(one.algorithm).blocks for one in first}) >= 6
    assert any(step_of(one.algorithm).push for one in first)
    assert all(step_of(one.algorithm).threads * step_of(one.algorithm).loads_in_flight <= MOST_LOADS for one in first)


@pytest.mark.slow
def test_what_there_is_not_is_not_drawn():
    few = drawn(candidates(1 << 10), 10_000, 1)
    assert 10 < len(few) < 1000


@pytest.mark.parametrize(("count", "places", "each"), [(7, 3, [3, 2, 2]), (2, 4, [1, 1, 0, 0]), (6, 3, [2, 2, 2])])
def test_a_sample_is_spread_over_all_sizes(count, places, each):
    assert shares(count, places) == each


def test_a_sample_is_run_beside_the_catalogues_own(tmp_path):
    finals = Finals(tmp_path)
    asked, seams = on_gpus(finals, "sizes=[16K,1M]", "timing.warmup=7", algorithms=ALGORITHMS)
    assert tune(Options(asked, sample=9, seed=1, processes=1), asked, seams) == 0
    small, large = (job.request for job in finals.composed)
    assert small.algorithms[:3] == ALGORITHMS
    assert large.algorithms[:2] == ("one_shot", "two_shot"), "lamport takes 256 KiB at most"
    assert [sum(map(has_tuning, one.algorithms)) for one in (small, large)] == [5, 4]
    assert (small.timing.samples, small.timing.warmup, small.baselines) == (8, 7, ())
