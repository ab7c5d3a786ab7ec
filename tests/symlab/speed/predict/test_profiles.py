"""Profiles of candidates: those of a shared clock are those of a clock for each, and what fails costs only itself."""

import os
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from cases.case import Case
from kernels.catalogue import find
from runner.world.world import WorldFailure
from simulator.clock.costs import H200_TRIAL
from symlab.speed.predict import profiles, profiling
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profile_cache import runnable_of, work_of
from symlab.speed.predict.profiles import LOST, Budget, Profiles, Unprofiled
from symlab.speed.predict.profiling import profiled

ARCH = "sm_90a"


def made(name, size_bytes):
    return Case("all_reduce", name, "bfloat16", "float32", "sum", size_bytes, 2)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "lamport"])
def test_a_shared_clock_gives_the_profiles_of_a_clock_for_each(algorithm, compile_cache, monkeypatch):
    """Blocks differ, and with them the room for flags; large messages come down to the same launch."""
    monkeypatch.setattr(profiling, "WHOLE_BYTES", 1 << 14)
    sizes = (1 << 10, 1 << 14) if algorithm == "lamport" else (1 << 14, 1 << 16, 1 << 18)
    cases = [made(f"{algorithm}@t128b{blocks}l8", size) for blocks in (2, 8) for size in sizes]
    runnables = [runnable_of(case, find(case.name), ARCH, compile_cache) for case in cases]
    plain = [profiled(one, H200_TRIAL) for one in runnables]
    asked = []
    usual = profiles.clocked

    def counted(*words):
        asked.append(words)
        return usual(*words)

    monkeypatch.setattr(profiles, "clocked", counted)
    clock = Budget()
    assert [profiled(one, H200_TRIAL, None, clock) for one in runnables] == plain
    assert len(asked) < 2 * len(cases), "each has its own path and the least one: some of them are the same launch"


def test_without_time_nothing_is_begun(tmp_path):
    assert list(Profiles(tmp_path, ARCH).of([made("one_shot@t128b4l8", 1 << 12)], 0.0)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_make_the_same_profiles(tmp_path):
    cases = [made("one_shot@t128b4l8", 1 << 12), made("two_shot@t128b4l8", 1 << 12)]
    several = Profiles(tmp_path, ARCH, processes=2)
    try:
        found = dict(several.of(cases))
    finally:
        several.close()
    (tmp_path / "alone").mkdir()
    assert found == dict(Profiles(tmp_path / "alone", ARCH).of(cases))
    assert found == {case: work_of(case, find(case.name), ARCH, tmp_path) for case in cases}
    assert len(list(tmp_path.glob("profile-*.json"))) == 2


@pytest.mark.parametrize(
    ("at", "error", "why", "can_run"),
    [
        ("runnable_of", RuntimeError("ptxas: too many registers\nmore"), "can't be compiled: ptxas: too many", False),
        ("runnable_of", ValueError("a form that the compiler lacks"), "can't be compiled: a form", False),
        ("runnable_of", OSError(28, "No space left on device"), "can't be compiled here: [Errno 28] No space", True),
        ("work_of", WorldFailure("DEADLOCK", 1, "rank 1: it waits"), "rank 1: it waits", True),
        ("work_of", MemoryError(), "MemoryError", True),
        ("work_of", ZeroDivisionError("no rounds"), "no rounds", True),
    ],
)
def test_what_fails_costs_only_itself_and_says_whether_a_gpu_can_run_it(
    at, error, why, can_run, compile_cache, monkeypatch
):
    cases = [made(f"{name}@t128b4l8", 1 << 12) for name in ("one_shot", "lamport")]
    usual = getattr(profiles, at)

    def failing(case, *words):
        if "one_shot" in case.name:
            raise error
        return usual(case, *words)

    monkeypatch.setattr(profiles, at, failing)
    found = dict(Profiles(compile_cache, ARCH).of(cases))
    first = found[cases[0]]
    assert isinstance(first, Unprofiled)
    assert (first.reason[: len(why)], first.can_run, "\n" in first.reason) == (why, can_run, False)
    assert isinstance(found[cases[1]], CaseWork)


def test_a_simulation_ends_with_the_models_time(tmp_path, monkeypatch):
    """What is begun gets no more seconds than are left, and what it does not end in is left out, not measured."""
    limits_s = []

    def slow(runnable, costs, limit_s):
        limits_s.append(limit_s)
        raise WorldFailure("TIMEOUT", 0, f"rank 0: still running after {limit_s} s")

    def ended(self):
        if limits_s:
            raise TimeoutError("simulating it takes longer than 100 s")
        return 100.0

    monkeypatch.setattr(profiles, "clocked", slow)
    monkeypatch.setattr(profiles.Budget, "_left_s", ended)
    case = made("one_shot@t128b4l8", 1 << 12)
    assert list(Profiles(tmp_path, ARCH).of([case, made("one_shot@t128b4l8", 1 << 13)], 100.0)) == []
    assert limits_s == [100.0]


def test_a_budget_gives_no_simulation_more_than_the_deadline_of_each(monkeypatch):
    limits_s = []
    monkeypatch.setattr(profiles, "clocked", lambda runnable, costs, limit_s: limits_s.append(limit_s))
    given = SimpleNamespace(case=made("one_shot", 1 << 12), executable=SimpleNamespace(digest=""), launch=None)
    Budget(1e9)(given, H200_TRIAL)
    Budget(50.0)(given, H200_TRIAL)
    assert limits_s[0] == profiling.DEADLINE_S
    assert 0 < limits_s[1] <= 50


def test_a_code_of_many_cases_goes_to_several_processes(tmp_path, monkeypatch):
    """16 cases of one code for 2 processes, 8 parts; cases of the same number of blocks stay together."""
    groups = []

    class Noted:
        def __init__(self, *words):
            pass

        def submit(self, work, group, *words):
            groups.append(group)
            future = Future()
            future.set_result([(case, Unprofiled("seen", can_run=True)) for case in group])
            return future

    monkeypatch.setattr(profiles, "ProcessPoolExecutor", Noted)
    cases = [
        made(f"one_shot@t128b{blocks}l8", size << 20) for size in (1, 4) for blocks in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    found = dict(Profiles(tmp_path, ARCH, processes=2).of(cases))
    assert set(found) == set(cases)
    assert [len(group) for group in groups] == [2] * 8
    assert [len({case.algorithm for case in group}) for group in groups] == [1] * 8


def dies_of_two_shot(cases, *words):
    """What a worker does: end without a word, as one that is killed for its memory."""
    if any("two_shot" in case.name for case in cases):
        os._exit(9)
    time.sleep(0.2)
    return [(case, Unprofiled("seen", can_run=True)) for case in cases]


@pytest.mark.slow
def test_a_killed_process_costs_only_what_runs_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(profiles, "profiles_of_a_code", dies_of_two_shot)
    several = Profiles(tmp_path, ARCH, processes=2)
    cases = [made(f"{name}@t128b4l8", 1 << 12) for name in ("one_shot", "two_shot", "lamport", "ll")]
    try:
        found = dict(several.of(cases))
    finally:
        several.close()
    reasons = [getattr(found[case], "reason", "") for case in cases]
    assert (reasons[1], set(reasons)) == (LOST, {"seen", LOST})
    assert reasons.count(LOST) <= 2
