"""Kernels that processes compile ahead equal those compiled here, and what can't be compiled fails as it does here."""

from dataclasses import replace
from pathlib import Path

import pytest

import symlab
from kernels import ahead
from kernels import compile as compile_module
from kernels.ahead import LEAST_S, PROCESS_BYTES, Compiler, processes_for
from kernels.catalogue import SPECS, find
from kernels.compile import executable
from tests.golden import refused
from tests.patience import until
from tests.runner.conftest import is_running

ARCH = "sm_90a"


@pytest.fixture
def cases(case_of):
    return [case_of(name, world_size=2) for name in ("one_shot", "two_shot")]


@pytest.fixture
def compiler(tmp_path):
    made = Compiler(tmp_path / "cache", processes=2)
    yield made
    made.close()


@pytest.fixture
def started(monkeypatch):
    """The modules of workers that were to be started, none of which is."""
    found = []

    def start(module, **_):
        found.append(module)
        raise OSError("no process is started here")

    monkeypatch.setattr("memory.worker_process.start_worker", start)
    return found


def fill(compiler, cases):
    for case in cases:
        executable(find(case.name), case, ARCH, compiler.cache_dir)


def test_no_process_starts_for_what_no_cache_keeps(compiler, started):
    """Matmuls are compiled by who runs them, for one shape each: here it would be done twice."""
    case = symlab.case("matmul/tiles", gemm=(128, 256, 64), ranks=1)
    cases = [replace(case, algorithm=f"tiles@c{columns}s2k1p2048f1x1m8b132") for columns in (64, 128, 256)]
    compiler.begin(cases, ARCH)
    assert compiler.wait(cases, ARCH, 0)
    assert started == []


@pytest.mark.slow
def test_processes_compile_what_this_process_compiles(compiler, cases, tmp_path, monkeypatch):
    expected = [executable(find(case.name), case, ARCH, tmp_path / "here") for case in cases]

    def refused(*_):
        raise AssertionError("it was compiled here")

    monkeypatch.setattr(compile_module, "_compile", refused)
    compiler.begin(cases, ARCH)
    assert [compiler.executable(find(case.name), case, ARCH) for case in cases] == expected
    compiler.close()
    assert sorted(path.name for path in compiler.cache_dir.iterdir()) == sorted(
        path.name for path in (tmp_path / "here").iterdir()
    )


@pytest.mark.slow
def test_a_kernel_that_processes_can_not_compile_has_the_error_of_this_one(compiler, cases):
    compiler.begin(cases, "sm_80")
    assert compiler._workers
    with refused():
        compiler.executable(find("all_reduce/two_shot"), cases[1], "sm_80")


@pytest.mark.slow
def test_processes_that_are_lost_leave_the_work_to_this_one(compiler, cases):
    compiler.begin(cases, ARCH)
    for worker in list(compiler._workers):
        worker.kill()
    assert [compiler.executable(find(case.name), case, ARCH).name for case in cases] == [case.name for case in cases]
    assert compiler._workers == []


@pytest.mark.slow
def test_nothing_is_left_of_processes_that_are_ended_at_work(compiler, case_of):
    compiler.begin([case_of(spec.algorithm) for spec in SPECS if spec.op == "all_reduce"], ARCH)
    workers = [worker.pid for worker in compiler._workers]
    folder = Path(compiler._folder.name)
    until(lambda: list(folder.iterdir()), "a process at work")
    compiler.close()
    assert [pid for pid in workers if is_running(pid)] == []
    assert not folder.exists()
    assert [path.name for path in compiler.cache_dir.glob("*") if path.suffix != ".json"] == []


@pytest.mark.slow
def test_what_is_wanted_first_comes_first_and_a_wait_has_an_end(compiler, case_of):
    many = [case_of(spec.algorithm) for spec in SPECS if spec.op == "all_reduce" and ARCH in spec.archs]
    compiler.begin(many, ARCH)
    assert not compiler.wait(many, ARCH, timeout_s=0.0)
    assert compiler.wait(many[-1:], ARCH)
    assert any(many[-1].algorithm in path.name for path in compiler.cache_dir.iterdir())
    compiler.wait_for_all()
    assert compiler.count == 0
    assert len(list(compiler.cache_dir.iterdir())) == len(many)


def test_no_process_is_started_for_what_the_cache_has(compiler, cases, started):
    fill(compiler, cases)
    compiler.begin([*cases, *cases], ARCH)
    assert started == []


@pytest.mark.parametrize(("processes", "least_s", "count"), [(1, 0.0, 2), (2, 0.0, 1), (2, LEAST_S, 2)])
def test_no_process_is_started_on_one_core_for_one_kernel_or_for_little(
    cases, started, tmp_path, processes, least_s, count
):
    compiler = Compiler(tmp_path, processes, least_s)
    compiler.begin(cases[:count], ARCH)
    assert started == []
    assert compiler.executable(find(cases[0].name), cases[0], ARCH).name == cases[0].name


def test_processes_are_started_for_two_kernels_and_for_much(cases, started, tmp_path, case_of):
    compiler = Compiler(tmp_path, 2)
    compiler.begin(cases, ARCH)
    assert started == ["kernels.ahead"]
    assert compiler.executable(find(cases[0].name), cases[0], ARCH).name == cases[0].name, "without any"
    compiler.close()
    many = [case_of(spec.algorithm, dtype=dtype) for dtype in ("float32", "float16") for spec in SPECS[:9]]
    compiler = Compiler(tmp_path, 2, LEAST_S)
    compiler.begin(many, ARCH)
    compiler.close()
    assert started == ["kernels.ahead"] * 2


def test_kernels_that_only_this_process_has_are_compiled_here(compiler, cases, started):
    own = [replace(case, algorithm=f"own_{case.algorithm}") for case in cases]
    compiler.begin(own, ARCH)
    assert started == []
    spec = replace(find(cases[0].name), algorithm=own[0].algorithm)
    assert compiler.executable(spec, own[0], ARCH).name == "all_reduce/own_one_shot"


def test_cases_are_looked_at_as_they_are_needed(compiler, case_of, started):
    fill(compiler, [case_of("one_shot")])
    looked = []

    def endless():
        while True:
            looked.append(1)
            yield case_of("one_shot")

    compiler.begin(endless(), ARCH)
    assert len(looked) == ahead.LOOKED_AT
    assert started == []


def test_a_process_a_core_as_far_as_memory_goes():
    assert processes_for(8, None) == 8
    assert processes_for(8, 64 * PROCESS_BYTES) == 8
    assert processes_for(8, 7 * PROCESS_BYTES) == 3
