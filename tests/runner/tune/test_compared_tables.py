"""Two tables against each other: by records of one world where there are any, and what the search took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.tuned.table import EXHAUSTIVE, MODEL, Entry, Figure, Searched, Table, read
from reports.record.record import Record
from runner.tune.command import Options, tune
from runner.tune.compare import APART, BESIDE, SAME, compared, report
from symlab.command import main
from tests.kernels.tuned.test_tuned_table import H200, TABLE, entry
from tests.reports.synthetic import record, with_case, with_environment
from tests.runner.tune.test_model_first import Invented, ranked

LL, LAMPORT = "ll@t128b4l8", "lamport@t128b4l8"


def searched(name: str, size: int, us: float, how: str = EXHAUSTIVE, seconds: float = 100.0) -> Entry:
    of = Searched(40, 0, 0, how, seconds, "h200" if how == MODEL else "")
    return replace(entry(name, size, size, size, searched=of), choice=Figure(name, us, us, us, 25))


def tables(*pairs: tuple[Entry, Entry]) -> tuple[Table, Table]:
    firsts, seconds = zip(*pairs, strict=True)
    return replace(TABLE, entries=firsts, place="a.json"), replace(TABLE, entries=seconds, place="b.json")


def timed(name: str, size: int, us: Sequence[float], world: int = 0) -> Record:
    made = record(name, size, world_size=2, samples_us=[list(us)] * 2, world=world)
    return with_environment(made, gpus=({"model": H200},) * 2)


def test_choices_are_compared_in_one_world_where_they_ran_in_one() -> None:
    first, second = tables(
        (searched(LL, 1024, 4.0, MODEL, 10.0), searched(LAMPORT, 1024, 3.0)),
        (searched(LL, 4096, 4.0, MODEL, 10.0), searched(LAMPORT, 4096, 3.0)),
        (searched(LL, 8192, 4.0, MODEL, 10.0), searched(LL, 8192, 3.5)),
    )
    records = [
        timed(LL, 1024, [9.0, 2.0] * 5),
        timed(LAMPORT, 1024, [1.0, 1.99] * 5),
        timed(LL, 4096, [1.0] * 5),
        timed(LAMPORT, 4096, [9.0] * 5, world=1),  # not beside it
    ]
    found = compared(first, second, records)
    assert [one.how for one in found] == [BESIDE, APART, SAME]
    assert [one.share for one in found] == pytest.approx([1.99 / 2.0, 0.75, 1.0])
    assert [(one.value, one.other) for one in found] == [(2.0, 1.99), (4.0, 3.0), (4.0, 4.0)]


def test_records_of_other_gpus_and_counts_compare_nothing() -> None:
    first, second = tables((searched(LL, 1024, 4.0), searched(LAMPORT, 1024, 3.0)))
    mine = [timed(LL, 1024, [2.0] * 4), timed(LAMPORT, 1024, [1.0] * 4)]
    others = [
        with_environment(timed(name, 1024, [9.0] * 4, world=1), gpus=({"model": "NVIDIA H100"},))
        for name in (LL, LAMPORT)
    ]
    (found,) = compared(first, second, [*mine, *others])
    assert (found.how, found.value, found.other) == (BESIDE, 2.0, 1.0)
    with pytest.raises(ValueError, match="no record is of NVIDIA H200"):
        compared(first, second, others)
    with pytest.raises(ValueError, match="no record is of NVIDIA H200"):
        compared(first, second, [with_environment(one, gpus=None) for one in mine])
    (found,) = compared(first, second, [with_case(one, op="all_to_all_v", counts="skewed") for one in mine])
    assert found.how == APART


def test_records_of_several_settings_are_not_mixed() -> None:
    first, second = tables((searched(LL, 1024, 4.0), searched(LAMPORT, 1024, 3.0)))
    graph = [timed(LL, 1024, [2.0] * 4), timed(LAMPORT, 1024, [1.0] * 4)]
    eager = [timed(LL, 1024, [8.0] * 4, world=1), timed(LAMPORT, 1024, [9.0] * 4, world=1)]
    eager = [replace(one, timing=replace(one.timing, mode="eager")) for one in eager if one.timing is not None]
    said = r"all_reduce 1K ran with mode=eager, .*root=0 and with mode=graph, .*give records of one"
    with pytest.raises(ValueError, match=said):
        compared(first, second, [*graph, *eager])
    (found,) = compared(first, second, [*graph, eager[0]])
    assert (found.how, found.value) == (BESIDE, 2.0), "one of them beside nothing is not compared"


@pytest.mark.parametrize(
    ("us", "seconds", "is_met"),
    [(3.0, 15.0, True), (3.05, 15.0, True), (3.1, 15.0, False), (3.0, 16.0, False), (2.0, 1.0, True)],
)
def test_the_verdict_is_of_speed_and_of_time(us: float, seconds: float, is_met: bool) -> None:
    first, second = tables((searched(LL, 1024, us, MODEL, seconds), searched(LAMPORT, 1024, 3.0)))
    said, met = report(compared(first, second), "us")
    assert met == is_met
    assert f"the first (model) reaches {3.0 / us:.1%} of the second (exhaustive)" in said
    assert f"in {seconds:.0f}% of its time ({seconds:.0f} s of 100 s)" in said
    assert ("not 98% in 15%" in said) == (not is_met)
    assert "1 of 1 case by figures of two worlds" in said


def test_unknown_time_is_told_and_no_success() -> None:
    first, second = tables((searched(LL, 1024, 3.0, MODEL, 0.0), searched(LAMPORT, 1024, 3.0)))
    said, met = report(compared(first, second), "us")
    assert not met
    assert "in unknown time" in said


def test_tables_that_can_not_be_compared_are_told() -> None:
    first, second = tables((searched(LL, 1024, 3.0), searched(LL, 1024, 3.0)))
    with pytest.raises(ValueError, match=r"a.json is of NVIDIA H200 in us, b.json of NVIDIA H100 in us"):
        compared(first, replace(second, gpu="NVIDIA H100"))
    with pytest.raises(ValueError, match="no case was searched for both a.json and b.json"):
        compared(first, replace(second, entries=(searched(LL, 2048, 3.0),)))


@pytest.mark.slow
def test_the_command_compares_two_searches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exhaustive search finds what this model, which sees no threads, ranks no better than others."""
    asked = "sizes=[1K,16K]"
    ranked(tmp_path, asked, output=tmp_path / "model.json", profiles=Invented(most=3))
    ranked(tmp_path, asked, output=tmp_path / "all.json", exhaustive=True)
    capsys.readouterr()
    places = (tmp_path / "model.json", tmp_path / "all.json")
    assert {one.gpu for one in map(read, places)} == {H200}
    code = tune(Options(compare=places))
    said = capsys.readouterr().out
    assert code in (0, 1)
    assert "the first (model) reaches" in said
    assert "of the second (exhaustive)" in said


