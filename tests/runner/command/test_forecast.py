"""--plan: the cases, refusals, memory that it says, and that it creates nothing."""

import pytest

from reports.table.text import MAX_LINES
from runner.command.forecast import plan_text
from runner.command.heading import headline
from runner.command.plan import prepare
from runner.request.compose import compose_jobs, hydra_over
from runner.world.fabrics import HostOffer
from tests.golden import same_text

GIB = 1 << 30


def planned(*arguments, multirun=False, machine=None):
    with hydra_over():
        jobs = compose_jobs(arguments, multirun)
    return prepare(arguments, jobs, machine=(lambda: machine) if machine else None, memory=lambda: 64 * GIB)


def said(command):
    return plan_text(command, headline(command), memory=lambda: 64 * GIB).splitlines()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_plan_names_cases_refusals_and_memory_and_creates_nothing(symlab, script, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = ["algorithms=[one_shot,multimem_one_shot]", "sizes=[1K,4K]", "fabric=simulator", "fabric.multicast=false"]
    done = symlab("--plan", *lines, "cache_dir=cache", "records=out/records")
    assert (done.code, done.err) == (0, "")
    same_text(done.out, r"[\d.]+G is available", r"available memory is unknown")
    assert script.ran == script.worlds == []
    assert list(done.folder.iterdir()) == []


@pytest.mark.slow
def test_of_many_cases_the_first_are_listed_and_all_refusals_told():
    command = planned("world_size=range(2,32)", "seed=1,2", "algorithms=[one_shot,ll]", "sizes=[1K,1M]", multirun=True)
    lines = said(command)
    assert command.case_count == 240
    assert len([line for line in lines if " one_shot " in line or (" ll " in line and line[:1] != "[")]) == MAX_LINES
    assert f"and {240 - MAX_LINES} more cases" in lines
    refused = [line for line in lines if line.startswith("[")]
    assert [line.split()[2] for line in refused] == ["2", "58"]  # ll takes up to 512 KiB of 2 ranks, 256 KiB of more


def test_on_gpus_the_heap_is_named_and_only_what_the_catalogue_refuses():
    machine = HostOffer(gpu_count=8, driver_problem="", gpu_extra=True)
    arguments = ["algorithms=[one_shot,ll,multimem_one_shot]", "baselines=[nccl,torch/one_shot]", "dtype=float16"]
    lines = said(planned("fabric=nvshmem", "sizes=[1M]", *arguments, machine=machine))
    expected = {line.split()[0]: "refused" if "refused [" in line else "runs" for line in lines if " 1M " in line}
    runs, ends_refused = ("one_shot", "multimem_one_shot", "nccl"), ("ll", "torch/one_shot")
    assert expected == {**dict.fromkeys(runs, "runs"), **dict.fromkeys(ends_refused, "refused")}
    (memory,) = [line for line in lines if line.startswith("memory: ")]
    assert "of symmetric heap a rank" in memory
    assert "host memory" not in memory


def test_a_plan_of_which_nothing_can_run_says_so_and_ends_with_two(symlab):
    done = symlab("--plan", "algorithms=[ll]", "sizes=[1M]", "fabric=simulator")
    assert done.code == 2
    assert "refused [1]" in done.out
    same_text(done.err)
    assert list(done.folder.iterdir()) == []


@pytest.mark.parametrize("columns", [48, 80])
def test_a_plan_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = said(planned("placement=both", "algorithms=all", "sizes=[1K,1M]"))
    assert max(map(len, lines)) <= columns
    assert any("multimem_two_shot" in line for line in lines)
