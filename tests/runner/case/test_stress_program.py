"""Cases under stress: right kernels pass; kernels that promise too much are found within a stated number of seeds."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.ops import collective
from kernels.catalogue import find, retuned
from kernels.compile import executable
from kernels.spec import cases_in_turn
from kernels.tuning import Step, Tuning
from runner.case import stress
from runner.case.check import merge
from runner.case.program import RankOutcome
from runner.case.stress import StressPlan, run_stressed, unnamed_death
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatorOptions
from tests.golden import same_text
from tests.patience import NEVER_S

SEEDS, ROUNDS = 16, 4
"""Number of seeds, and of rounds of three launches in each, within which each defect below is found."""

SMALL = Tuning((Step(threads=96, blocks=2, loads_in_flight=8, reason="few threads: quick"),))


@pytest.fixture(scope="module")
def compiled(compile_cache):
    return lambda spec, case: executable(spec, case, "sm_90a", compile_cache)


@pytest.fixture
def found(compiled):
    """found(spec, stress, seeds, ..): what is wrong, by seed: the faults of the check, or how it failed."""

    def find_in(spec, stress, seeds=1, world_size=2, rounds=2, **options):
        case = replace(case_of(spec, stress), world_size=world_size)
        cases = cases_in_turn(spec, collective(case.op), case)
        plan = StressPlan(cases, spec, tuple(compiled(spec, one) for one in cases), rounds)
        faults = []
        for seed in range(seeds):
            schedule = {"schedule": "random", "seed": seed} | options
            world = ThreadWorld(case.world_size, SimulatorOptions(heap_bytes=1 << 22, **schedule))
            try:
                outcomes = world.run(run_stressed, plan, NEVER_S)
            except WorldFailure as failure:
                faults.append(f"{failure.status}: {failure.message}")
                continue
            check = merge(case, spec, [one.check for one in outcomes if one.check is not None])
            text = "; ".join(check.faults)
            faults.append(text or (unnamed_death(outcomes) if stress == "dead_rank" else ""))
        return faults

    return find_in


def case_of(spec, stress, size_bytes=768):
    reduces = collective(spec.op).reduces
    types = ("float32", "native", "sum") if reduces else (spec.dtypes[0], "none", "none")
    return Case(spec.op, spec.algorithm, *types, 4 if spec.op == "barrier" else size_bytes, 2, stress=stress)


def promising(spec, promise):
    return replace(spec, promises=spec.promises | {promise})


def is_found(found, spec, stress):
    """Whether one of SEEDS seeds shows that a promise is broken."""
    return any(found(spec, stress, rounds=ROUNDS, seed=seed)[0] for seed in range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("stress", ["late_rank", "no_host_barrier", "alternating_sizes", "graph_out_of_step"])
@pytest.mark.parametrize(
    "spec", [retuned("all_reduce/one_shot", SMALL), retuned("all_reduce/ll", SMALL)], ids=lambda spec: spec.name
)
def test_right_kernels_are_right(found, spec, stress):
    assert found(spec, stress, 3) == [""] * 3


def test_a_graph_captures_loaded_kernels(found, monkeypatch):
    said = []
    monkeypatch.setattr(SimulatorFabric, "load", lambda fabric, _: said.append((fabric.rank, "load")))
    monkeypatch.setattr(stress, "captured", lambda fabric, queue: said.append((fabric.rank, "capture")) or queue)
    assert found(retuned("all_reduce/one_shot", SMALL), "graph_out_of_step") == [""]
    assert [what for rank, what in said if rank == 0] == ["load", "load", "load", "capture"]


class TestDefects:
    @pytest.mark.parametrize("stress", ["no_host_barrier", "alternating_sizes", "graph_out_of_step"])
    def test_a_kernel_without_parity(self, found, sabotaged, stress):
        """One bank instead of two: a fast rank's next launch overwrites what a slow rank has not read."""
        assert is_found(found, sabotaged["all_reduce/ll_one_bank"], stress)

    @pytest.mark.slow
    @pytest.mark.parametrize("stress", ["no_host_barrier", "late_rank"])
    def test_a_kernel_without_its_exit_barrier(self, found, sabotaged, stress):
        """A rank fills its input again while others still read it."""
        assert is_found(found, sabotaged["all_reduce/one_shot_no_exit_barrier"], stress)

    def test_hosts_that_meet_hide_a_missing_exit_barrier(self, found, sabotaged):
        """A kernel that promises less runs with barriers of the hosts, and is right under what it promises."""
        spec = sabotaged["all_reduce/one_shot_no_exit_barrier"]
        honest = replace(spec, promises=spec.promises - {"no_host_barrier", "graph_out_of_step"})
        assert found(honest, "late_rank", 4) == [""] * 4

    @pytest.mark.parametrize("stress", ["two_streams", "late_rank+two_streams", "alternating_sizes+two_streams"])
    def test_two_launches_at_once_that_take_the_same_epoch(self, found, stress):
        """With one rank no launch waits for another's: the promise is kept, and nothing is found."""
        promised = promising(retuned("all_reduce/one_shot", SMALL), "two_streams")
        assert is_found(found, promised, stress)
        assert found(promised, stress, 2, world_size=1) == [""] * 2


