"""command.json says what was asked for and how it ended, and is no record."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from reports.record import bundle
from reports.record.seal import MANIFEST, broken
from runner.records.command_json import KILLED, CommandDocument, command_document_of
from runner.records.store import Store
from tests.runner.conftest import record_files


def left_by(done):
    (path,) = done.folder.glob("records/*/command.json")
    manifest = command_document_of(path.parent)
    assert path not in bundle.record_files(done.folder / "records")
    return manifest, json.loads(path.read_text())


def test_a_complete_command(symlab):
    manifest, document = left_by(symlab("-m", "world_size=2,3", "sizes=[8]"))
    assert (document["schema"], document["outcome"], document["exit_code"]) == (1, "complete", 0)
    assert (document["cases_requested"], document["cases_not_run"], document["counts"]) == (4, [], {"PASSED": 4})
    assert [job.overrides[0] for job in manifest.jobs] == ["world_size=2", "world_size=3"]
    assert manifest.command_line[:4] == ("symlab", "run", "-m", "world_size=2,3")
    assert manifest.started <= document["ended"]
    assert "/" not in manifest.working_folder


def test_what_a_command_leaves_is_sealed_however_it_ended(symlab, script):
    for code in (0, 130):
        done = symlab("sizes=[8]")
        (folder,) = done.folder.glob("records/*")
        assert done.code == code
        assert broken(folder) == []
        listed = (folder / MANIFEST).read_text()
        assert {"command.json", "configuration.yaml"} <= {line[66:] for line in listed.splitlines()}
        path = next(folder.glob("all_reduce*.json"))
        path.write_bytes(path.read_bytes().replace(b"PASSED", b"PASSEd"))
        assert [fault.partition(":")[0] for fault in broken(folder)] == [path.name]
        shutil.rmtree(folder)
        script.outcomes = {"two_shot": KeyboardInterrupt()}


def test_an_interrupted_command(symlab, script):
    script.outcomes = {"two_shot": KeyboardInterrupt()}
    _, document = left_by(symlab("sizes=[8]"))
    assert (document["outcome"], document["why"], document["exit_code"]) == ("interrupted", "SIGINT", 130)
    assert [one["case"].split("-")[1] for one in document["cases_not_run"]] == ["two_shot"]


def test_it_is_there_before_the_first_case(symlab, script, monkeypatch, tmp_path):
    seen = []
    real = Store.write

    def write(self, *arguments):
        seen.append(command_document_of(self.folder))
        return real(self, *arguments)

    monkeypatch.setattr(Store, "write", write)
    symlab("sizes=[8]")
    assert (seen[0].outcome, len(seen[0].cases)) == (KILLED, 2)


def test_an_interrupt_while_a_record_is_stored_loses_nothing(symlab, monkeypatch):
    real = Store.write

    def write(self, *arguments):
        path = real(self, *arguments)
        signal.raise_signal(signal.SIGINT)
        return path

    monkeypatch.setattr(Store, "write", write)
    done = symlab("sizes=[8]")
    assert (done.code, len(record_files(done.folder))) == (130, 1)
    assert "2 cases: 1 passed, 1 not run" in done.out
    assert left_by(done)[1]["counts"] == {"PASSED": 1}


def test_what_is_no_manifest_is_named(tmp_path):
    assert command_document_of(tmp_path) is None
    deep, long = "[" * 100_000, f'{{"schema": 1, "jobs": [{10**400}]}}'
    nested = f'{{"schema": 1, "x": {"[" * 900}{"]" * 900}}}'
    for text in ("{", "[]", '{"schema": 99}', '{"schema": 1}', deep, long, nested):
        (tmp_path / "command.json").write_text(text)
        with pytest.raises(ValueError, match=r"command.json: not what"):
            command_document_of(tmp_path)


@pytest.mark.slow
def test_every_jobs_plan_comes_back(symlab):
    document, written = left_by(symlab("-m", "sizes=[8],[16,1K]", "fabric.seed=1,2", "dtype=float32,bfloat16/native"))
    assert len(document.jobs) == 8
    for job in document.jobs:
        path = next((next(Path("records").iterdir())).glob(f"{job.number:02d}-configuration.yaml"))
        assert job.plan.configuration == yaml.safe_load(path.read_text())
        assert job.plan.fabric == "simulator"
    assert written["jobs"][0]["differs"] == {}
    assert written["jobs"][7]["differs"] == {
        "configuration.dtype": "bfloat16/native",
        "configuration.sizes.list": [16, "1K"],
        "configuration.fabric.seed": 2,
    }
    assert CommandDocument(**{key: getattr(document, key) for key in document.__slots__}) == document
