"""Tables, texts and curves that people see are compared with what the records give."""

from __future__ import annotations

import dataclasses
import random
import re
from hashlib import sha256
from pathlib import Path

import pytest

from cases.record.record import Record
from reports.drawn_by import drawn_by
from reports.figures import draw
from reports.html import page
from reports.html.pictures import MOST_TRACKED
from reports.record.bundle import merged
from reports.table import table
from symlab.evidence.audit import figures
from symlab.evidence.audit.figures import far_apart
from symlab.evidence.audit.items import Outcome
from tests.golden import same_text
from tests.reports.synthetic import KIB, record
from tests.symlab.evidence.audit.complete_set import kernel

FOUR = ("one_shot", "nccl")


@pytest.fixture(scope="module")
def members() -> list[Record]:
    return merged(record(name, size * KIB, world=world) for name in FOUR for size in (1, 4) for world in (0, 1))


@pytest.fixture(scope="module")
def text(members: list[Record]) -> str:
    return page(members)


@pytest.fixture(scope="module")
def older(text: str) -> str:
    """The page of a version that names no code."""
    return text.replace(drawn_by(), "symlab")


def found(text: str, members: list[Record]) -> dict[Outcome, str]:
    points = list(figures.page("report.html", text, members, {}))
    outcomes = {point.outcome for point in points}
    return {one: "\n".join(point.evidence for point in points if point.outcome is one) for one in outcomes}


@pytest.mark.slow
def test_a_page_as_it_was_made_is_verified(text: str, older: str, members: list[Record]) -> None:
    assert set(found(text, members)) == {Outcome.VERIFIED}
    assert "drawn again by the same code" in found(text, members)[Outcome.VERIFIED]
    of_older = found(older, members)
    assert set(of_older) == {Outcome.VERIFIED, Outcome.NOT_COMPARABLE}, "the embedded figures alone are compared"
    same_text(of_older[Outcome.NOT_COMPARABLE])


@pytest.mark.slow
def test_pages_with_fewer_pictures_of_other_orders_and_of_some_commands_are_verified(members: list[Record]) -> None:
    mixed = random.Random(0).sample(members, len(members))
    assert set(found(page(mixed, most_pictures=MOST_TRACKED), members)) == {Outcome.VERIFIED}
    of_one = [one for one in members if one.request.command == members[0].request.command]
    assert set(found(page(of_one), members)) == {Outcome.VERIFIED}


CHANGES = {
    "a cell": (r"(<td[^>]*>)[0-9]+\.[0-9]+</td>", r"\g<1>1.23</td>", " 1.23 "),
    "a curve": (r'<path d="M [0-9.]+ ', '<path d="M 9999 ', "points from what these records draw"),
    "a picture's text": (
        '(<svg[^>]* aria-label=")',
        r"\g<1>our ",
        "has other lines, texts or colours than these records draw",
    ),
    "a sentence": ("Invented GPU", "Other GPU", "Other GPU"),
    "a style": ("</style>", "p{display:none}</style>", "it says 'p{display:none}'"),
    "a script": ("</body>", "<script>1</script></body>", "it says '1'"),
    "two lines": (r"(<tr>[^\n]*</tr>\n)(.*?)(<tr>[^\n]*</tr>\n)", r"\3\2\1", "its lines are in another order"),
    "a line less": (r"<tr[^>]*>(?:(?!</tr>).)*nccl(?:(?!</tr>).)*</tr>\n", "", "it lacks '"),
    "a picture less": (r"<svg\b(?:(?!</svg>).)*</svg>(?!.*</svg>)", "", "picture"),
}
"""Of a page: the first text of a pattern, what takes its place, and what is said of it."""


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_in_a_page_is_found(name: str, text: str, members: list[Record]) -> None:
    pattern, other, says = CHANGES[name]
    changed = re.sub(pattern, other, text, count=1, flags=re.DOTALL)
    assert changed != text
    assert says in found(changed, members)[Outcome.FINDING]


def test_a_changed_figure_for_programs_is_found_in_a_page_of_any_version(older: str, members: list[Record]) -> None:
    changed = re.sub(r'"median_us":[0-9.]+', '"median_us":1.0', older, count=1)
    assert "median_us is 1.0, the samples give " in found(changed, members)[Outcome.FINDING]


def test_titles_audits_other_commands_and_other_pages_are_named(text: str, members: list[Record]) -> None:
    titled = found(page(members, "Three times <b>"), members)
    assert (
        titled.pop(Outcome.NOT_COMPARABLE)
        == "report.html: its title was given, and no record has it: 'Three times <b>'"
    )
    assert set(titled) == {Outcome.VERIFIED}
    part = '<section id="audit"><p class="verdict">VERIFIED</p></section>\n'
    audited = found(text.replace("<main>\n", f"<main>\n{part}"), members)
    assert "has what an audit said when it was drawn: 'VERIFIED'; not compared" in audited.pop(Outcome.NOT_COMPARABLE)
    assert set(audited) == {Outcome.VERIFIED}
    of_one = [one for one in members if one.request.command == members[0].request.command]
    assert "of the command command1; not drawn again" in found(text, of_one)[Outcome.NOT_COMPARABLE]
    history = f'<meta name="generator" content="{drawn_by()}"><p class="kicker">symlab history</p>'
    assert found(history, members) == {Outcome.NOT_COMPARABLE: "report.html: not a report; not looked at"}
    assert found("<p>notes</p>", members) == {Outcome.NOT_COMPARABLE: "report.html: not a report; not looked at"}


