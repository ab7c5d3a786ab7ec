"""Libraries whose module is compiled first: when, how often, in whose time, and what becomes of cases without it."""

from types import SimpleNamespace

import pytest

from cases.record.record import Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.refusal import Refusal
from kernels import flashinfer
from memory.fabric import Executable
from runner.case.cases import cases_of
from runner.case.library_modules import BUILD_LIMIT_S, LOAD_LIMIT_S, Brought, bring_module
from runner.command.job import run_job
from runner.command.means import Means, usual_means
from runner.command.plan import Job
from runner.timing.combine import TimedResult
from runner.world.world import WorldFailure
from tests.runner.command.test_job_timing import LIMIT, Shelf, asked_for, timing_of
from tests.runner.conftest import GOOD

READY = Brought("", "PyTorch 2.11.0, nvcc 13.0")
BASELINES = "baselines=[flashinfer/vllm_one_shot,nccl,flashinfer/trtllm_lamport]"


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(flashinfer, "version", lambda: "0.7.2")
    monkeypatch.setattr(flashinfer, "is_prebuilt", lambda module: True)


def job_of(*arguments):
    request = asked_for(BASELINES, "algorithms=[one_shot]", "dtype=bfloat16", *arguments)
    return Job(request, cases_of(request), {}, RecordedEnvironment, RecordedRequest())


def done(shelf, brought, *arguments, **changes):
    def measured(world, contestants, request, limit):
        shelf.events.append(f"measure {contestants[0].case.size_bytes}")
        return [TimedResult(timing_of(LIMIT)) for _ in contestants], LIMIT

    def compiled(spec, *given):
        return Executable(spec.name, "entry", "sm_90a", "ptx", "sha256:0")

    ran = changes.pop("ran", lambda *given: GOOD)
    run_job(job_of(*arguments), shelf, Means(usual_means().refuses, compiled, ran, measured, brought=brought))
    return shelf


def test_each_module_is_brought_once_before_the_time_of_its_first_case(monkeypatch):
    """By a clock that only bringing moves."""
    brought = []
    clock = [100.0]
    monkeypatch.setattr("runner.command.attempt.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def bring(world, module):
        brought.append(module)
        clock[0] += 300.0
        return READY

    shelf = done(Shelf(), bring, "sizes=[1K,4K]")
    assert brought == ["vllm_comm", "trtllm_comm"]
    said = "bringing {} to the ranks: what is not compiled yet takes minutes"
    at = [shelf.events.index(said.format(module)) for module in brought]
    assert shelf.events[at[0] - 1] == "start 1024 flashinfer/vllm_one_shot"
    assert shelf.events[at[1] - 1] == "start 1024 flashinfer/trtllm_lamport"
    assert all(record.status is Status.PASSED for record in shelf.records)
    assert {record.duration_s for record in shelf.records if record.case.size_bytes == 4096} == {0.0}
    first = next(one for one in shelf.records if one.case.algorithm == "flashinfer/vllm_one_shot")
    assert first.library == "flashinfer 0.7.2 (PyTorch 2.11.0, nvcc 13.0)"


def test_a_module_that_does_not_compile_refuses_its_cases_and_no_others():
    tried = []

    def bring(world, module):
        tried.append(module)
        return Brought("vllm_comm did not compile: a.cu(3): error: no") if module == "vllm_comm" else READY

    shelf = done(Shelf(), bring, "sizes=[1K,4K]")
    assert tried == ["vllm_comm", "trtllm_comm"], "it is not tried again"
    refused = [record for record in shelf.records if record.status is Status.REFUSED]
    assert [one.case.algorithm for one in refused] == ["flashinfer/vllm_one_shot"] * 2
    assert refused[0].reason == (
        "flashinfer/vllm_one_shot is unavailable: vllm_comm did not compile: a.cu(3): error: no"
    )
    assert refused[0].refusal.key == "baselines"
    assert sum(record.status is Status.PASSED for record in shelf.records) == 6


def test_a_library_that_is_refused_brings_no_module(monkeypatch):
    monkeypatch.setattr(flashinfer, "refuses_case", lambda name, case: Refusal("sizes", "it is refused", "nothing"))
    tried = []

    def bring(world, module):
        tried.append(module)
        return READY

    shelf = done(Shelf(), bring, "sizes=[1K]")
    assert not tried
    assert sum(record.status is Status.REFUSED for record in shelf.records) == 2


def test_a_world_that_is_lost_on_the_way_is_a_refusal_and_a_fresh_world_follows():
    def bring(world, module):
        if module == "vllm_comm":
            world.healthy = False
            raise WorldFailure(Status.TIMEOUT, None, "the deadline of 720 s passed\nmore")
        return READY

    shelf = done(Shelf(), bring, "sizes=[1K]")
    (refused,) = (record for record in shelf.records if record.status is Status.REFUSED)
    assert refused.reason.endswith("bringing vllm_comm to the ranks: the deadline of 720 s passed")
    assert len(shelf.worlds) == 2
    assert sum(record.status is Status.PASSED for record in shelf.records) == 3


def test_the_ranks_have_the_time_that_compiling_takes():
    class World:
        def run(self, *given):
            assert given == (bring_module, "vllm_comm", BUILD_LIMIT_S + LOAD_LIMIT_S)
            return [READY, READY]

    bring = usual_means().brought
    world = World()
    assert bring(world, "vllm_comm") == READY
