"""The matrix is all that it says, and the sample covers what it promises."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import pytest

from cases import ops
from cases.case import Case
from kernels import catalogue
from kernels.matrix.codes import codes
from tests.golden import same_text
from tests.matrix import gpus
from tests.matrix.__main__ import compared, main, proof
from tests.matrix.cells import (
    ARCHS,
    PLACEMENTS,
    WORLD_SIZES,
    Cell,
    Row,
    all_rows,
    arch_of,
    axes,
    case_of,
    cells,
    pairs,
    refusal,
    sample,
)
from tests.matrix.gpus import machine, world_sizes
from tests.matrix.results import Outcome

REDUCED = 66
"""Types, accumulators and reductions that belong together: 4 + 6 + 6 + 6 + 2 * 8 of floats, 4 * 7 of integers."""

MOVED = 11


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return sample()


def test_a_kernel_has_a_cell_for_all_that_belongs_together() -> None:
    found = [cell.name for cell in cells()]
    for spec in catalogue.SPECS:
        expected = REDUCED if ops.collective(spec.op).reduces else MOVED
        assert found.count(spec.name) == expected, spec.name
    assert len(set(cells())) == len(found)


@pytest.mark.slow
def test_the_sample_holds_every_pair_of_values_that_any_row_holds(rows: list[Row]) -> None:
    """Said again in another way: over all rows that a kernel takes, by trying them."""
    held = set().union(*(pairs(row) for row in rows))
    missing = []
    for cell in cells():
        values = axes(cell)
        for one, other in itertools.combinations(sorted(values), 2):
            for left, right in itertools.product(values[one], values[other]):
                if (one, left, other, right) not in held and _can_be(cell, values, {one: left, other: right}):
                    missing.append((one, left, other, right))
    assert not missing[:5]
    assert {row.name for row in rows} == {spec.name for spec in catalogue.SPECS}
    assert {row.world_size for row in rows} == set(WORLD_SIZES)
    assert {row.placement for row in rows} == set(PLACEMENTS)


def _can_be(cell: object, values: dict[str, tuple[object, ...]], fixed: dict[str, object]) -> bool:
    """Whether some row of the cell with these values is run, and not refused."""
    free = {name: (fixed[name],) if name in fixed else options for name, options in values.items()}
    for chosen in itertools.product(*free.values()):
        row = Row(**dict(zip(free, chosen, strict=True)))  # type: ignore[arg-type]
        if (row.shape == "long" and row.world_size > 8) or (row.shape == "large" and row.world_size not in (2, 3, 4)):
            continue
        if refusal(case_of(row), arch_of(cell)) is None:  # type: ignore[arg-type]
            return True
    return False


@pytest.mark.slow
def test_no_row_of_the_sample_is_refused(rows: list[Row]) -> None:
    assert all(refusal(case_of(row), arch) is None for row in rows for arch in [_arch(row)])


def _arch(row: Row) -> str:
    return arch_of(Cell(row.name, row.dtype, row.accumulator, row.reduction))


def test_only_8_bit_floats_through_the_switch_need_another_architecture() -> None:
    elsewhere = {cell for cell in cells() if arch_of(cell) != ARCHS[0]}
    assert elsewhere
    assert all("multimem" in cell.name and cell.dtype.startswith("float8") for cell in elsewhere)


def test_whole_rows_are_other_cases_each() -> None:
    specs = tuple(spec for spec in catalogue.SPECS if spec.op in ("barrier", "reduce"))
    found = all_rows(specs, (1, 3))
    ids = [case_of(row).id for row in found]
    assert len(set(ids)) == len(ids)
    roots = {case_of(row).root for row in found if row.name == "reduce/pull" and row.world_size == 3}
    assert roots == {0, 1, 2}
    assert {case_of(row).offset > 0 for row in found if row.name == "reduce/pull"} == {True, False}
    assert 0 in {case_of(row).size_bytes for row in found}


def test_few_rows_are_some_of_all() -> None:
    specs = (catalogue.find("reduce/pull"), catalogue.find("barrier/peers"))
    few, whole = ({case_of(row).id for row in all_rows(specs, (4,), few)} for few in (True, False))
    assert few < whole
    assert len(few) == 3 * REDUCED + 1 + 10, "a barrier's token, and its ten refused dtypes"


ROW = Row("all_reduce/one_shot", "float32", "native", "sum", 2, "exact", "out_of_place", "few", "first")


def test_other_bits_than_expected_are_wrong() -> None:
    right = Outcome(ROW, "a", "PASSED", "", "12")
    assert [one.status for one in compared([right], {"a": "12"})] == ["PASSED"]
    assert [one.status for one in compared([right], {"a": "13"})] == ["WRONG"]
    assert [one.status for one in compared([right], {})] == ["WRONG"]
    refused = Outcome(ROW, "b", "REFUSED", "why")
    assert compared([refused], {}) == [refused]
    assert [one.status for one in compared([refused], {"b": "12"})] == ["WRONG"]


def test_refused_cells_are_these() -> None:
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


def _plain(cell: Cell) -> Case:
    spec = catalogue.find(cell.name)
    values = (cell.name, cell.dtype, cell.accumulator, cell.reduction)
    return case_of(Row(*values, 1, "exact", spec.placements[0], "few", "first"))


def test_a_proof_counts_what_passed() -> None:
    row = dataclasses.replace(ROW, name="barrier/peers")
    outcomes = [Outcome(row, "a", "PASSED", "", "1"), Outcome(row, "b", "REFUSED", "why")]
    made = proof(outcomes, "simulator")
    tally = made.specs["barrier/peers"]
    assert (tally.passed, tally.refused, tally.world_sizes) == (1, 1, (2,))
    assert tally.code == codes()["barrier/peers"].code
    assert list(made.specs) == ["barrier/peers"]


def test_the_commit_of_a_proof_is_gits_and_what_was_said_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proof([], "simulator", "0123abc").commit not in ("0123abc", "unknown")
    monkeypatch.setattr("tests.matrix.__main__.ROOT", tmp_path)
    assert proof([], "simulator", "0123abc").commit == "0123abc"
    assert proof([], "simulator").commit == "unknown"


@pytest.mark.slow
def test_a_wrong_request_is_one_line_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("tests.matrix.__main__._run", lambda *given: pytest.fail("something ran"))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "folder").mkdir()
    lines = (
        *("--kernel nope", "--kernel all_reduce/one_shott", "--gpus", "--gpus --world-size 4", "--gpus --share-gpus"),
        *("--gpus --share-gpus --world-size 2", "--share-gpus", "--world-size 0", "--jobs 0"),
        *("--sample --world-size 71", "--compare gone.json", "--compare deep.json"),
        *("--compare list.json", "--proof folder", "--results folder", "--results list.json", "--again"),
        *("--seconds 0", "--seconds nan"),
        *("--compare gone.json list.json", "--compare a.json b.json --gpus"),
        *(f"--compare one.json other.json {option}" for option in ("--again", "--sample")),
    )
    assert [main(line.split()) for line in lines] == [2] * len(lines)
    said = capsys.readouterr().err
    assert said.count("\n") == said.count("tests.matrix: error: ") == len(lines)
    kernels, depth = r"(?<=did you mean all_reduce/one_shot)[^\n]*", r"(?<=: )maximum recursion[^\n]*"
    same_text(said, kernels, depth, r"(?<=there is all_reduce/)[^\n]*")


def test_on_gpus_the_worlds_are_those_that_the_machine_has_gpus_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert world_sizes(()) == (1, 2, 3, 4)
    assert world_sizes((2, 4)) == (2, 4)
    assert world_sizes((2, 5), share_gpus=True) == (2, 5)


def test_ranks_that_share_gpus_are_told_to_and_the_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda number: "NVIDIA H100")
    assert (machine(), machine(share_gpus=True)) == ("1 x NVIDIA H100", "1 x NVIDIA H100, shared by ranks")
    opened: list[tuple[int, bool]] = []
    monkeypatch.setattr(gpus, "ProcessWorld", lambda size, opener: opened.append((size, opener.share_gpus)))
    for shared in (False, True):
        gpus._Worlds(3, shared)(3, "sm_90a")
    assert opened == [(3, False), (3, True)]


@pytest.mark.parametrize(("status", "code"), [("PASSED", 0), ("REFUSED", 1), ("WRONG", 1), ("FAILED", 1)])
def test_the_command_counts_and_ends_with(
    status: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [[Outcome(ROW, "a", status, "the reason", "1")]]
    monkeypatch.setattr("tests.matrix.__main__._rows", lambda options: [ROW])
    monkeypatch.setattr("tests.matrix.__main__._run", lambda *given: iter(outcomes))
    assert main(["--kernel", "all_reduce/one_shot", "--world-size", "2"]) == code
    said = capsys.readouterr().out
    counts = {"PASSED": "1 passed, 0 refused, 0 bad", "REFUSED": "0 passed, 1 refused, 0 bad"}
    assert ("all was refused" in said) == (status == "REFUSED")
    assert f"1 cases: {counts.get(status, '0 passed, 0 refused, 1 bad')}" in said
    assert ("the reason" in said) == (status in ("WRONG", "FAILED"))
