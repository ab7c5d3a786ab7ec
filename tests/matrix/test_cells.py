"""The matrix is all that it says, and the sample covers what it promises."""

import dataclasses
from collections import Counter

import pytest

from cases import ops
from kernels import catalogue
from kernels.matrix.codes import codes
from tests.matrix.__main__ import main, proof
from tests.matrix.cells import ARCHS, WORLD_SIZES, Row, all_rows, arch_of, case_of, cells, refusal, sample
from tests.matrix.results import Outcome

REDUCED = 66
"""Types, accumulators and reductions that belong together: 4 + 6 + 6 + 6 + 2 * 8 of floats, 4 * 7 of integers."""

MOVED = 11


def test_a_kernel_has_a_cell_for_all_that_belongs_together():
    found = [cell.name for cell in cells()]
    for spec in catalogue.SPECS:
        expected = REDUCED if ops.collective(spec.op).reduces else MOVED
        assert found.count(spec.name) == expected, spec.name
    assert len(set(cells())) == len(found)


def test_only_8_bit_floats_through_the_switch_need_another_architecture():
    elsewhere = {cell for cell in cells() if arch_of(cell) != ARCHS[0]}
    assert elsewhere
    assert all("multimem" in cell.name and cell.dtype.startswith("float8") for cell in elsewhere)


def test_the_sample_has_every_kernel_and_every_value_of_an_axis():
    rows = sample()
    assert {row.name for row in rows} == {spec.name for spec in catalogue.SPECS}
    assert {row.world_size for row in rows} == set(WORLD_SIZES)
    assert {row.placement for row in rows} == {"in_place", "out_of_place"}
    assert {row.shape for row in rows} == {"odd", "whole", "large", "few", "none", "long"}


def test_whole_rows_are_other_cases_each():
    specs = tuple(spec for spec in catalogue.SPECS if spec.op in ("barrier", "reduce"))
    found = all_rows(specs, (1, 3))
    ids = [case_of(row).id for row in found]
    assert len(set(ids)) == len(ids)
    roots = {case_of(row).root for row in found if row.name == "reduce/pull" and row.world_size == 3}
    assert roots == {0, 1, 2}
    assert {case_of(row).offset > 0 for row in found if row.name == "reduce/pull"} == {True, False}
    assert 0 in {case_of(row).size_bytes for row in found}


def test_few_rows_are_some_of_all():
    specs = (catalogue.find("reduce/pull"), catalogue.find("barrier/peers"))
    few, whole = ({case_of(row).id for row in all_rows(specs, (4,), few)} for few in (True, False))
    assert few < whole
    assert len(few) == 3 * REDUCED + 1 + 10, "a barrier's token, and its ten refused dtypes"


ROW = Row("all_reduce/one_shot", "float32", "native", "sum", 2, "exact", "out_of_place", "few", "first")


def test_refused_cells_are_these():
    """By kernel: what multimem has no form for, integers that have no value to spare, and all but a barrier's token."""
    refused = Counter(cell.name for cell in cells() if refusal(_plain(cell), arch_of(cell)) is not None)
    switched = [
        "all_reduce/multimem_one_shot",
        "all_reduce/multimem_two_shot",
        "reduce_scatter/multimem",
        "reduce/multimem",
    ]
    assert refused == {
        **dict.fromkeys((f"all_reduce/{one}lamport" for one in ("", "two_shot_")), 28),
        **dict.fromkeys(("reduce_scatter/lamport", "reduce/lamport"), 28),
        **dict.fromkeys(("barrier/peers", "barrier/push", "barrier/multimem"), 10),
        **dict.fromkeys(switched, 8),
    }


def _plain(cell):
    spec = catalogue.find(cell.name)
    values = (cell.name, cell.dtype, cell.accumulator, cell.reduction)
    return case_of(Row(*values, 1, "exact", spec.placements[0], "few", "first"))


def test_a_proof_counts_what_passed():
    row = dataclasses.replace(ROW, name="barrier/peers")
    outcomes = [Outcome(row, "a", "PASSED", "", "1"), Outcome(row, "b", "REFUSED", "why")]
    made = proof(outcomes, "simulator")
    tally = made.specs["barrier/peers"]
    assert (tally.passed, tally.refused, tally.world_sizes) == (1, 1, (2,))
    assert tally.code == codes()["barrier/peers"].code
    assert list(made.specs) == ["barrier/peers"]


@pytest.mark.parametrize(
    "line",
    [
        "--kernel nope",
        "--gpus",
        "--gpus --world-size 4",
        "--gpus --share-gpus",
        "--share-gpus",
        "--results list.json",
        "--compare gone.json list.json",
    ],
)
def test_a_wrong_request_is_one_line_before_anything_is_compiled(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("tests.matrix.__main__._run", lambda *given: pytest.fail("something ran"))
    (tmp_path / "list.json").write_text("[]")
    assert main(line.split()) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("status", "code"), [("PASSED", 0), ("REFUSED", 1), ("WRONG", 1), ("FAILED", 1)])
def test_the_command_counts_and_ends_with(status, code, monkeypatch, capsys):
    outcomes = [[Outcome(ROW, "a", status, "the reason", "1")]]
    monkeypatch.setattr("tests.matrix.__main__._rows", lambda options: [ROW])
    monkeypatch.setattr("tests.matrix.__main__._run", lambda *given: iter(outcomes))
    assert main(["--kernel", "all_reduce/one_shot", "--world-size", "2"]) == code
    said = capsys.readouterr().out
    counts = {"PASSED": "1 passed, 0 refused, 0 bad", "REFUSED": "0 passed, 1 refused, 0 bad"}
    assert ("all was refused" in said) == (status == "REFUSED")
    assert f"1 cases: {counts.get(status, '0 passed, 0 refused, 1 bad')}" in said
    assert ("the reason" in said) == (status in ("WRONG", "FAILED"))
