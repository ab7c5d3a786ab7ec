"""Sets of records from MLflow beside sets in files: whose name it is."""

import shutil
import socket

import pytest

from reports.__main__ import main
from reports.record.bundle import read
from reports.record.seal import MANIFEST
from runner.track import artifacts
from runner.track.__main__ import main as send
from symlab.evidence.audit import worker
from tests.golden import same_text
from tests.symlab.evidence.audit.complete_set import answer, audited, kept
from tests.symlab.evidence.audit.tampering import make_measured

EXPERIMENT = "compared"


@pytest.mark.slow
def test_what_lies_in_files_is_read_there_and_all_else_from_mlflow(tmp_path, monkeypatch, capsys):
    make_measured(tmp_path / "records")
    monkeypatch.chdir(tmp_path)
    for name in ("_page", "_figures"):
        monkeypatch.setattr(artifacts, name, lambda *_: "")
    assert send(["records", "--uri", "sqlite:///mlflow.db", "--experiment", EXPERIMENT]) == 0
    capsys.readouterr()
    monkeypatch.setattr(worker, "ask", lambda *_: answer())
    at = ["--mlflow", "sqlite:///mlflow.db"]
    assert main(["audit", EXPERIMENT, *at]) == 0
    assert "no files, so no manifest" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", EXPERIMENT, "records", *at]) == 2
    assert "the same world stands on both sides" in capsys.readouterr().out
    assert main(["audit", "records", *at]) == 2
    same_text(capsys.readouterr().err)


@pytest.mark.parametrize("name", ["mlartifacts", "mlruns"])
def test_what_mlflow_keeps_beside_records_is_no_set(name, tmp_path):
    """A folder as symlab run leaves it: MLflow's copies of configurations lack the files that their manifest names."""
    kept(tmp_path / "records")
    first = next((tmp_path / "records").iterdir())
    copies = tmp_path / name / "d274" / "artifacts"
    (copies / "configuration").mkdir(parents=True)
    for file in ("command.json", "configuration.yaml", MANIFEST):
        shutil.copy(first / file, copies / "configuration")
    shutil.copytree(first, copies / "records", ignore=shutil.ignore_patterns(MANIFEST))
    whole = audited(place=tmp_path / "records")
    beside = audited(place=tmp_path)
    assert (beside.exit_code, beside.records, beside.verdict) == (whole.exit_code, whole.records, whole.verdict)
    assert len(read([copies / "records"])) > 0, "asked for by name, they are read"


def test_a_server_that_is_down_is_one_line(tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["audit", EXPERIMENT, "--mlflow", f"http://127.0.0.1:{port}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert f"http://127.0.0.1:{port}: can't be read" in captured.err