def test_with_overrides_both_choices_run_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tables(
        (searched("two_shot@t256b1l8", 1 << 14, 5.0, MODEL, 10.0), searched("two_shot@t256b32l8", 1 << 14, 6.0)),
        (searched("two_shot@t256b1l8", 1 << 16, 5.0, MODEL, 10.0), searched("two_shot@t256b1l8", 1 << 16, 6.0)),
    )
    (tmp_path / "a.json").write_text(first.text())
    (tmp_path / "b.json").write_text(second.text())
    places = (tmp_path / "a.json", tmp_path / "b.json")
    capsys.readouterr()
    code, _, invented = ranked(tmp_path, "sizes=[16K,64K]", compare=places, output=None)
    assert invented.asked == []
    said = capsys.readouterr().out
    assert "one world" in said
    assert "same choice" in said
    assert "two worlds" not in said
    assert code == 0, "this bench has fewer blocks quicker"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compare", "a.json", "none.json"], "none.json: No such file"),
        (["--compare", "a.json", "a.json", "--exhaustive"], "--compare only compares two tables (--compare)"),
        (["--compare", "a.json", "b.json"], "no case was searched for both a.json and b.json"),
        (["--records", "a"], "--records are of two tables' choices (--records)"),
        (["--compare", "a.json", "a.json", "--records", "none"], "none"),
    ],
)
def test_a_wrong_comparison_is_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(TABLE.text())
    (tmp_path / "b.json").write_text(replace(TABLE, entries=(entry(LL, 64, 64, 64),)).text())
    assert main(["tune", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