def test_the_number_and_the_digest_of_records_and_manifests_are_compared(members: list[Record]) -> None:
    text = page(members, sealed={"here": "sha256:" + "1" * 64})
    points = list(figures.page("report.html", text, members, {"here": "sha256:" + "2" * 64}))
    assert "the manifest of here has the digest sha256:222222222222.., not sha256:111111111111.." in points[0].evidence
    assert points[0].outcome is Outcome.FINDING
    assert "it is of 4 records of command0" in found(text, members[1:])[Outcome.FINDING]


@pytest.mark.slow
def test_tables_and_figures_beside_records_are_made_again(tmp_path: Path, members: list[Record]) -> None:
    made = {"t.md": table.markdown(members), "t.txt": table.plain(members), "t.csv": table.csv_text(members)}
    made["wide.md"] = table.markdown(members, is_wide=True)
    for name, some in made.items():
        (tmp_path / name).write_text(some, encoding="utf-8")
    draw(members, tmp_path / "curves.svg")
    draw(members, tmp_path / "spread.svg", "distribution")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.VERIFIED] * 6
    for name, some in made.items():
        changed = re.sub(r"(?<=[ ,])[0-9]+\.[0-9]+(?=[ ,])", "0.01", some, count=1)
        (tmp_path / name).write_text(changed, encoding="utf-8")
    path = tmp_path / "curves.svg"
    drawn = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"\nL ([0-9.]+) ", "\nL 1 ", drawn), encoding="utf-8")
    outcomes = [point.outcome for point in figures.beside(tmp_path, members)]
    assert outcomes == [Outcome.FINDING, Outcome.VERIFIED] + [Outcome.FINDING] * 4


def test_a_line_below_a_table_is_compared_and_an_excerpt_is_named(tmp_path: Path, members: list[Record]) -> None:
    made = table.markdown(members)
    path = tmp_path / "table.md"
    path.write_text(f"# Mine\n\n{made}", encoding="utf-8")
    more = list(figures.beside(tmp_path, members))
    assert [point.outcome for point in more] == [Outcome.VERIFIED, Outcome.NOT_COMPARABLE]
    assert "1 part that these records do not give so: '# Mine'" in more[1].evidence
    numbered = re.sub(r"(\n- [^0-9\n]*)[0-9]+", r"\g<1>77", made, count=1)
    assert numbered != made
    path.write_text(numbered, encoding="utf-8")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.FINDING]
    rows = [line for line in made.splitlines() if line.startswith("|")]
    path.write_text("\n".join(rows[:3]), encoding="utf-8")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.VERIFIED, Outcome.NOT_COMPARABLE]
    path.write_text(made.replace(rows[-1], "").replace(rows[-2], f"{rows[-1]}\n{rows[-2]}"), encoding="utf-8")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.FINDING], "in another order"
    path.write_text(made.replace(rows[-1] + "\n", ""), encoding="utf-8")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.FINDING]


def test_a_figure_of_other_records_is_not_compared(tmp_path: Path, members: list[Record]) -> None:
    draw(members[1:], tmp_path / "curves.svg")
    (point,) = figures.beside(tmp_path, members)
    assert (point.outcome, "other records" in point.evidence) == (Outcome.NOT_COMPARABLE, True)
    of_one = [one for one in members if one.request.command == members[0].request.command]
    draw(of_one, tmp_path / "curves.svg")
    assert [point.outcome for point in figures.beside(tmp_path, members)] == [Outcome.VERIFIED]


def test_files_that_are_not_looked_at_are_named(tmp_path: Path, members: list[Record]) -> None:
    own = f"ptx/{kernel().ptx_digest.removeprefix('sha256:')}.ptx"
    request = dataclasses.replace(members[0].request, brought={"x": {"files": [{"kept": "brought/0/kernel.txt"}]}})
    ours = [one for one in members if one.case.algorithm == "one_shot"]
    assert ours
    members = [dataclasses.replace(ours[0], request=request, kernel=kernel())]
    for name in ("ptx", "brought/0", "brought/1"):
        (tmp_path / name).mkdir(parents=True)
    written = (
        "a.json",
        "command.json",
        "configuration.yaml",
        "source.2.diff",
        "manifest.sha256",
        "00-configuration.yaml",
    )
    for name in (*written, own, "brought/0/kernel.txt", "all_reduce.json.set_aside"):
        (tmp_path / name).touch()
    assert list(figures.beside(tmp_path, members)) == []
    for name in ("b.png", "notes.yaml", "brought/c.pdf", "x.ptx"):
        (tmp_path / name).touch()
    (tmp_path / "pipe.html").symlink_to("/dev/zero")
    (point,) = figures.beside(tmp_path, members)
    assert point.outcome is Outcome.NOT_COMPARABLE
    assert point.evidence.startswith("4 files that symlab does not write, not looked at: b.png; notes.yaml; ")
    (tmp_path / "brought" / "1" / "report.txt").write_text("one_shot takes 0.01 us")
    assert any(point.evidence.startswith("report.txt: no table") for point in figures.beside(tmp_path, members))


def test_shapes_that_can_not_be_paired_are_drawn_otherwise(text: str) -> None:
    svg = re.findall(r"<svg\b.*?</svg>", text, re.DOTALL)[-1]
    assert far_apart(svg, svg) == 0.0
    assert far_apart(svg.replace("</svg>", '<!-- d="1 2" --></svg>'), svg) is None
    assert far_apart(re.sub(r' d="M [0-9.]+', ' d="M #', svg, count=1), svg) is None


def test_the_code_that_draws_is_named_and_changes_with_it(tmp_path: Path, text: str, members: list[Record]) -> None:
    assert text.count(drawn_by()) == 1
    draw(members, tmp_path / "curves.svg")
    assert drawn_by() in (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert re.fullmatch(r"symlab, drawn by sha256:[0-9a-f]{64}", drawn_by())
    assert sha256().hexdigest() not in drawn_by(), "of nothing at all"
