"""python -m reports: what it prints, what it refuses in one line, how soon it is there."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from reports.__main__ import main
from reports.record import bundle
from reports.table.table import plain, values
from reports.table.text import json_of
from tests.golden import same_text
from tests.patience import PATIENCE_S
from tests.reports.html.test_html import figures_of
from tests.reports.synthetic import KIB, MIB, study
from tests.rooms import needs

ROOT = Path(__file__).parents[2]
RECORDS = study(("one_shot", "nccl"), (KIB, MIB), worlds=2)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "records"
    place.mkdir()
    for index, record in enumerate(RECORDS):
        (place / f"{index}.json").write_text(record.to_json(), encoding="utf-8")
    (place / "command.json").write_text("{}", encoding="utf-8")
    return place


@needs("evidence")
def test_a_table_of_a_folder_and_of_its_bundle(folder, tmp_path, capsys):
    assert main(["table", str(folder)]) == 0
    table = capsys.readouterr().out
    assert table == plain(RECORDS) + "\n"
    path = tmp_path / "all.jsonl.xz"
    assert main(["bundle", str(folder), "-o", str(path)]) == 0
    assert f"{len(RECORDS)} records, {path.stat().st_size} bytes" in capsys.readouterr().out
    assert main(["table", str(path), str(folder / "0.json")]) == 0
    assert capsys.readouterr().out == table
    assert bundle.unpacked(path)


def test_a_page_beside_the_folders_is_left_out(folder, tmp_path, capsys):
    """`symlab html records/X` writes records/X.html, and `records/*` names both."""
    page = tmp_path / "records.html"
    page.write_text("<html>")
    assert main(["table", str(folder), str(page)]) == 0
    assert capsys.readouterr() == (plain(RECORDS) + "\n", "")
    assert main(["html", str(page), str(folder), "-o", str(tmp_path / "new.html")]) == 0
    assert main(["table", str(page)]) == 2, "alone it is what was asked for"


@pytest.mark.parametrize(
    ("options", "beginning"),
    [
        (["--wide"], "all_reduce bfloat16, accumulator float32"),
        (["--format", "markdown"], "**all_reduce bfloat16"),
        (["--format", "markdown", "--wide"], "**all_reduce bfloat16"),
        (["--format", "csv"], "op,dtype,"),
    ],
)
def test_formats(folder, capsys, options, beginning):
    assert main(["table", str(folder), *options]) == 0
    assert capsys.readouterr().out.startswith(beginning)


def test_wide_says_that_it_lays_out_times(folder, tmp_path, capsys):
    assert main(["table", str(folder), "--wide"]) == 0
    assert capsys.readouterr().err == ""
    path = tmp_path / "untimed.json"
    path.write_text(dataclasses.replace(RECORDS[0], timing=None).to_json(), encoding="utf-8")
    assert main(["table", str(path), "--wide"]) == 0
    said = capsys.readouterr()
    assert said.err == "symlab: --wide lays out times, and none of these records has one: the usual table\n"
    assert main(["table", str(path)]) == 0
    assert capsys.readouterr() == (said.out, "")


def test_json_has_every_case(folder, capsys):
    assert main(["table", str(folder), "--format", "json"]) == 0
    cases = json.loads(capsys.readouterr().out)
    assert sorted({case["algorithm"] for case in cases}) == ["multimem_one_shot", "nccl", "one_shot", "torch/multimem"]
    assert len(cases) == 8
    assert {case["worlds"] for case in cases} == {2}


def test_a_report(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["html", str(folder)]) == 0
    path = folder.with_name(f"{folder.name}.html")
    assert capsys.readouterr().out == f"{path}: {len(RECORDS)} records, {path.stat().st_size} bytes\n"
    text = path.read_text(encoding="utf-8")
    assert figures_of(text) == json.loads(json_of(values(bundle.read([folder]))))
    assert main(["html", str(folder), "-o", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@needs("evidence")
@pytest.mark.parametrize(
    "line",
    [
        "html ok.json -o x.pdf",
        "html ok.json -o gone/x.html",
        "html gone.json",
        "figure simulated.json -o x.svg",
        "figure ok.json",
        "figure ok.json -o x.pdf",
        "",
        "table",
        "table gone.json",
        "table .",
        "table bad.json",
        "table ok.json --format pdf",
        "table ok.json --wide --format csv",
        "bundle ok.json -o x.xz",
        "bundle ok.json -o gone/x.jsonl.xz",
        "unknown",
    ],
)
def test_a_wrong_request_is_one_line(line, tmp_path, monkeypatch, capsys):
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    if line != "table .":
        (place / "ok.json").write_text(RECORDS[0].to_json(), encoding="utf-8")
        (place / "bad.json").write_text("{", encoding="utf-8")
        example = Path(__file__).parent / "examples" / "schema8_simulated.json"
        (place / "simulated.json").write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    same_text(captured.err)
    assert not list(place.glob("x.*"))


@needs("evidence")
@pytest.mark.parametrize("arguments", [["table", "--help"], ["bundle", "--help"], ["figure", "--help"]])
def test_help(arguments, capsys):
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "Exit codes" in text
    assert "RECORDS" in text


def test_a_table_imports_none_of_what_is_heavy(folder):
    program = (
        "import sys; from reports.__main__ import main; "
        f"main(['table', {str(folder)!r}]); "
        "heavy = {'matplotlib', 'jinja2', 'numpy', 'scipy', 'torch', 'mlflow', 'hydra', 'rich', 'runner', 'kernels'}; "
        "print(*sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_a_reader_that_leaves_is_no_error(folder):
    writer = subprocess.Popen(
        [sys.executable, "-m", "reports", "table", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    writer.stdout.close()
    writer.wait(PATIENCE_S)
    assert (writer.returncode, writer.stderr.read()) == (0, "")
    writer.stderr.close()


@needs("evidence")
@pytest.mark.parametrize("arguments", [["table", "x"], ["audit", "x"], ["html", "x"], ["bundle", "x", "-o", "y"]])
def test_ctrl_c_is_one_line(arguments, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    # Records of an audit are read in a process of their own first, which a terminal's Ctrl-C is not for.
    name = "symlab.evidence.audit.worker.ask" if arguments[0] == "audit" else "reports.record.bundle.read"
    monkeypatch.setattr("reports.record.bundle.record_files", lambda place: [place])
    monkeypatch.setattr(name, interrupted)
    assert main(arguments) == 130
    assert capsys.readouterr().err == "symlab: interrupted\n"
