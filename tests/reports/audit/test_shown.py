"""Tables, texts and curves that people see are compared with what the records give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.audit import shown
from reports.audit.items import Outcome
from reports.figures import draw
from reports.html import page
from reports.record.record import Record
from reports.table import table
from tests.reports.synthetic import KIB, record


@pytest.fixture(scope="module")
def members() -> list[Record]:
    return [
        record(name, size * KIB, world=world) for name in ("one_shot", "nccl") for size in (1, 4) for world in (0, 1)
    ]


@pytest.fixture(scope="module")
def text(members: list[Record]) -> str:
    return page(members)


def found(text: str, members: list[Record]) -> dict[Outcome, str]:
    points = list(shown.page_shown("report.html", text, members))
    outcomes = {point.outcome for point in points}
    return {one: "\n".join(point.evidence for point in points if point.outcome is one) for one in outcomes}


def test_a_page_as_it_was_made_is_verified(text: str, members: list[Record]) -> None:
    assert set(found(text, members)) == {Outcome.VERIFIED}


def test_a_changed_cell_is_found(text: str, members: list[Record]) -> None:
    cell = re.search(r"<td[^>]*>([0-9]+\.[0-9]+)</td>", text)
    assert cell is not None
    changed = text[: cell.start(1)] + "1.23" + text[cell.end(1) :]
    assert f"is '1.23', the records give '{cell[1]}'" in found(changed, members)[Outcome.FINDING]


def test_a_changed_curve_is_found(text: str, members: list[Record]) -> None:
    path = re.search(r'<path d="M ([0-9.]+) ', text)
    assert path is not None
    changed = text[: path.start(1)] + f"{float(path[1]) + 20:.6f}" + text[path.end(1) :]
    assert "20.0 points from what these records draw" in found(changed, members)[Outcome.FINDING]


def test_a_changed_sentence_is_found(text: str, members: list[Record]) -> None:
    changed = text.replace("8 records", "9 records").replace("Invented GPU", "Other GPU")
    assert changed != text
    assert "Other GPU" in found(changed, members)[Outcome.FINDING]


def test_a_page_of_another_layout_is_not_a_finding(text: str, members: list[Record]) -> None:
    changed = text.replace("<table", "<p>More of it.</p><table", 1)
    assert Outcome.FINDING not in found(changed, members)
    assert "texts beside tables are of another version" in found(changed, members)[Outcome.NOT_COMPARABLE]
    columns = re.sub(r"<th[^>]*>[^<]*</th>", "<th>other</th>", text)
    assert "tables of another version" in found(columns, members)[Outcome.NOT_COMPARABLE]


def test_tables_and_figures_beside_records_are_made_again(tmp_path: Path, members: list[Record]) -> None:
    made = table.markdown(members)
    (tmp_path / "table.md").write_text(made, encoding="utf-8")
    draw(members, tmp_path / "curves.svg")
    draw(members, tmp_path / "spread.svg", "distribution")
    assert [point.outcome for point in shown.beside(tmp_path, members)] == [Outcome.VERIFIED] * 3
    number = re.search(r"\| ([0-9]+\.[0-9]+) \|", made)
    assert number is not None
    (tmp_path / "table.md").write_text(made.replace(number[1], "0.01", 1), encoding="utf-8")
    path = tmp_path / "curves.svg"
    drawn = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"\nL ([0-9.]+) ", "\nL 1 ", drawn), encoding="utf-8")
    outcomes = [point.outcome for point in shown.beside(tmp_path, members)]
    assert outcomes == [Outcome.FINDING, Outcome.FINDING, Outcome.VERIFIED]


def test_a_figure_of_other_records_is_not_compared(tmp_path: Path, members: list[Record]) -> None:
    draw(members[:2], tmp_path / "curves.svg")
    (point,) = shown.beside(tmp_path, members)
    assert (point.outcome, "other records" in point.evidence) == (Outcome.NOT_COMPARABLE, True)