class TestCombinations:
    @pytest.mark.parametrize(
        "stress", ["late_rank+alternating_sizes", "no_host_barrier+alternating_sizes", "late_rank+graph_out_of_step"]
    )
    def test_a_right_kernel_is_right(self, found, stress):
        assert found(retuned("all_reduce/one_shot", SMALL), stress, 1) == [""]

    @pytest.mark.parametrize(
        ("stress", "late"),
        [
            ("late_rank+two_streams", [0, 0, 1, 1]),
            ("alternating_sizes+two_streams", []),
            ("late_rank+alternating_sizes", [0, 1, 0, 1, 0, 1]),
            ("late_rank+graph_out_of_step", [0, 0, 1, 1, 1, 1]),
            ("graph_out_of_step", [0, 1]),
        ],
    )
    def test_who_is_late(self, found, monkeypatch, stress, late):
        """By rank, the pauses of two rounds: in turn or in two streams with each launch, of graphs with its replay."""
        paused = []
        pause = SimulatorFabric.pause

        def noted(fabric, seconds):
            paused.append(fabric.rank)
            pause(fabric, seconds)

        monkeypatch.setattr(SimulatorFabric, "pause", noted)
        found(promising(retuned("all_reduce/one_shot", SMALL), "two_streams"), stress)
        assert sorted(paused) == sorted(late)


class TestDeadRank:
    @pytest.mark.parametrize(
        "name",
        ["all_reduce/one_shot", pytest.param("all_reduce/two_shot_lamport", marks=pytest.mark.slow), "barrier/peers"],
    )
    def test_reports_name_it(self, found, name):
        assert found(find(name), "dead_rank", schedule="fair") == [""]

    def test_a_kernel_that_can_not_name_it_is_found(self, found):
        (text,) = found(promising(find("all_reduce/multimem_one_shot"), "dead_rank"), "dead_rank", schedule="fair")
        same_text(text, r"waited .*")

    @pytest.mark.parametrize(
        ("reports", "wrong"),
        [
            (["waited 2 ms for rank 2: x", "", ""], "rank 1 ended without a report"),
            (["waited 2 ms for rank 1: x", "waited 2 ms for rank 0: x", ""], "no report names it"),
            (["waited 2 ms for rank 2: x", "waited 2 ms for rank 0: x", ""], ""),
        ],
    )
    def test_what_reports_have_to_say(self, reports, wrong):
        outcomes = [RankOutcome(rank, None, None, report) for rank, report in enumerate(reports)]
        text = unnamed_death(outcomes)
        assert wrong in text
        assert bool(text) == bool(wrong)
