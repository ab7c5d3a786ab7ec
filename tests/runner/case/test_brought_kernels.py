"""A kernel from a file of its user's runs, is checked and is recorded like those of the catalogue."""

from dataclasses import replace

import pytest

from cases.case import Case
from cases.record.record import Status
from cases.record.request import RecordedEnvironment, RecordedRequest
from kernels.baselines import BASELINES
from kernels.brought import spec_at
from kernels.catalogue import find, retuned
from kernels.tuning import Step, Tuning
from memory.fabric import Executable
from runner.case.check import merge
from runner.case.contestant import Contestant, spec_for
from runner.case.program import Plan, run_case
from runner.command.job import run_job
from runner.command.means import usual_means
from runner.command.plan import Job
from runner.request.compose import compose_jobs, hydra_over
from runner.world.processes import ProcessWorld
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.kernels.own_kernel import write_ring
from tests.patience import NEVER_S
from tests.runner.conftest import on_its_fabric
from tests.runner.rank_programs import FileOpener
from tests.runner.shelf import Shelf

CASE = Case("send_recv", "ring", "uint8", "none", "none", 5000, 2)
OPTIONS = SimulatorOptions(heap_bytes=1 << 20)


def recorded(case, brought, compile_cache):
    """The record of a job of one case that the brought kernel does."""
    with hydra_over():
        arguments = [f"op={case.op}", "algorithms=all", "world_size=2", f"cache_dir={compile_cache}"]
        (composed,) = compose_jobs(arguments, multirun=False)
    shelf = Shelf(lambda: ThreadWorld(2, OPTIONS))
    request, asked = on_its_fabric(composed.request), RecordedRequest()
    run_job(Job(request, (case,), {}, RecordedEnvironment, asked, (brought,)), shelf, usual_means())
    (record,) = shelf.records
    return record


@pytest.mark.slow
def test_a_defect_in_a_helper_of_the_file_is_another_code_and_is_caught(tmp_path, compile_cache):
    right = recorded(CASE, spec_at(f"{write_ring(tmp_path / 'right')}:SPEC"), compile_cache)
    file = write_ring(tmp_path / "wrong")
    helper = file.with_name("steps.py")
    text = helper.read_text()
    assert "rank, 1 %" in text
    helper.write_text(text.replace("rank, 1 %", "rank, 0 %"))  # to itself
    wrong = recorded(CASE, spec_at(f"{file}:SPEC"), compile_cache)
    assert (right.status, wrong.status) == (Status.PASSED, Status.WRONG)
    assert wrong.kernel.source_digest != right.kernel.source_digest
    assert wrong.kernel.ptx_digest != right.kernel.ptx_digest


def test_a_trial_tuning_stands_in_for_the_catalogues(compile_cache):
    trial = retuned("all_reduce/one_shot", Tuning((Step(threads=96, blocks=1, loads_in_flight=1, reason="a trial"),)))
    case = Case("all_reduce", "one_shot", "float32", "float32", "sum", 1 << 14, 2)
    record = recorded(case, trial, compile_cache)
    assert record.status is Status.PASSED
    assert (record.kernel.grid, record.kernel.block) == (1, 96)
    assert find(case.name).launch(case).block[0] != 96


def test_who_does_a_case_is_looked_up_once(tmp_path):
    brought = spec_at(f"{write_ring(tmp_path)}:SPEC")
    assert spec_for(CASE, (brought,)) is brought
    assert spec_for(replace(CASE, algorithm="push"), (brought,)) is find("send_recv/push")
    assert spec_for(replace(CASE, algorithm="nccl")) is BASELINES[0]
    with refused():
        spec_for(CASE)


@pytest.mark.parametrize(
    ("spec", "compiled"),
    [
        (find("send_recv/pull"), "send_recv/pull"),
        (BASELINES[0], None),
        (None, None),
        (None, "send_recv/pull"),
        (replace(BASELINES[0], algorithm="ring"), "ring"),
    ],
    ids=["another spec", "another library", "no executable", "another executable", "a library's executable"],
)
def test_what_a_contestant_is_made_of_belongs_together(tmp_path, spec, compiled):
    made = None if compiled is None else Executable(compiled, "kernel", "none", "", "sha256:0")
    with refused():
        Contestant(CASE, spec or spec_at(f"{write_ring(tmp_path)}:SPEC"), made)


@pytest.mark.slow
def test_rank_processes_run_a_file_and_refuse_one_that_changed(tmp_path):
    """Over the fabric of files, whose kernels are Python: what binds, launches and checks is what runs on GPUs."""
    file = write_ring(tmp_path / "my")
    spec = spec_at(f"{file}:TRIAL")
    plan = Plan(CASE, spec, Executable(spec.name, "ring_shift", "none", "", "sha256:0"), between=0)
    heaps = tmp_path / "heaps"
    heaps.mkdir()
    world = ProcessWorld(2, FileOpener(str(heaps)))
    try:
        outcomes = world.run(run_case, plan, NEVER_S)
        check = merge(CASE, spec, [outcome.check for outcome in outcomes if outcome.check is not None])
        assert (check.elements, check.wrong, check.faults) == (2 * 2 * 5000, 0, ())
    finally:
        world.close()
    file.write_text(file.read_text() + "\n")
    world = ProcessWorld(2, FileOpener(str(heaps)))
    try:
        with pytest.raises(WorldFailure, match=r"my/ring\.py:TRIAL or what it imports changed after it was first"):
            world.run(run_case, plan, NEVER_S)
    finally:
        world.close()
