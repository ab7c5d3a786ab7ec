"""Every case ends as one record, whatever happens to it; a failure costs its world and nothing more."""

import dataclasses
import functools
import hashlib
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cases.code_digest import code_digest
from cases.record.record import Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from kernels.catalogue import find
from memory.fabric import Executable
from runner.__main__ import main
from runner.case.cases import cases_of
from runner.command import attempt
from runner.command.job import run_job
from runner.command.kernel_info import kernel_info
from runner.command.plan import Job
from runner.records.store import StoreError
from runner.world.world import WorldFailure
from tests.processes import ran
from tests.runner.conftest import BAD, GOOD, PTX, TWO, Script, StubWorld, asked, on_its_fabric
from tests.runner.shelf import Shelf

HERE = RecordedEnvironment(host={"name": "here"})


def shelf_for(job, full_after=1000):
    return Shelf(lambda: StubWorld(job.request.fabric, job.request.world_size), full_after)


@functools.cache
def job_of(*arguments):
    (request,) = map(on_its_fabric, asked(" ".join((TWO, *arguments))))
    return Job(request, cases_of(request), {"seed": 0}, lambda: HERE, RecordedRequest(command="c"))


ONE = ("sizes=8", "algorithms=one_shot")


def means_with(**changes):
    means = Script().tools().means
    return dataclasses.replace(means, **changes)


def done(script, *arguments):
    job = job_of(*arguments)
    shelf = shelf_for(job)
    run_job(job, shelf, script.tools().means)
    return shelf


def test_what_a_case_runs_can_not_be_told(monkeypatch):
    """That costs the case, and not the command."""
    usual = attempt.subject_of

    def subject_of(job, case):
        if case.size_bytes == 8:
            raise ValueError("the kernel's file is gone")
        return usual(job, case)

    monkeypatch.setattr(attempt, "subject_of", subject_of)
    shelf = done(Script(), "sizes=[8,16]", "algorithms=one_shot")
    assert [(record.status, record.reason) for record in shelf.records] == [
        (Status.FAILED, "the kernel's file is gone"),
        (Status.PASSED, ""),
    ]


def test_passed():
    shelf = done(Script(), "sizes=[8,16]")
    assert [record.status for record in shelf.records] == [Status.PASSED] * 4
    record = shelf.records[0]
    assert record.check == GOOD
    assert record.counters["instructions"] == 2000
    assert record.counters["of"] == {"launches": 5, "ranks": 2, "checked": 2}
    given: dict[str, Any] = {"choices": find(record.kernel.name).choices(record.case), "patience_s": 10.0}
    assert given["choices"]["unroll"] >= 1
    assert record.environment == HERE
    assert record.request == RecordedRequest(command="c", kernel=given)
    assert (record.fabric.name, record.fabric.simulated, record.fabric.settings) == ("simulator", True, {"seed": 0})
    assert record.case.size_bytes == 8
    assert len(shelf.worlds) == 1


def test_what_is_prepared_before_a_case_is_no_part_of_its_time():
    prepared: list[str] = []

    def prepare(traits):
        assert traits.world_size == job.request.world_size
        prepared.append(datetime.now(UTC).isoformat(timespec="milliseconds"))

    job = job_of("sizes=[8,16]")
    shelf = shelf_for(job)
    run_job(job, shelf, means_with(prepared=prepare))
    assert len(prepared) == len(shelf.records) == 4
    assert all(before <= record.started for before, record in zip(prepared, shelf.records, strict=True))


def test_what_is_said_about_the_kernel():
    kernel = done(Script(), *ONE).records[0].kernel
    spec = find("all_reduce/one_shot")
    assert kernel.ptx_digest == "sha256:" + hashlib.sha256(PTX.encode()).hexdigest()
    assert kernel.code_digest == code_digest(PTX)
    assert kernel.multimem == ("multimem.ld_reduce.relaxed.sys.global.add.f32",)
    assert (kernel.cubin_digest, kernel.name) == ("", spec.name)
    assert kernel.source_digest.startswith("sha256:")
    assert kernel.block == spec.launch(job_of(*ONE).cases[0]).threads


def test_wrong_or_unchecked():
    (record,) = done(Script({"one_shot": BAD}), *ONE).records
    assert record.status is Status.WRONG
    assert "3 of 64 elements are wrong" in record.reason
    (record,) = done(Script(), *ONE, "check=false").records
    assert (record.status, record.reason, record.verified) == (Status.PASSED, "check was off", False)
    assert record.counters["of"]["checked"] == 0


def test_refused_says_why_and_runs_nothing():
    script = Script()
    shelf = done(script, "algorithms=[multimem_one_shot,one_shot]", "sizes=8", "fabric.multicast=false")
    assert [(record.status, record.reason) for record in shelf.records] == [
        (Status.REFUSED, "no multicast here"),
        (Status.PASSED, ""),
    ]
    assert ["multimem" in case for case in script.ran] == [False]
    assert shelf.records[0].kernel is None


