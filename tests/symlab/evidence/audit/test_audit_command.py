"""python -m reports audit: its forms, its files, its exit codes, its refusals; and that it starts at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.record import bundle
from reports.record.seal import MANIFEST
from symlab.evidence.audit import command, worker
from tests.golden import same_text
from tests.symlab.evidence.audit.complete_set import answer, kept
from tests.symlab.evidence.audit.invented_records import check, in_turns, one

ROOT = Path(__file__).parents[4]
STEADY = (10.0, 10.01, 10.02, 9.99, 10.03)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A folder with sets of records."""
    folder = tmp_path_factory.mktemp("sets")
    before, same = in_turns(STEADY, STEADY)
    slow = in_turns(STEADY, tuple(1.1 * us for us in STEADY))[1]
    others = {"other": [one(world=5, check=check("other"))], "elsewhere": [one("nccl")]}
    for name, records in {"before": before, "same": same, "slow": slow, **others}.items():
        bundle.write(records, folder / f"{name}.jsonl.xz")
    (folder / "newer.json").write_text('{"schema": 99}', encoding="utf-8")
    (folder / "folder.md").mkdir()
    kept(folder / "records")
    return folder


@pytest.fixture(autouse=True)
def place(sets, tmp_path, monkeypatch):
    """The working folder, with copies of them; the worker is one that finds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worker, "ask", lambda *_: answer())
    return shutil.copytree(sets, tmp_path, dirs_exist_ok=True)


COMMANDS = """\
before.jsonl.xz same.jsonl.xz
before.jsonl.xz slow.jsonl.xz
before.jsonl.xz other.jsonl.xz
before.jsonl.xz elsewhere.jsonl.xz
before.jsonl.xz slow.jsonl.xz --band 20%
before.jsonl.xz slow.jsonl.xz --gate slower
before.jsonl.xz slow.jsonl.xz --gate different
records
tampered
"""


def test_what_is_printed(place, capsys):
    """The first lines and the last one; test_comparison.py and test_checklist.py have the forms whole."""
    shutil.copytree("records", "tampered")
    next(Path("tampered/command0/ptx").iterdir()).write_text("tampered", encoding="utf-8")
    told = []
    for words in COMMANDS.splitlines():
        code = main(["audit", *words.split()])
        out = capsys.readouterr().out.splitlines()
        told += [f"{words}: {code}", *out[:2], *out[-1:]]
    same_text("\n".join(told))


@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_a_place_whose_name_is_not_utf_8_is_audited(place, form, capsys):
    name = os.fsdecode(b"odd\xff")
    (place / "records").rename(place / name)
    for path in (place / name).rglob(MANIFEST):
        path.unlink()  # what no manifest covers is named
    assert main(["audit", name, "-o", f"odd.{form}"]) == 0
    for said in (capsys.readouterr().out, (place / f"odd.{form}").read_text(encoding="utf-8")):
        assert "odd\\xff" in said.replace("\\\\", "\\").replace("\\udcff", "\\xff")


@pytest.mark.parametrize("name", ["audit.html", "audit.md", "audit.json"])
def test_files(name, place, capsys):
    assert main(["audit", "before.jsonl.xz", "slow.jsonl.xz", "-o", name]) == 1
    assert f"{name}: written" in capsys.readouterr().err
    text = (place / name).read_text(encoding="utf-8")
    assert "speed: 1 SLOWER" in text
    assert text.lower().lstrip().startswith("<!doctype html>") == name.endswith(".html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit"], "missing argument 'RECORDS...' (see python -m reports audit --help)"),
        (["audit", "gone"], "gone: can't be read"),
        (["audit", "a", "b", "c"], "3 places: give one to be checked, or two, BEFORE and AFTER"),
        (["audit", "records", "--gate", "slower"], "--gate slower: one place has nothing to compare, give two"),
        (["audit", "records", "--gate", "faster"], "'faster' is not one of 'slower', 'different', 'any'"),
        (["audit", "records", "--band", "2"], "band '2': give 2% for percent, or a share below 1 such as 0.02"),
        (["audit", "records", "--up-to", "9" * 5000], "is not a size (--up-to)"),
        (["audit", "records", "--up-to", "much"], "'much' is not a size (--up-to)"),
        (["audit", "records", "records", "--up-to", "1K"], "two places are compared with each other, give one"),
        (["audit", "records", "-o", "audit.pdf"], "an audit's name ends in .html, .md or .json"),
        (["audit", "records", "-o", "no/such/audit.html"], "audit.html: can't be written (there is no such folder)"),
        (["audit", "gone", "-o", "no/such/audit.html"], "audit.html: can't be written (there is no such folder)"),
        (["audit", "gone", "-o", "folder.md"], "folder.md: can't be written (it is a folder)"),
        (["audit", "newer.json"], "newer.json: written with schema 99, but this program reads schemas"),
        (["audit", "records", "newer.json"], "newer.json: written with schema 99"),
    ],
)
def test_a_wrong_request_is_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("symlab: error: ")
    assert message in captured.err


def test_records_that_change_while_they_are_audited_are_refused(place, monkeypatch, capsys):
    def change(*_):
        bundle.write([one(world=6)], place / "same.jsonl.xz")
        return answer()

    monkeypatch.setattr(worker, "ask", change)
    assert main(["audit", "same.jsonl.xz"]) == 2
    assert "same.jsonl.xz: files changed while they were audited, audit them again" in capsys.readouterr().err


def test_what_lasts_is_said(capsys, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    progress = command.Progress()
    for at_s in (0.5, 1.9, 2.1, 2.5, 4.5):
        now_s[0] = at_s
        progress(f"at {at_s}")
    progress.end()
    assert capsys.readouterr().err == "at 2.1\nat 4.5\n"


@pytest.mark.slow
def test_a_comparison_needs_neither_torch_nor_what_takes_long_to_import(place):
    text = (
        "import sys; from reports.__main__ import main; "
        "code = main(['audit', 'other.jsonl.xz', 'other.jsonl.xz']); "
        "heavy = {'torch', 'hydra', 'mlflow', 'matplotlib', 'scipy', 'runner', 'kernels', 'simulator'}; "
        "print(code, *sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=place, env=environment, capture_output=True, text=True, check=True
    )
    code, *heavy = done.stderr.split()
    assert (code, heavy) == ("2", [])
