"""A command's run in MLflow holds the report and what goes with it, however the command ended; what can't be made is a
warning."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reports import tracked
from reports.record import bundle
from reports.record.record import Record
from reports.record.seal import digest_of
from reports.tracked import SENT_TAG, fetch
from runner.track import artifacts as artifacts_module
from runner.track import send
from runner.track.__main__ import main as send_later
from runner.track.artifacts import build
from tests.reports.synthetic import KIB, MIB, record, refused
from tests.runner.conftest import Outcome, Script, record_files

Symlab = Callable[..., Outcome]
Runs = Callable[[str], dict[str, list[Any]]]


def artifacts(database: str, run_id: str, place: str = "") -> list[str]:
    from mlflow import MlflowClient

    return [one.path for one in MlflowClient(tracking_uri=database).list_artifacts(run_id, place or None)]


def text_of(database: str, run_id: str, artifact: str, folder: Path) -> str:
    from mlflow import MlflowClient

    path = MlflowClient(tracking_uri=database).download_artifacts(run_id, artifact, str(folder))
    return Path(path).read_text(encoding="utf-8")


def kept(folder: Path, records: Sequence[Record]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(records):
        (folder / f"{number}.json").write_text(one.to_json(), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_command_attaches_its_report_its_table_and_all_records(
    symlab: Symlab, database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    done = symlab("sizes=[8,16]", f"track.uri={database}", "track.experiment=attached", track=True)
    assert "warning" not in done.err
    (parent,) = mlflow_runs("attached")["parents"]
    run_id = parent.info.run_id
    assert artifacts(database, run_id) == ["configuration", "records.jsonl.xz", "report.html", "table.md"]
    report = text_of(database, run_id, "report.html", tmp_path)
    assert report.lstrip().startswith("<!DOCTYPE html>")
    assert "all_reduce" in report
    assert "one_shot" in text_of(database, run_id, "table.md", tmp_path)
    command = json.loads(text_of(database, run_id, "configuration/command.json", tmp_path))
    assert command["outcome"] == "complete"
    assert len(fetch(database, [run_id])) == 4
    (folder,) = (done.folder / "records").iterdir()
    assert parent.data.tags["symlab.manifest"] == digest_of(folder)
    assert digest_of(folder) in report


@pytest.mark.slow
def test_what_was_measured_is_drawn_twice(
    database: str, mlflow_runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record(name, size) for name in ("one_shot", "nccl") for size in (KIB, MIB)]
    assert send_later([str(kept(tmp_path / "timed", records)), "--uri", database, "--experiment", "drawn"]) == 0
    assert "not attached" not in capsys.readouterr().out
    (parent,) = mlflow_runs("drawn")["parents"]
    assert artifacts(database, parent.info.run_id, "figures") == [
        "figures/time_and_bandwidth.png",
        "figures/time_and_bandwidth.svg",
    ]


@pytest.mark.slow
def test_a_picture_that_fails_is_a_warning(
    symlab: Symlab, database: str, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("no room for\na canvas")

    monkeypatch.setattr(artifacts_module, "_figures", broken)
    done = symlab("sizes=[8]", f"track.uri={database}", "track.experiment=picture", track=True)
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "warning" in line] == [
        "symlab: warning: not attached in MLflow: figures: no room for"
    ]
    assert "dashboard:" in done.out
    runs = mlflow_runs("picture")
    assert [run.info.status for run in [*runs["parents"], *runs["children"]]] == ["FINISHED"] * 3
    (parent,) = runs["parents"]
    assert "not there: figures: no room for" in parent.data.tags["mlflow.note.content"]
    assert {"report.html", "records.jsonl.xz"} <= set(artifacts(database, parent.info.run_id))


def test_an_interrupted_command_has_its_report(
    symlab: Symlab, script: Script, database: str, mlflow_runs: Runs
) -> None:
    script.outcomes = {"two_shot": KeyboardInterrupt()}
    symlab("sizes=[8]", f"track.uri={database}", "track.experiment=cut_report", track=True)
    (parent,) = mlflow_runs("cut_report")["parents"]
    assert "report.html" in artifacts(database, parent.info.run_id)
    assert "2 cases: 1 passed, 1 did not run" in parent.data.tags["mlflow.note.content"]


def test_a_command_that_did_nothing_has_no_report_and_no_warning(
    symlab: Symlab, script: Script, database: str, mlflow_runs: Runs
) -> None:
    script.outcomes = {"": KeyboardInterrupt()}
    done = symlab("sizes=[8]", f"track.uri={database}", "track.experiment=nothing_done", track=True)
    assert "not attached" not in done.err
    (parent,) = mlflow_runs("nothing_done")["parents"]
    assert artifacts(database, parent.info.run_id) == ["configuration"]
    assert "2 cases: 2 did not run" in parent.data.tags["mlflow.note.content"]


def test_runs_say_what_they_are(symlab: Symlab, database: str, mlflow_runs: Runs) -> None:
    symlab("sizes=[8,16]", f"track.uri={database}", "track.experiment=said", track=True)
    runs = mlflow_runs("said")
    (parent,) = runs["parents"]
    place = f"#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}/artifacts/report.html"
    note = parent.data.tags["mlflow.note.content"]
    assert "**4 cases: 4 passed**" in note
    assert f"[report.html]({place})" in note
    assert "| one_shot" in note
    for child in runs["children"]:
        said = child.data.tags["mlflow.note.content"]
        assert "float32, sum with accumulator float32, 2 ranks, 8 B to 16 B, on the simulator" in said
        assert place in said


@pytest.mark.slow
def test_an_experiment_has_its_views_and_a_users_tags_stay(symlab: Symlab, database: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=database)
    experiment = client.create_experiment("own", tags={"mlflow.note.content": "mine"})
    symlab("sizes=[8]", f"track.uri={database}", "track.experiment=own", track=True)
    tags = client.get_experiment(experiment).tags
    assert tags["mlflow.note.content"] == "mine"
    assert json.loads(tags["mlflow.sharedViewState.symlab-time"])["name"] == "Latency and bus bandwidth over bytes"
    client.delete_experiment_tag(experiment, "mlflow.sharedViewState.symlab-time")
    symlab("sizes=[8]", f"track.uri={database}", "track.experiment=own", track=True)
    assert "mlflow.sharedViewState.symlab-time" not in client.get_experiment(experiment).tags


@pytest.mark.slow
def test_bundles_are_sent_like_the_folders_they_are_of(
    symlab: Symlab, database: str, mlflow_runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = symlab("-m", "world_size=2,3", "sizes=[8]")
    path = tmp_path / "all.jsonl.xz"
    bundle.write(bundle.read([done.folder / "records"]), path)
    options = ["--uri", database, "--experiment", "packed"]
    assert send_later([str(path), *options]) == 0
    assert "4 records sent as run" in capsys.readouterr().out
    (parent,) = mlflow_runs("packed")["parents"]
    assert len(fetch(database, [parent.info.run_id])) == 4
    assert send_later([str(done.folder / "records"), *options]) == 0
    assert "already sent" in capsys.readouterr().out
    assert send_later([str(path), str(done.folder / "records"), *options]) == 0
    assert "already sent" in capsys.readouterr().out


@pytest.mark.slow
def test_a_bundle_beside_its_records_counts_once(
    database: str, mlflow_runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record(size_bytes=KIB), refused()]
    folder = kept(tmp_path / "both", records)
    bundle.write(records, folder / "all.jsonl.xz")
    assert send_later([str(folder), "--uri", database, "--experiment", "both"]) == 0
    assert "2 records sent" in capsys.readouterr().out
    assert mlflow_runs("both")["parents"][0].data.metrics["cases/run"] == 2


@pytest.mark.slow
def test_what_was_sent_in_another_way_is_sent_again_to_the_same_runs(
    symlab: Symlab,
    database: str,
    mlflow_runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as before:
        before.setattr(send, "LAYOUT", "1")
        done = symlab("sizes=[8]", f"track.uri={database}", "track.experiment=layouts", track=True)
    arguments = [str(done.folder / "records"), "--uri", database, "--experiment", "layouts"]
    assert send_later(arguments) == 0
    assert "2 records sent" in capsys.readouterr().out
    runs = mlflow_runs("layouts")
    assert (len(runs["parents"]), len(runs["children"])) == (1, 2)
    assert send_later(arguments) == 0
    assert "already sent" in capsys.readouterr().out


@pytest.mark.slow
def test_contents_are_compared_and_not_names(
    database: str, mlflow_runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [record(size_bytes=KIB), record(size_bytes=2 * KIB)]
    options = ["--uri", database, "--experiment", "contents"]
    assert send_later([str(kept(tmp_path / "first", made)), *options]) == 0
    (parent,) = mlflow_runs("contents")["parents"]
    assert send_later([str(kept(tmp_path / "part", made[:1])), *options]) == 0
    assert made[0].timing is not None
    quicker = tuple(tuple(value / 2 for value in row) for row in made[0].timing.samples_us)
    changed = dataclasses.replace(made[0], timing=dataclasses.replace(made[0].timing, samples_us=quicker))
    capsys.readouterr()
    for name, records in (("whole", [changed, made[1]]), ("alone", [changed])):
        assert send_later([str(kept(tmp_path / name, records)), *options]) == 1
        said = capsys.readouterr().err
        assert f"1 record of it in MLflow, as run {parent.info.run_id}, differ" in said
        assert changed.id in said
    assert {bundle.line_of(one) for one in fetch(database, [parent.info.run_id])} == set(map(bundle.line_of, made))


@pytest.mark.slow
def test_while_more_is_sent_the_old_bundle_does_not_count(
    symlab: Symlab, database: str, mlflow_runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = symlab("sizes=[8,16]", "algorithms=one_shot")
    first, second = sorted(record_files(done.folder))
    options = ["--uri", database, "--experiment", "more"]
    assert send_later([str(first), *options]) == 0
    (parent,) = mlflow_runs("more")["parents"]
    assert parent.data.tags[SENT_TAG]
    assert len(fetch(database, [parent.info.run_id])) == 1

    def broken(*_: Any) -> list[str]:
        raise RuntimeError("the power went out")

    with monkeypatch.context() as out:
        out.setattr(send.CommandRun, "finish", broken)
        assert send_later([str(first), str(second), *options]) == 1
    assert mlflow_runs("more")["parents"][0].data.tags[SENT_TAG] == ""
    assert len(fetch(database, [parent.info.run_id])) == 2  # from the children


def test_the_names_that_both_sides_know_are_the_same(database: str) -> None:
    path = Path(database.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as connection:
        keys = {key for (key,) in connection.execute("select distinct key from tags")}
    assert {tracked.COMMAND_TAG, tracked.SERIES_TAG, tracked.SENT_TAG, tracked.PARENT_TAG} <= keys


def test_each_part_that_fails_is_named_and_the_others_are_made(tmp_path: Path) -> None:
    (tmp_path / "table.md").mkdir()
    (tmp_path / "figures").write_text("in the way", encoding="utf-8")
    problems = build(tmp_path, [record()], tmp_path / "gone")
    assert [problem.partition(":")[0] for problem in problems] == ["table.md", "figures"]
    assert {"records.jsonl.xz", "report.html"} <= {path.name for path in tmp_path.iterdir()}
