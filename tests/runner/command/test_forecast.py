"""--plan: the cases, refusals, memory and time that it says, and that it creates nothing."""

import json
import shutil
from pathlib import Path

import pytest

from reports.table.text import MAX_LINES
from runner.command.durations import durations_in
from runner.command.forecast import duration_text, plan_text
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


def test_a_plan_names_cases_refusals_memory_and_time_and_creates_nothing(symlab, script, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = ["algorithms=[one_shot,multimem_one_shot]", "sizes=[1K,4K]", "fabric=simulator", "fabric.multicast=false"]
    done = symlab("--plan", *lines, "cache_dir=cache", "records=out/records")
    assert (done.code, done.err) == (0, "")
    same_text(done.out, r"[\d.]+G is available", r"available memory is unknown")
    assert script.ran == script.worlds == []
    assert list(done.folder.iterdir()) == []


@pytest.mark.slow
def test_the_time_is_that_of_earlier_records_of_the_same_kind(symlab):
    lines = ["sizes=[1K,4K]", "algorithms=[one_shot,two_shot]", "fabric=simulator"]
    for _ in range(2):
        assert symlab(*lines).code == 0
    for path in Path("records").glob("*/all_reduce-*.json"):
        document = json.loads(path.read_text())
        document["duration_s"] = 30.0 if "4096B" in path.name else 2.0
        path.write_text(json.dumps(document))
    before = sorted(Path().rglob("*"))
    out = symlab("--plan", *lines).out.splitlines()
    assert out[-2] == ("time: about 1 min 4 s (from 8 records of such cases in records/; starting up is not included)")
    assert [line.split()[-2:] for line in out if " runs " in line] == [["2.0", "s"]] * 2 + [["30", "s"]] * 2
    for other in (
        "dtype=float16",
        "world_size=3",
        "launches=3",
        "inputs=edge",
        "check=false",
        "fabric.schedule=random",
    ):
        assert symlab("--plan", *lines, other).out.splitlines()[-2] == (
            "time: unknown, no record in records/ is of these cases"
        ), other
    some = symlab("--plan", *lines, "sizes=[4K,8K]").out.splitlines()
    assert some[-2].startswith("time: about 1 min 0 s for 2 of 4 cases; unknown for 2 (from 4 records of such cases")
    assert symlab("--plan", *lines, "seed=7").out.splitlines()[-2].startswith("time: about 1 min 4 s (from 8 records")
    assert sorted(Path().rglob("*")) == before


def test_what_was_timed_together_shares_its_time(tmp_path, symlab):
    assert symlab("sizes=[1K]", "fabric=simulator").code == 0
    for number, path in enumerate(sorted(Path("records").glob("*/all_reduce-*.json"))):
        document = json.loads(path.read_text())
        document["timing"] = {"median_us": 1.0}
        document["fabric"] |= {"simulated": False, "name": "nvshmem"}
        document["started"] = f"2026-01-01T00:00:{10 * number:02d}.000+00:00"
        document["ended"] = "2026-01-01T00:00:50.000+00:00"
        path.write_text(json.dumps(document))
    durations = durations_in(Path("records"))
    assert durations.records == 2
    assert sorted(durations.seconds.values()) == [(25.0,), (25.0,)]


def test_files_that_are_no_records_and_cases_that_failed_say_nothing_of_the_time(symlab, script):
    script.outcomes = {"two_shot": RuntimeError("broken")}
    assert symlab("sizes=[1K]", "fabric=simulator").code == 1
    (folder,) = Path("records").iterdir()
    for name, text in (("a", "{"), ("b", "[]"), ("c", '"x"'), ("d", '{"status": "PASSED"}'), ("e", "[" * 9000)):
        (folder / f"{name}.json").write_text(text)
    (folder / "latin.json").write_bytes(b"\xff")
    (folder / "folder.json").mkdir()
    (folder / "gone.json").symlink_to("nowhere")
    (Path("records") / "notes.txt").write_text("")
    assert durations_in(Path("records")).records == 1
    shutil.rmtree("records")
    assert durations_in(Path("records")).records == 0


@pytest.mark.slow
def test_many_cases_are_grouped():
    command = planned("world_size=range(2,32)", "seed=1,2", "algorithms=[one_shot,ll]", "sizes=[1K,1M]", multirun=True)
    lines = said(command)
    assert command.case_count == 240
    rows = [line.split() for line in lines if line.startswith("  one_shot ") or line.startswith("  ll ")]
    assert len(rows) == MAX_LINES
    assert rows[0] == ["one_shot", "2", "1K", "to", "1M", "4", "0", "unknown"]
    assert rows[1] == ["ll", "2", "1K", "to", "1M", "4", "2", "[1]", "unknown"]
    refused = [line for line in lines if line.startswith("[")]
    assert [line.split()[2] for line in refused] == ["2", "58"]  # ll takes up to 512 KiB of 2 ranks, 256 KiB of more
    wider = planned("world_size=range(2,33)", "algorithms=[one_shot,ll]", "sizes=[1K,1M]", multirun=True)
    rows = [line.split() for line in said(wider) if line.startswith(("  one_shot ", "  ll "))]
    assert rows == [
        ["one_shot", "2", "to", "32", "1K", "to", "1M", "62", "0", "unknown"],
        ["ll", "2", "to", "32", "1K", "to", "1M", "62", "31", "[1,", "2]", "unknown"],
    ]


def test_on_gpus_the_heap_is_named_and_only_what_the_catalogue_refuses():
    machine = HostOffer(gpu_count=8, driver_problem="", gpu_extra=True)
    arguments = ["algorithms=[one_shot,ll,multimem_one_shot]", "baselines=[nccl,torch/one_shot]", "dtype=float16"]
    lines = said(planned("fabric=nvshmem", "sizes=[1M]", *arguments, machine=machine))
    expected = {line.split()[0]: "refused" if "refused [" in line else "runs" for line in lines if " 1M " in line}
    assert expected == {
        "one_shot": "runs",
        "ll": "refused",
        "multimem_one_shot": "runs",
        "nccl": "runs",
        "torch/one_shot": "refused",
    }
    (memory,) = [line for line in lines if line.startswith("memory: ")]
    assert "of symmetric heap a rank" in memory
    assert "host memory" not in memory


def test_a_plan_of_which_nothing_can_run_says_so_and_ends_with_two(symlab):
    done = symlab("--plan", "algorithms=[ll]", "sizes=[1M]", "fabric=simulator")
    assert done.code == 2
    assert "refused [1]" in done.out
    same_text(done.err)
    assert list(done.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (48.4, "48 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_times_for_people(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize("columns", [40, 80])
def test_a_plan_fits_its_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = said(planned("placement=both", "algorithms=all", "sizes=[1K,1M]"))
    assert max(map(len, lines)) <= columns
    assert any("multimem_two_shot" in line for line in lines)
