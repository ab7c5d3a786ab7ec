"""The experiments of fused matmuls, as the command runs them."""

import pytest

from reports.record.bundle import read
from runner.__main__ import main

NAMES = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_passes_without_races(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([f"+exp={name}_bf16", "fabric=simulator", "track=none"]) == 0
    (record,) = read(["records"])
    assert (record.case.name, str(record.status)) == (f"custom/{name}", "PASSED")
    assert record.findings == ()
