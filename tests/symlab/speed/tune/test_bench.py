"""The bench of GPUs on stand-ins: what it measures together, what is out, and which world comes after a failure."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from kernels.ahead import Compiler
from memory.fabric import Traits
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.timing.measure import MeasurePlan, measure
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from symlab.speed.tune.bench import MOST_TOGETHER, PATIENCE_S, DeviceBench, Worlds
from symlab.speed.tune.search import BenchFailure
from tests.golden import refused
from tests.patience import NEVER_S
from tests.runner.conftest import on_its_fabric
from tests.runner.measuring import CALL_US, RecordingFabric, RecordingStopwatch, case_of


@dataclass
class Stand:
    """A world whose ranks measure on the simulator by invented clocks. breaks says how a plan ends it."""

    breaks: Callable[[MeasurePlan], str] = lambda plan: ""
    world_size: int = 2
    healthy: bool = True
    closed: bool = False
    plans: list[MeasurePlan] = field(default_factory=list)

    def run(self, program, argument, deadline_s):
        if not isinstance(argument, MeasurePlan):
            return [Traits("nvshmem", "sm_90a", 2, 1 << 23, multicast=False)] * 2
        assert program is measure
        self.plans.append(argument)
        if why := self.breaks(argument):
            self.healthy = False
            raise WorldFailure("DEADLOCK", 1, why)

        def on_stand(fabric, plan):
            log = []
            return measure(RecordingFabric(fabric, log, 1 << 14), plan, RecordingStopwatch(log))

        return ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 23)).run(on_stand, argument, NEVER_S)

    def counters(self):
        return {}

    def findings(self):
        return None

    def close(self):
        self.closed = True


def request(**fabric):
    with hydra_over():
        (job,) = compose_jobs(["op=all_reduce", "dtype=bfloat16", "sizes=[4K]", "fabric=simulator"], False)
    made = on_its_fabric(job.request)
    return replace(made, fabric=replace(made.fabric, heap_given=1 << 23, **fabric))


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("kernels"))


def bench_on(compiler, *stands):
    left = list(stands)
    worlds = Worlds(request(), lambda line: None, lambda fabric, world_size, say: left.pop(0))
    return DeviceBench(worlds, request(), compiler), worlds


CASES = [case_of("one_shot@t128b2l8"), case_of("two_shot@t128b2l8")]


@pytest.mark.slow
def test_candidates_are_measured_in_turns_and_checked(compiler):
    stand = Stand()
    bench, _ = bench_on(compiler, stand)
    found = bench.measured(CASES, 3)
    assert [len(one.samples) for one in found] == [3, 3]
    assert [one.problem for one in found] == ["", ""]
    assert all(value >= CALL_US / 20 for one in found for value in one.samples)
    (plan,) = stand.plans
    assert [one.case.algorithm for one in plan.contestants] == ["one_shot@t128b2l8", "two_shot@t128b2l8"]
    assert (plan.timing.samples, plan.patience_s, plan.link) == (3, PATIENCE_S, False)


@pytest.mark.slow
def test_a_failure_takes_the_world_with_it_and_names_the_reason(compiler):
    hanging = Stand(lambda plan: "rank 1: it waits" if len(plan.contestants) == 2 else "")
    second = Stand()
    bench, worlds = bench_on(compiler, hanging, second)
    with pytest.raises(BenchFailure, match="rank 1: it waits"):
        bench.measured(CASES, 3)
    assert len(bench.measured(CASES[:1], 3)[0].samples) == 3
    assert hanging.closed
    assert (len(hanging.plans), len(second.plans)) == (1, 1)
    worlds.close()
    assert second.closed


@pytest.mark.slow
def test_groups_fit_the_heap_and_have_at_most_sixteen(compiler):
    bench, _ = bench_on(compiler, Stand())
    small = [case_of(f"one_shot@t128b{blocks}l8") for blocks in range(1, 41)]
    groups = bench.groups(small[1:], small[0])
    assert max(map(len, groups)) == MOST_TOGETHER - 1
    assert [case for group in groups for case in group] == small[1:]
    large = [replace(case, size_bytes=1 << 20) for case in small[:6]]
    groups = bench.groups(large[1:], large[0])
    assert [case for group in groups for case in group] == large[1:]
    assert max(map(len, groups)) <= 2, "8 MiB hold three of 2 MiB each, the anchor among them"


def test_a_world_that_can_not_be_started_is_one_line():
    def fails(fabric, world_size, say):
        raise WorldFailure("FAILED", None, "no GPU answers")

    with refused(RequestError):
        Worlds(request(), lambda line: None, fails).world()


@pytest.mark.slow
def test_what_fails_is_out_and_others_go_on(compiler, monkeypatch):
    import runner.timing.of_case as timing

    usual, compiled = timing.check_rank, compiler.executable

    def wrong(case, spec, rank, outputs, faults, **more):
        spoilt = [one + 1 for one in outputs] if "two_shot" in case.algorithm else outputs
        return usual(case, spec, rank, spoilt, faults, **more)

    def broken(spec, case, arch):
        if "one_shot" in case.algorithm:
            raise RuntimeError("ptxas: too many\nregisters")
        return compiled(spec, case, arch)

    with monkeypatch.context() as patch:
        patch.setattr(timing, "check_rank", wrong)
        found = bench_on(compiler, Stand())[0].measured(CASES, 3)
    assert (len(found[0].samples), found[1].samples) == (3, ())
    assert "elements are wrong" in found[1].problem
    monkeypatch.setattr(compiler, "executable", broken)
    found = bench_on(compiler, Stand())[0].measured(CASES, 3)
    assert found[0].problem == "can't be compiled: ptxas: too many registers"
    assert len(found[1].samples) == 3
