"""Copies of records that MLflow keeps beside them are no set."""

import shutil

import pytest

from reports.record.bundle import read
from reports.record.seal import MANIFEST
from tests.symlab.evidence.audit.complete_set import audited, kept

EXPERIMENT = "compared"


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
