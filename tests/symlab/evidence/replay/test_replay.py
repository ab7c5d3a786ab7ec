"""python -m runner replay: what records hold is run again in new worlds, and a verdict is given."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from reports.record.bundle import read
from reports.record.seal import broken, seal
from runner.__main__ import main
from runner.records.command_json import command_document_of
from tests.golden import same_text
from tests.runner.conftest import BAD

REAL = ["algorithms=[two_shot,multimem_one_shot]", "dtype=bfloat16", "sizes=[1000]", "world_size=3", "track=none"]
"""One algorithm whose bits are promised, and one that is held to a bound."""


@dataclasses.dataclass
class Replayed:
    """How a replay ended, and what it left."""

    code: int
    out: str
    err: str
    folder: Path | None

    @property
    def verdict(self):
        return json.loads((self.folder / "verdict.json").read_text())

    @property
    def launches(self):
        return sorted(path.parent for path in self.folder.glob("*/command.json"))


@pytest.fixture
def replay(tmp_path, capsys):
    """replay("records", "--launches", "2"): the command line behind replay; new records in "again"."""

    def run(*arguments, tools=None):
        capsys.readouterr()
        code = main(["replay", *arguments, "--records", str(tmp_path / "again")], tools)
        said = capsys.readouterr()
        folders = sorted((tmp_path / "again").glob("*")) if (tmp_path / "again").exists() else []
        return Replayed(code, said.out, said.err, folders[-1] if folders else None)

    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a real command in the simulator."""
    folder = tmp_path_factory.mktemp("recorded")
    assert main([*REAL, f"records={folder}"]) == 0
    return folder


def test_bits_are_the_same_in_new_worlds(recorded, replay):
    done = replay(str(recorded), "--launches", "2")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[0] == "symlab replay: 2 cases of 1 recorded world, in 2 new worlds"
    assert len(done.launches) == 2
    before = {record.id: record for record in read([recorded])}
    for launch in done.launches:
        after = read([launch])
        assert {record.id for record in after} == set(before)
        for record in after:
            there = before[record.id].check
            assert record.check.output_digests == there.output_digests
            assert record.check.input_digests == there.input_digests
            assert record.request.replays["commands"] == [before[record.id].request.command]
        manifest = command_document_of(launch)
        assert (manifest.outcome, manifest.command_line[-3:]) == ("complete", (str(recorded), "--launches", "2"))
    assert broken(done.folder) == []
    for said in ("BIT-EQUAL", "NOT COMPARABLE", "nothing differs of what the records say"):
        assert said in done.out
    assert done.out.splitlines()[-1].startswith("verdict: ")
    assert done.verdict["exit_code"] == 0
    assert (done.folder / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_a_replay_can_be_replayed(recorded, replay):
    first = replay(str(recorded))
    second = replay(str(first.folder))
    assert (first.code, second.code) == (0, 0)
    assert {record.id for record in read(second.launches)} == {record.id for record in read([recorded])}


def tampered(recorded, folder, change):
    """A copy of the records, each changed."""
    shutil.copytree(recorded, folder)
    for path in folder.rglob("all_reduce*.json"):
        (record,) = read([path])
        path.write_text(change(record).to_json())
    for path in folder.rglob("manifest.sha256"):
        seal(path.parent)
    return folder


def other_outputs(record):
    other = tuple(tuple("0" * 64 for _ in row) for row in record.check.output_digests)
    return dataclasses.replace(record, check=dataclasses.replace(record.check, output_digests=other))


def test_other_bits_are_found_where_bits_are_promised(recorded, replay, tmp_path):
    done = replay(str(tampered(recorded, tmp_path / "tampered", other_outputs)))
    assert done.code == 1
    assert "DIFFERENT" in done.out
    assert "WITHIN BOUND" in done.out, "multimem promises no bits"


def test_what_differs_is_said(recorded, replay, tmp_path):
    def elsewhere(record):
        environment = dataclasses.replace(
            record.environment,
            git={"commit": "c0ffee" * 6 + "c0ff", "branch": "x", "dirty": False},
            packages=(record.environment.packages or {}) | {"torch": "1.0.0"},
        )
        kernel = dataclasses.replace(record.kernel, code_digest="sha256:" + "ab" * 32)
        return dataclasses.replace(record, environment=environment, kernel=kernel)

    done = replay(str(tampered(recorded, tmp_path / "elsewhere", elsewhere)))
    assert done.code == 0, done.out
    for said in ("c0ffee", "torch", "1.0.0", "abababab"):
        assert said in done.out


@pytest.mark.slow
def test_records_of_gpus_are_replayed_in_the_simulator(replay, script):
    bundle = Path(__file__).parents[4] / "reports" / "published" / "h200-x2" / "collectives-world1.jsonl.xz"
    done = replay(str(bundle), "--up-to", "1K", tools=script.tools())
    assert "its data is run again in the simulator, its speed can't be compared" in done.out
    assert "in the simulator only up to 1K (--up-to)" in done.out
    assert "NOT COMPARABLE" in done.out
    assert script.ran


def test_a_case_that_is_wrong_now_is_a_finding(symlab, replay, script):
    folder = symlab("sizes=[8]").folder
    script.outcomes = {"two_shot": BAD}
    done = replay(str(folder / "records"), tools=script.tools())
    assert done.code == 1
    assert "WRONG" in done.out


def test_an_interrupt_ends_without_a_verdict(symlab, replay, script):
    folder = symlab("sizes=[8]").folder
    script.outcomes = {"two_shot": KeyboardInterrupt()}
    done = replay(str(folder / "records"), "--launches", "3", tools=script.tools())
    assert done.code == 130
    assert "symlab: interrupted in launch 1 of 3: no verdict" in done.err
    assert not (done.folder / "verdict.json").exists()
    assert broken(done.folder) == []
    assert len(done.launches) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nowhere"],
        ["pyproject.toml"],
        [".", "--launches", "0"],
        [".", "--launches", "x"],
        [".", "--band", "-1%"],
        [".", "--up-to", "much"],
        [".", "--fabric", "tpu"],
        ["a", "b"],
    ],
    ids=" ".join,
)
def test_wrong_requests_are_one_line(replay, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("[x]\n")
    done = replay(*arguments)
    assert (done.code, done.out) == (2, "")
    same_text(done.err)
    assert done.folder is None, "nothing half-written"


def test_not_below_a_launcher(monkeypatch, capsys):
    there = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "x", "MASTER_PORT": "1"}
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    assert main(["replay", "records"]) == 2
    same_text(capsys.readouterr().err)
