"""The key counts in the command: what it asks for, what records and tables keep of it, and who refuses it."""

import json

import pytest

import symlab as api
from cases.record.record import from_json
from reports.table.compare import heading, split
from reports.table.table import sections
from symlab.command import main as command
from tests.golden import same_text
from tests.reports.synthetic import record, with_case
from tests.runner.conftest import refusals

SWEPT = ("-m", "op=all_to_all_v", "counts=uniform,skewed,zeros", "world_size=4", "sizes=[1K]", "algorithms=[push]")


def test_each_of_swept_counts_is_a_case_and_a_section_of_its_own(symlab):
    done = symlab(*SWEPT)
    assert done.code == 0
    assert [record["case"].get("counts") for record in done.records] == [None, "skewed", "zeros"]
    assert [record["id"].partition("-s0")[2] for record in done.records] == ["", "-counts_skewed", "-counts_zeros"]
    read = [from_json(json.dumps(record)) for record in done.records]
    plain = "all_to_all_v float32, moves data, 4 ranks"
    told = [f"{plain}, counts {one}, normal inputs" for one in ("uniform", "skewed", "zeros")]
    assert [heading(one) for one in read] == [f"{plain}, normal inputs", *told[1:]]
    assert [section.heading for section in sections(read)] == told
    assert set(told) <= set(done.out.splitlines())


def test_of_timed_counts_the_usual_ones_are_named_beside_others():
    moves = {"op": "all_to_all_v", "accumulator": "none", "reduction": "none"}
    swept = [with_case(record(), **moves, counts=one) for one in ("uniform", "skewed")]
    headings = [section.heading for section in split(swept)[0]]
    assert ["counts uniform" in headings[0], "counts skewed" in headings[1]] == [True, True]
    assert "counts" not in split(swept[:1])[0][0].heading


def test_counts_that_an_op_has_not_end_in_a_line():
    same_text(refusals("op=all_to_all counts=zeros / op=barrier counts=skewed / op=all_to_all_v counts=even"))


@pytest.mark.parametrize(
    ("sizes", "same"), [("[1,6,4K]", "; 1 and 6 became 0"), ("[8,14,4K]", "; 8 and 14 became 8"), ("[14,4K]", "")]
)
def test_sizes_that_became_the_same_are_named(symlab, sizes, same):
    given = ("op=all_to_all_v", "counts=skewed", "world_size=4", "dtype=bfloat16", "algorithms=[push]")
    line = "sizes: rounded down so that each rank's total is divisible by the number of ranks"
    assert f"{line}{same}" in symlab(*given, f"sizes={sizes}").out.splitlines()


@pytest.mark.slow
def test_a_kept_case_with_counts_is_replayed_to_the_bit(tmp_path, compile_cache):
    where = [f"records={tmp_path / 'records'}", f"cache_dir={compile_cache}", "track=none"]
    given = ["op=all_to_all_v", "counts=zeros", "world_size=3", "sizes=[300]", "algorithms=[push]", "check.races=true"]
    assert command(["run", *given, *where]) == 0
    (record,) = api.records(tmp_path / "records")
    assert (record.case.counts, str(record.status), record.findings) == ("zeros", "PASSED", ())
    assert record.check.elements == 2 * 3 * 75
    (path,) = (tmp_path / "records").glob("*/*counts_zeros*.json")
    assert command(["replay", str(path), "--records", str(tmp_path / "again")]) == 0
