"""algorithms=best in requests: which table, what is refused, and what a case of it is called."""

from dataclasses import replace

import pytest

from reports.mlflow_values import series_of
from reports.table.compare import contestants, rows, split
from runner.__main__ import main
from runner.case.cases import cases_of
from runner.command.heading import headline
from runner.command.plan import prepare
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer
from symlab.speed import best
from symlab.speed.best import chooser_for
from tests.golden import refused, same_text
from tests.reports.synthetic import record, with_request
from tests.runner.conftest import asked, on_its_fabric
from tests.symlab.speed.tuned.test_tuned_table import H200, TABLE, case


def fabric(**changes):
    (found,) = asked("fabric=simulator")
    return replace(found.fabric, **changes)


def kept(folder, name, **changes):
    path = folder / name
    path.write_text(replace(TABLE, **changes).text())
    return path


LINE = ["op=all_reduce", "sizes=[1K]", "fabric=simulator", "track=none"]


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """said(*arguments): the one line of a command that is refused, in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def go(*arguments):
        assert main([*LINE, *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return go


def test_there_is_no_table_yet_and_one_line_says_how_to_make_one(tmp_path, monkeypatch, said):
    monkeypatch.setattr(best, "tables_in", lambda folder: ())
    monkeypatch.setattr(best, "place_for", lambda gpu, folder: tmp_path / "none.json")
    same_text(said("algorithms=best"))
    same_text(said("algorithms=[two_shot@t500b4l8]"))
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_the_gpu_comes_first_then_the_nearest(tmp_path, monkeypatch):
    kept(tmp_path, "h200.json")
    kept(tmp_path, "b200.json", gpu="NVIDIA B200", arch="sm_100a")
    real = fabric(name=FabricName.nvshmem)
    for gpu, wanted in ((H200, H200), ("NVIDIA B200", "NVIDIA B200"), ("NVIDIA H20", H200)):
        monkeypatch.setattr(best, "gpu_name", lambda gpu=gpu: gpu)
        found = chooser_for("auto", real, "all_reduce", tmp_path)
        assert found.table.gpu == wanted
        assert (found.choice(case(4096)).nearest == "") == (gpu == wanted)
    assert "searched on NVIDIA H200, not on NVIDIA H20" in found.choice(case(4096)).nearest


def test_a_table_without_the_op_says_how_to_make_one(tmp_path):
    chooser = chooser_for(str(kept(tmp_path, "h100.json")), fabric(), "all_reduce")
    with refused(RequestError):
        chooser.name_for(replace(case(4096), op="broadcast", reduction="none", accumulator="none"))


@pytest.mark.parametrize("text", [None, "{", TABLE.text().replace("512", "9000", 1)], ids=["missing", "cut", "bounds"])
def test_a_hostile_table_is_one_line(tmp_path, said, text):
    if text is not None:
        (tmp_path / "t.json").write_text(text)
    same_text(said("algorithms=best", "tuned=t.json"))


def request_of(tmp_path, *overrides):
    path = kept(tmp_path, "t.json", gpu="simulated")
    (found,) = asked(" ".join(("op=all_reduce dtype=bfloat16", f"tuned='{path}'", *overrides)))
    return on_its_fabric(found)


def cases(tmp_path, *overrides):
    return [(one.algorithm, one.size_bytes) for one in cases_of(request_of(tmp_path, *overrides))]


def test_a_case_has_the_name_of_what_runs(tmp_path):
    small, large = "lamport@t128b4l8", "two_shot@t512b64l8p"
    assert cases(tmp_path, "algorithms=best", "sizes=[1K,1M]") == [(small, 1024), (large, 1 << 20)]
    beside = cases(tmp_path, "algorithms=[ll,best]", "sizes=[1K,1M]")
    assert beside == [("ll", 1024), (small, 1024), ("ll", 1 << 20), (large, 1 << 20)]
    assert cases(tmp_path, f"algorithms=[best,{small}]", "sizes=[1K]") == [(small, 1024)], "it runs once"


# Audits


def test_best_stands_beside_libraries_on_gpus(tmp_path, monkeypatch):
    """Baselines are what GPUs run by default, and no entry of a table takes their accumulator and placement."""
    monkeypatch.setattr(best, "gpu_name", lambda: H200)
    path = kept(tmp_path, "h200.json")
    lines = ["op=all_reduce", "dtype=bfloat16", "algorithms=best", f"tuned={path}", "sizes=[4K]", "fabric=nvshmem"]
    with hydra_over():
        composed = compose_jobs(lines, False)
    command = prepare(lines, composed, machine=lambda: HostOffer(2, "", True))
    (job,) = command.jobs
    names = [one.algorithm for one in job.cases]
    assert names[0] == chooser_for(str(path), job.request.fabric, "all_reduce").name_for(job.cases[0])
    assert {"nccl", "torch/two_shot"} <= set(names)
    assert f"best: {path} ({H200})" in headline(command)


def test_one_contestant_in_pictures_and_in_mlflow():
    made = [
        with_request(record(name, size), kernel={"chosen": {"by": "best", "algorithm": name}})
        for name, size in (("lamport@t128b4l8", 1024), ("two_shot@t512b64l8p", 4096))
    ]
    records = [*made, record("two_shot@t512b64l8p", 1024), record("nccl", 1024), record("nccl", 4096)]
    (section,), _ = split(records)
    found = contestants(rows(section))
    assert {name: [row.size_bytes for row in own] for name, own in found.items()} == {
        "best": [1024, 4096],
        "two_shot@t512b64l8p": [1024],
        "nccl": [1024, 4096],
    }
    assert {series_of(one) for one in made} == {"0/all_reduce/best"}
    assert series_of(records[2]) == "0/all_reduce/two_shot@t512b64l8p"


@pytest.mark.parametrize("kernel", [None, {}, {"chosen": 5}, {"chosen": {"by": 7}}, {"chosen": {"by": None}}])
def test_what_no_table_chose(kernel):
    made = with_request(record("two_shot@t512b64l8p", 1024), kernel=kernel)
    assert made.request.chosen_by == ""


def test_auto_beside_best_stands_for_all_others(tmp_path):
    def names(algorithms):
        return request_of(tmp_path, f"algorithms={algorithms}", "fabric=simulator", "sizes=[4K]").algorithms

    usual = names("auto")
    assert len(usual) > 3
    assert names("[best,auto]") == ("best", *usual)
    assert names("[two_shot,best,auto]") == ("two_shot", "best", *(name for name in usual if name != "two_shot"))
