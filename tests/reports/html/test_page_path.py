"""Where a page without a name goes: no manifest and no checkout is touched by it."""

import subprocess
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.html.page_path import page_path
from reports.record.bundle import write
from reports.record.seal import MANIFEST, broken, seal
from tests.reports.synthetic import KIB, study

ROOT = Path(__file__).parents[3]
RECORDS = study(("one_shot", "nccl"), (KIB,))


@pytest.fixture
def sealed(tmp_path, monkeypatch):
    """records/command, as a command leaves it, in the working folder; relative."""
    monkeypatch.chdir(tmp_path)
    folder = Path("records") / "command"
    (folder / "ptx").mkdir(parents=True)
    for number, record in enumerate(RECORDS):
        (folder / f"{number}.json").write_text(record.to_json(), encoding="utf-8")
    seal(folder)
    return folder


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (["records/command"], "records/command.html"),
        (["records/command/"], "records/command.html"),
        (["records/command/0.json"], "records/0.html"),
        (["records/command/ptx"], "records/ptx.html"),
        (["records"], "records.html"),
        (["all.jsonl.xz"], "all.html"),
        (["records/command", "all.jsonl.xz"], "report.html"),
        (["/"], "report.html"),
        ([], "report.html"),
    ],
)
def test_where_a_page_goes(sealed, places, expected):
    assert page_path(places) == Path(expected)


def test_in_a_folder_of_records_it_goes_beside_that_folder(sealed, monkeypatch):
    beside = sealed.resolve().with_name("command.html")
    monkeypatch.chdir(sealed)
    assert page_path(["."]) == beside
    assert page_path(["0.json"]) == beside.with_name("0.html")
    monkeypatch.chdir("ptx")
    assert page_path([".."]) == beside


def test_a_sealed_folder_is_whole_afterwards(sealed, capsys):
    assert main(["html", str(sealed)]) == 0
    page = Path("records") / "command.html"
    assert capsys.readouterr().out.startswith(f"{page}: {len(RECORDS)} records, ")
    assert page.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert (sealed / MANIFEST).is_file()
    assert broken(sealed) == []
    assert main(["html", str(sealed)]) == 0


def test_what_users_are_told_to_write_leaves_the_checkout_clean(sealed, tmp_path):
    """The next command's records would say that the sources were changed."""
    write(RECORDS, tmp_path / "all.jsonl.xz")
    places = [["records/command"], ["records"], ["records/command/0.json"], ["all.jsonl.xz"], ["a", "b"]]
    written = [*map(str, map(page_path, places)), "all.jsonl.xz", "figure.svg", "figure.png", "audit.html"]
    checked = subprocess.run(["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    if checked.returncode == 128:
        pytest.skip(f"no git checkout here: {checked.stderr.strip()}")
    assert checked.stdout.split() == written
