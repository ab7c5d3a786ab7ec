"""Sets of records from MLflow: whose name it is, and the signatures that were sent with a command's folder."""

from __future__ import annotations

import dataclasses
import shutil
import socket
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from cases.record.record import Record
from reports.__main__ import main
from reports.record.bundle import read, write
from reports.tracked import Tracker, fetch
from runner.track import artifacts
from runner.track.__main__ import main as send
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.signatures import signed_with
from tests.golden import same_text
from tests.symlab.evidence.audit.complete_set import answer, evidence
from tests.symlab.evidence.audit.tampering import make_measured, name_of

EXPERIMENT = "compared"
COMMAND = name_of(0)


@dataclass(frozen=True)
class Place:
    """A folder of records and the database that they were sent to."""

    folder: Path

    @property
    def records(self) -> Path:
        return self.folder / "records"

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    def artifact(self, pattern: str) -> Path:
        """A file among the artifacts of the command's run."""
        with sqlite3.connect(self.folder / "mlflow.db") as connection:
            ((run,),) = connection.execute("select run_uuid from tags where key = 'symlab.series' and value = ''")
        (found,) = (self.folder / "mlartifacts" / run).rglob(pattern)
        return found


needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One command, signed by alice, and then sent without pictures; keys of alice and eve, and a list of alice."""
    place = Place(tmp_path_factory.mktemp("signed"))
    make_measured(place.records)
    for world in (1, 2, 3):
        shutil.rmtree(place.records / name_of(world))
    for name in ("alice", "eve"):
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(place.folder / name)]
        subprocess.run(line, check=True, capture_output=True)
    (place.folder / "signers").write_text(f"alice {(place.folder / 'alice.pub').read_text()}", encoding="utf-8")
    signed_with(place.records / COMMAND, place.folder / "alice")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_page", "_figures"):
            patch.setattr(artifacts, name, lambda *_: "")
        assert send([str(place.records), "--uri", place.uri, "--experiment", EXPERIMENT]) == 0
    return place


def vouched(place: Place, records: list[Record] | None = None) -> tuple[str, str]:
    """Who vouches for records from MLflow, and the finding."""
    records = fetch(place.uri, [EXPERIMENT]) if records is None else records
    signers, tracker = place.folder / "signers", Tracker(place.uri)
    with patch.object(worker, "ask", lambda *_: answer()):
        audit = check(records, source="MLflow", signers=signers, tracker=tracker)
    return audit.level.signed, evidence(audit, "signatures", Outcome.FINDING)


@pytest.mark.slow
@needs_ssh_keygen
def test_signatures_in_mlflow_are_verified(signed: Place) -> None:
    assert vouched(signed) == ("signed by alice", "")
    records = fetch(signed.uri, [EXPERIMENT])
    changed = [dataclasses.replace(records[0], duration_s=records[0].duration_s + 0.001), *records[1:]]
    assert vouched(signed, changed) == ("signed in part by alice", ""), "no signature is of the other record"


@pytest.mark.slow
@needs_ssh_keygen
def test_a_signature_in_mlflow_of_other_records_or_by_a_stranger_is_a_finding(signed: Place, tmp_path: Path) -> None:
    statement, bundle = signed.artifact("signed.txt"), signed.artifact("records.jsonl.xz")
    kept = {path: path.read_bytes() for path in (statement, statement.with_name("signed.txt.sig"), bundle)}
    records = read([bundle])
    try:
        write([dataclasses.replace(records[0], duration_s=9.0), *records[1:]], bundle)
        assert "changed after signing: " in vouched(signed)[1]
        bundle.write_bytes(kept[bundle])
        statement.write_text("I vouch for everything\n", encoding="ascii")
        assert "not a statement of symlab sign" in vouched(signed)[1]
        statement.write_bytes(kept[statement])
        other = Path(shutil.copytree(signed.records, tmp_path / "other")) / COMMAND
        statement.with_name("signed.txt.sig").unlink()
        assert vouched(signed) == ("unsigned", "")
        for path in other.glob("signed.txt*"):
            path.unlink()
        signed_with(other, signed.folder / "eve")
        shutil.copy(other / "signed.txt.sig", statement.with_name("signed.txt.sig"))
        assert "unknown signer" in vouched(signed)[1]
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


@pytest.mark.slow
@needs_ssh_keygen
def test_a_name_that_mlflow_has_is_mlflows(
    signed: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "ask", lambda *_: answer())
    monkeypatch.chdir(signed.folder)
    (signed.folder / EXPERIMENT).mkdir()
    at = ["--mlflow", "sqlite:///mlflow.db"]
    assert main(["audit", EXPERIMENT, *at]) == 0
    assert "no files, so no manifest" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", EXPERIMENT, "records", *at]) == 2
    assert "the same world stands on both sides" in capsys.readouterr().out
    assert main(["audit", "records", *at]) == 2
    same_text(capsys.readouterr().err)


def test_a_server_that_is_down_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_measured(tmp_path / "records")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["audit", str(tmp_path / "records"), "--mlflow", f"http://127.0.0.1:{port}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert f"http://127.0.0.1:{port}: can't be read" in captured.err
