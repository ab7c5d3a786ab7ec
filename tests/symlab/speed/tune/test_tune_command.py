"""`symlab tune` as a command: wrong requests, machines without GPUs, tables that are there already, time that ends."""

import pytest

from runner.request_error import RequestError
from symlab.command import main
from symlab.speed.tuned.table import read
from tests.golden import refused, same_text
from tests.symlab.speed.tune.test_tune_on_gpus import tuned
from tests.symlab.speed.tuned.test_tuned_table import TABLE


@pytest.mark.slow
def test_other_entries_of_a_table_stay(tmp_path):
    for sizes in ("sizes=[1K]", "sizes=[4K]"):
        assert tuned(tmp_path, sizes)[0] == 0
    assert [one.size_bytes for one in read(tmp_path / "h200.json").entries] == [1024, 4096]


def test_no_time_leaves_candidates_out_and_the_table_says_so(tmp_path):
    assert tuned(tmp_path, "sizes=[4K]", seconds=1e-9)[0] == 0
    (one,) = read(tmp_path / "h200.json").entries
    assert one.searched.timed == 15, "the first group"
    assert one.searched.left_out > 3


@pytest.mark.parametrize("name", [".", "none/t.json", "hostile.json", "h100.json"])
def test_a_place_that_can_not_take_the_table_is_refused_before_the_search(name, tmp_path):
    (tmp_path / "hostile.json").write_text('{"symlab_tuned": 1, "entries": [')
    (tmp_path / "h100.json").write_text(TABLE.text().replace("NVIDIA H200", "NVIDIA H100"))
    with refused(RequestError, str(tmp_path)):
        tuned(tmp_path, "sizes=[1K]", output=tmp_path / name)
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize(
    "words",
    [
        ["algorithms=[oneshot]"],
        ["algorithms=[one_shot@t128b4l8]"],
        ["op=all_to_all_v", "counts=zeros"],
        ["stress=late_rank"],
        ["check=false"],
        ["timing.mode=none"],
        ["--regret", "records", "op=all_reduce"],
        ["--seconds", "nan"],
        ["--unseen", "--exhaustive"],
        ["--sample", "3", "--unseen"],
        ["dtype=bfloat16"],
    ],
    ids=" ".join,
)
def test_a_wrong_request_is_one_line(words, tmp_path, monkeypatch, capsys):
    """The last one is right, and would be simulated."""
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "fabric=simulator", "sizes=[1K]", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    same_text(said)
    assert list(tmp_path.iterdir()) == []


def test_that_it_needs_gpus_is_said_before_what_a_simulated_heap_lacks(tmp_path, monkeypatch, capsys):
    """Its own sizes go up to 256M."""
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "fabric=simulator", "op=all_reduce", "-o", "x.json"]) == 2
    said = capsys.readouterr().err
    assert "GPUs" in said
    same_text(said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", [[], ["--seconds", "60"]], ids=" ".join)
def test_a_search_without_an_op_says_what_it_would_do_and_starts_nothing(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *line]) == 2
    said = capsys.readouterr()
    same_text(said.err)
    assert (said.out, list(tmp_path.iterdir())) == ("", [])
