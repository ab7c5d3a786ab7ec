"""A folder that is signed after it was sent: sending it again adds its signatures, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import Record
from reports.record.bundle import read
from reports.record.seal import digest_of, seal
from reports.record.signed import BEGIN, END, SIGNATURES, SIGNED, statement_of
from reports.tracked import Tracker
from runner.track.__main__ import main as send_later
from tests.reports.audit.complete_set import changed, kept, records

Runs = Callable[[str], dict[str, list[Any]]]

ALICE, BOB = (f"{BEGIN}\n{name}\n{END}\n" for name in ("QWxpY2U=", "Qm9i"))
"""What is sent has only the form of a signature: it is verified where it is read."""


def signed(folder: Path, *signatures: str, members: Sequence[Record] = ()) -> None:
    text = statement_of(members or read([folder]), digest_of(folder)).text()
    (folder / SIGNED).write_text(text, encoding="ascii")
    (folder / SIGNATURES).write_text("".join(signatures), encoding="ascii")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = kept(tmp_path / "records", records(1)) / "command0"
    document = json.loads((found / "command.json").read_text(encoding="utf-8"))
    for job in document["jobs"]:
        job["differs"] = {}
    (found / "command.json").write_text(json.dumps(document), encoding="utf-8")
    seal(found)
    return found


@pytest.fixture
def sent(folder: Path, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Sends the folder, and returns what was said of it."""

    def send() -> str:
        assert send_later([str(folder), "--uri", database, "--experiment", tmp_path.name]) == 0
        return capsys.readouterr().out.splitlines()[0]

    return send


def there(database: str, runs: dict[str, list[Any]]) -> dict[str, Any]:
    """Everything that MLflow has of the command: artifacts with their contents, tags, numbers of values, and times."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=database)
    found: dict[str, Any] = {}
    for run in [*runs["parents"], *runs["children"]]:
        key = run.info.run_id
        found[key] = (dict(run.data.tags), run.info.status, run.info.start_time, run.info.end_time)
        for metric in run.data.metrics:
            found[f"{key} {metric}"] = [(one.step, one.value) for one in client.get_metric_history(key, metric)]
        place = Path(run.info.artifact_uri.removeprefix("file://"))
        for path in sorted(place.rglob("*")):
            if path.is_file():
                found[f"{key}/{path.relative_to(place)}"] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found


def signatures(database: str, runs: dict[str, list[Any]]) -> tuple[str, ...]:
    (parent,) = runs["parents"]
    tracker = Tracker(database)
    (run,) = [one for one in tracker.parents("command0") if one.id == parent.info.run_id]
    found = tracker.signed(run)
    return found.signatures if found is not None else ()


@pytest.mark.slow
def test_sending_again_adds_the_signature_and_nothing_else(
    folder: Path, sent: Callable[[], str], database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    assert "2 records sent" in sent()
    before = there(database, mlflow_runs(tmp_path.name))
    signed(folder, ALICE)
    assert sent().endswith(": 1 signature added")
    runs = mlflow_runs(tmp_path.name)
    after = there(database, runs)
    (parent,) = runs["parents"]
    new = [f"{parent.info.run_id}/configuration/{name}" for name in (SIGNED, SIGNATURES)]
    assert sorted(after.keys() - before.keys()) == sorted(new)
    assert {key: after[key] for key in before} == before
    assert after[new[0]][0] == (folder / SIGNED).read_bytes()
    assert signatures(database, runs) == (ALICE,)
    assert sent().endswith(": nothing done")
    assert there(database, mlflow_runs(tmp_path.name)) == after


@pytest.mark.slow
def test_a_second_signer_is_added_to_the_first(
    folder: Path, sent: Callable[[], str], database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    signed(folder, ALICE)
    sent()
    signed(folder, ALICE, BOB)
    assert sent().endswith(": 1 signature added")
    assert signatures(database, mlflow_runs(tmp_path.name)) == (ALICE, BOB)


@pytest.mark.slow
def test_signatures_that_mlflow_has_are_not_removed(
    folder: Path, sent: Callable[[], str], database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    signed(folder, ALICE)
    sent()
    signed(folder, BOB)
    assert "signatures are not sent: MLflow has signatures that the folder lacks" in sent()
    other = [changed(one, duration_s=one.duration_s + 0.5) for one in read([folder])]
    signed(folder, ALICE, members=other)
    assert "another statement" in sent()
    assert signatures(database, mlflow_runs(tmp_path.name)) == (ALICE,)


@pytest.mark.slow
def test_a_signature_of_other_records_is_not_sent(
    folder: Path, sent: Callable[[], str], database: str, mlflow_runs: Runs, tmp_path: Path
) -> None:
    sent()
    signed(folder, ALICE, members=read([folder])[:1])
    assert "signed of other records than MLflow has" in sent()
    (folder / SIGNED).unlink()
    assert "signatures are not sent" in sent()
    (folder / SIGNATURES).write_text("", encoding="ascii")
    assert "signatures are not sent" in sent()
    assert signatures(database, mlflow_runs(tmp_path.name)) == ()
