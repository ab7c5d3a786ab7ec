"""A command's run in MLflow holds the report and what goes with it, however the command ended; what can't be made is a
warning."""

import dataclasses
import json
from pathlib import Path

import pytest

from reports.record import bundle
from reports.record.seal import digest_of
from reports.tracking import SENT_TAG
from runner.track import artifacts as artifacts_module
from runner.track import send
from runner.track.artifacts import build
from tests.reports.synthetic import KIB, record, refused
from tests.runner.conftest import record_files
from tests.runner.track.conftest import kept


def artifacts(sent, place=""):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=sent.database)
    return [one.path for one in client.list_artifacts(sent.parent.info.run_id, place or None)]


def downloaded(sent, artifact, folder):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=sent.database)
    return Path(client.download_artifacts(sent.parent.info.run_id, artifact, str(folder)))


def text_of(sent, artifact, folder):
    return downloaded(sent, artifact, folder).read_text(encoding="utf-8")


def attached(sent, folder):
    """The records in the bundle of the command's run."""
    return bundle.unpacked(downloaded(sent, "records.jsonl.xz", folder))


@pytest.mark.slow
def test_a_command_attaches_its_report_its_table_and_all_records(sent, tmp_path):
    done = sent.run("sizes=[8,16]")
    assert "warning" not in done.err
    assert artifacts(sent) == ["configuration", "ptx", "records.jsonl.xz", "report.html", "table.md"]
    report = text_of(sent, "report.html", tmp_path)
    assert report.lstrip().startswith("<!DOCTYPE html>")
    assert "all_reduce" in report
    assert "one_shot" in text_of(sent, "table.md", tmp_path)
    assert json.loads(text_of(sent, "configuration/command.json", tmp_path))["outcome"] == "complete"
    assert len(attached(sent, tmp_path)) == 4
    (folder,) = (done.folder / "records").iterdir()
    assert sent.parent.data.tags["symlab.manifest"] == digest_of(folder)


@pytest.mark.slow
def test_a_part_that_fails_is_a_warning(sent, monkeypatch):
    def broken(*_):
        raise MemoryError("no room for\na page")

    monkeypatch.setattr(artifacts_module, "_page", broken)
    done = sent.run("sizes=[8]")
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "warning" in line] == [
        "symlab: warning: not attached in MLflow: report.html: no room for"
    ]
    assert "dashboard:" in done.out
    assert [run.info.status for run in sent.runs] == ["FINISHED"] * 3
    assert "not there: report.html: no room for" in sent.parent.data.tags["mlflow.note.content"]
    assert {"table.md", "records.jsonl.xz"} <= set(artifacts(sent))


@pytest.mark.parametrize(
    ("interrupted", "names", "outcome"),
    [("two_shot", ["report.html"], "2 cases: 1 passed, 1 not run"), ("", [], "2 cases: 2 not run")],
)
def test_an_interrupted_command_has_its_report_if_it_did_something(sent, script, interrupted, names, outcome):
    script.outcomes = {interrupted: KeyboardInterrupt()}
    done = sent.run("sizes=[8]")
    assert "not attached" not in done.err
    found = artifacts(sent)
    assert [name for name in found if name == "report.html"] == names
    assert names or found == ["configuration"]
    tags, metrics = sent.parent.data.tags, sent.parent.data.metrics
    assert outcome in tags["mlflow.note.content"]
    assert (sent.parent.info.status, tags["status"]) == ("KILLED", "INCOMPLETE")
    assert metrics["cases/not_run"] == 2 - metrics["cases/run"]


@pytest.mark.slow
def test_an_experiment_has_its_views_and_a_users_tags_stay(sent):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=sent.database)
    view = "mlflow.sharedViewState.symlab-time"
    experiment = client.create_experiment(sent.name, tags={"mlflow.note.content": "mine"})
    sent.run("sizes=[8]")
    tags = client.get_experiment(experiment).tags
    assert tags["mlflow.note.content"] == "mine"
    assert json.loads(tags[view])["name"] == "Latency and bus bandwidth over bytes"
    client.delete_experiment_tag(experiment, view)
    sent.run("sizes=[8]")
    assert view not in client.get_experiment(experiment).tags


@pytest.mark.slow
def test_bundles_are_sent_like_the_folders_they_are_of(sent, tmp_path, capsys):
    records = sent.symlab("-m", "world_size=2,3", "sizes=[8]").folder / "records"
    path = tmp_path / "all.jsonl.xz"
    bundle.write(bundle.read([records]), path)
    for places, said in (([path], "4 records sent as run"), ([records], "already sent"), ([path, records], "already")):
        assert sent.later(*places) == 0
        assert said in capsys.readouterr().out
    assert len(attached(sent, tmp_path)) == 4


@pytest.mark.slow
def test_a_bundle_beside_its_records_counts_once(sent, tmp_path, capsys):
    records = [record(size_bytes=KIB), refused()]
    folder = kept(tmp_path / "both", records)
    bundle.write(records, folder / "all.jsonl.xz")
    assert sent.later(folder) == 0
    assert "2 records sent" in capsys.readouterr().out
    assert sent.parent.data.metrics["cases/run"] == 2


@pytest.mark.slow
def test_what_was_sent_in_another_way_is_sent_again_to_the_same_runs(sent, monkeypatch, capsys):
    with monkeypatch.context() as before:
        before.setattr(send, "LAYOUT", "1")
        done = sent.run("sizes=[8]")
    for said in ("2 records sent", "already sent"):
        assert sent.later(done.folder / "records") == 0
        assert said in capsys.readouterr().out
        assert len(sent.runs) == 3


@pytest.mark.slow
def test_changed_records_take_the_place_of_none(sent, tmp_path, capsys):
    made = [record(size_bytes=KIB), record(size_bytes=2 * KIB)]
    assert sent.later(kept(tmp_path / "first", made)) == 0
    changed = dataclasses.replace(made[0], duration_s=made[0].duration_s + 0.5)
    assert sent.later(kept(tmp_path / "changed", [changed, made[1]])) == 0
    assert "it is complete, and differs from these records" in capsys.readouterr().out
    assert {bundle.line_of(one) for one in attached(sent, tmp_path)} == set(map(bundle.line_of, made))


@pytest.mark.slow
def test_while_more_is_sent_the_old_bundle_does_not_count(sent, tmp_path, monkeypatch):
    done = sent.symlab("sizes=[8,16]", "algorithms=one_shot")
    first, second = sorted(record_files(done.folder))
    assert sent.later(first) == 0
    assert sent.parent.data.tags[SENT_TAG]
    assert len(attached(sent, tmp_path)) == 1

    def broken(*_):
        raise RuntimeError("the power went out")

    with monkeypatch.context() as out:
        out.setattr(send.CommandRun, "finish", broken)
        assert sent.later(first, second) == 1
    assert sent.parent.data.tags[SENT_TAG] == ""


def test_each_part_that_fails_is_named_and_the_others_are_made(tmp_path):
    (tmp_path / "table.md").mkdir()
    (tmp_path / "report.html").mkdir()
    problems = build(tmp_path, [record()], tmp_path / "gone")
    assert [problem.partition(":")[0] for problem in problems] == ["table.md", "report.html"]
    assert (tmp_path / "records.jsonl.xz").is_file()
