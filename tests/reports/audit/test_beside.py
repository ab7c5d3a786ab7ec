"""Files of a command's folder: copies and leftovers that honest work leaves, and those that it does not."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from cases.record.record import load
from cases.record.shared import digest_of
from reports.audit.beside import left_over, twice
from reports.audit.bound_machine import LEAST_PYTHON, contradictions
from reports.audit.items import Outcome, Point
from reports.audit.material import Material
from reports.record.bundle import read, write
from tests.reports.audit.tampering import members

ROOT = Path(__file__).parents[3]

EXAMPLE = ROOT / "tests" / "reports" / "examples" / "schema8"
"""A record with the two files that it refers to."""


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A command's folder with one record."""
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "records" / "one"))
    _ended(folder)
    return folder


def _ended(folder: Path, **changes: object) -> None:
    document = {"command": load(_record(folder)).request.command, "outcome": "complete", **changes}
    (folder / "command.json").write_text(json.dumps(document), encoding="utf-8")


def _record(folder: Path) -> Path:
    (path,) = folder.glob("all_reduce-*.json")
    return path


def _more(folder: Path, text: str = "{}\n") -> None:
    digest = digest_of(text).removeprefix("sha256:")
    (folder / "shared" / f"{digest}.json").write_text(text, encoding="utf-8")


def material(folder: Path) -> Material:
    return Material(tuple(read([folder])), (folder,))


def outcomes(points: list[Point]) -> list[Outcome]:
    return [point.outcome for point in points]


def test_a_record_under_two_names_is_found(command: Path) -> None:
    assert twice(material(command)) == []
    shutil.copy(_record(command), command / "zz.json")
    (point,) = twice(material(command))
    assert point.outcome is Outcome.FINDING
    assert "zz.json of one holds the record of all_reduce-" in point.evidence


def test_a_record_in_full_is_the_same_record(command: Path) -> None:
    (command / "more").mkdir()
    (command / "more" / "zz.json").write_text(load(_record(command)).to_json(), encoding="utf-8")
    assert outcomes(twice(material(command))) == [Outcome.FINDING]


def test_a_record_twice_in_a_folder_of_no_command_is_found(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(members()[0].to_json(), encoding="utf-8")
    assert outcomes(twice(material(tmp_path))) == [Outcome.FINDING]


def test_copies_of_folders_and_bundles_are_no_second_records(command: Path) -> None:
    shutil.copytree(command, command.with_name("copy"))
    write(read([command]), command / "all.jsonl.xz", is_quick=True)
    both = material(command.parent)
    assert len(both.folders) == 2
    assert len(both.records) == 1
    assert twice(both) == []
    assert left_over(both) == []


def test_what_no_record_refers_to_is_found_where_a_command_ran_to_its_end(command: Path) -> None:
    assert left_over(material(command)) == []
    _more(command)
    (point,) = left_over(material(command))
    assert point.outcome is Outcome.FINDING
    assert "ran to its end in one piece" in point.evidence


@pytest.mark.parametrize("changes", [{"outcome": "interrupted"}, {"outcome": None}, {"resumed": [{"at": "now"}]}])
def test_an_interrupted_command_may_leave_some(command: Path, changes: dict[str, object]) -> None:
    _more(command)
    _ended(command, **changes)
    assert outcomes(left_over(material(command))) == [Outcome.NOT_COMPARABLE]


def test_a_file_that_is_not_what_its_name_says_is_found_in_any_case(command: Path) -> None:
    (command / "shared" / f"{'0' * 64}.json").write_text("{}", encoding="utf-8")
    _ended(command, outcome="interrupted")
    (point,) = left_over(material(command))
    assert point.outcome is Outcome.FINDING
    assert "SHA-256 is not its name" in point.evidence


def test_records_that_were_put_aside_refer_to_files_as_well(command: Path) -> None:
    text = json.dumps({"python": {"version": "3.11.7"}}) + "\n"
    _more(command, text)
    document = json.loads(_record(command).read_text(encoding="utf-8"))
    document["environment"] = {"shared": digest_of(text)}
    (command / "other.json.set_aside").write_text(json.dumps(document), encoding="utf-8")
    (command / "damaged.json.set_aside").write_text("{", encoding="utf-8")
    assert left_over(material(command)) == []


def test_the_first_python_is_the_projects() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = re.search(r'^requires-python = ">=(\d+)\.(\d+)', text, re.MULTILINE)
    assert wanted is not None
    assert tuple(map(int, wanted.groups())) == LEAST_PYTHON


def test_gpus_of_a_machine_that_also_simulates_are_no_contradiction() -> None:
    """A machine's GPUs are listed whatever the fabric is, and a failing driver leaves its reason."""
    record = load(_record(EXAMPLE))
    document = json.loads(record.to_json())
    document["environment"] |= {
        "gpus": [{"bus": "0000:01:00.0", "model": "NVIDIA H200", "uuid": "GPU-0"}],
        "cuda_driver": None,
        "not_captured": {"cuda_driver": "NVML is missing", "gpu_clocks": "read where something is timed"},
    }
    from cases.record.record import from_json

    changed = from_json(json.dumps(document), "record")
    assert changed.fabric is not None
    assert changed.fabric.simulated
    assert [one.sentence for one in contradictions([changed]) if one.item == 5] == []