@pytest.mark.parametrize("status", ["FAILED", "DEADLOCK", "TIMEOUT"])
def test_a_world_that_fails_is_replaced_and_the_next_case_runs(status):
    failure = WorldFailure(status, 1, "rank 1 block 0: read of poison")
    shelf = done(Script({"one_shot": failure}), "sizes=[8,16]")
    assert [str(record.status) for record in shelf.records] == [status, "PASSED"] * 2
    assert shelf.records[0].reason == "rank 1 block 0: read of poison"
    assert shelf.records[0].kernel is not None, "a failed case says which code failed"
    assert len(shelf.worlds) == 3


def test_an_error_of_our_own_is_a_failed_case_with_its_place():
    shelf = done(Script({"one_shot": KeyError("lost")}), "sizes=[8,16]")
    assert [str(record.status) for record in shelf.records] == ["FAILED", "PASSED"] * 2
    assert shelf.records[0].reason.startswith("KeyError: 'lost' (tests/runner/conftest.py:")


def test_a_kernel_that_does_not_compile_or_a_world_that_can_not_be_made_fails_each_case():
    job = job_of("sizes=8")
    shelf = shelf_for(job)
    run_job(job, shelf, means_with(compiled=Mock(side_effect=RuntimeError("compiling failed: no such instruction"))))
    assert [str(record.status) for record in shelf.records] == ["FAILED", "FAILED"]
    assert "no such instruction" in shelf.records[0].reason
    assert shelf.records[0].kernel is None
    shelf = shelf_for(job)
    shelf.world = Mock(side_effect=MemoryError("no memory for 2 heaps"))  # type: ignore[method-assign]
    run_job(job, shelf, Script().tools().means)
    assert [str(record.status) for record in shelf.records] == ["FAILED", "FAILED"]
    assert "no memory for 2 heaps" in shelf.records[0].reason
    assert shelf.records[0].fabric is None


def test_a_cases_time_is_its_own(monkeypatch):
    """Not that of imports, nor that of a world's start, which alone moves the clock here."""
    clock, ready = [100.0], list[datetime]()
    monkeypatch.setattr("runner.command.attempt.time", SimpleNamespace(monotonic=lambda: clock[0]))

    job = job_of("sizes=[8]")
    shelf = shelf_for(job)
    world = shelf.world

    def slowly():
        clock[0] += 50.0
        time.sleep(0.05)
        made = world()
        ready.append(datetime.now(UTC))
        return made

    shelf.world = slowly  # type: ignore[method-assign]
    run_job(job, shelf, Script().tools().means)
    assert {record.status for record in shelf.records} == {"PASSED"}
    for record, at in zip(shelf.records, ready, strict=True):
        begun = datetime.fromisoformat(record.started)
        assert (begun - at).total_seconds() > -0.002, "a record's times are in milliseconds"
    assert {record.duration_s for record in shelf.records} == {0.0}


@pytest.mark.slow
def test_the_first_case_imports_nothing_of_this_project(tmp_path):
    """Torch and the simulator take seconds to import: --plan would count them for each case of that kind."""
    program = """
import sys
from runner.command import job
from runner.__main__ import main
run, new = job.Attempt.run, []
def watched(self, *given):
    before = set(sys.modules)
    run(self, *given)
    new.append(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in PACKAGES))
PACKAGES = ("cases", "kernels", "memory", "reports", "runner", "simulator", "torch")
job.Attempt.run = watched
print(main(sys.argv[1:]), new)
"""
    wanted = ["sizes=[8]", "algorithms=[one_shot]", "fabric=simulator", "track=none", f"cache_dir={tmp_path}/cache"]
    assert main([*wanted, f"records={tmp_path}/first"]) == 0  # so that nothing is left to be compiled
    said = ran("-c", program, *wanted, cwd=tmp_path)
    assert said.stdout.splitlines()[-1] == "0 [[]]"


def test_an_interrupt_and_a_full_disk_get_out():
    job = job_of("sizes=8")
    shelf = shelf_for(job)
    with pytest.raises(KeyboardInterrupt):
        run_job(job, shelf, Script({"two_shot": KeyboardInterrupt()}).tools().means)
    assert [record.case.algorithm for record in shelf.records] == ["one_shot"]
    with pytest.raises(StoreError, match="no room"):
        run_job(job, shelf_for(job, full_after=1), Script().tools().means)


def test_the_compilers_versions_are_those_that_ptx_and_cubin_name():
    case = cases_of(job_of("sizes=[8]").request)[0]
    ptx = "// Cuda compilation tools, release 13.4, V13.4.59\n.version 9.4\n"
    cubin = b"\x7fELF\0ptxas\0Cuda compilation tools, release 13.5, V13.5.7\0"
    spec = find(case.name)
    known = kernel_info(spec, case, Executable(case.name, "kernel", "sm_90a", ptx, "sha256:0", cubin))
    assert known.compiler.endswith(", NVVM 13.4.59, ptxas 13.5.7")
    assert known.compiler.startswith("nvidia-cutlass-dsl ")
    unknown = kernel_info(spec, case, Executable(case.name, "kernel", "sm_90a", ".version 9.4\n", "sha256:0"))
    assert "," not in unknown.compiler
