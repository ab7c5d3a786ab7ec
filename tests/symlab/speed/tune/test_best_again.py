"""Records of algorithms=best without their table: replay and audit run its kernels by name, and launchers' ranks do."""

import pytest

from reports.record.bundle import read
from runner.__main__ import main as run_main
from symlab.command import main
from symlab.speed.tuned.table import digest_of
from tests.symlab.speed.tuned.test_tuned_table import TABLE


@pytest.mark.slow
def test_replay_and_audit_need_no_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "t.json"
    table.write_text(TABLE.text())
    line = ["op=all_reduce", "dtype=bfloat16", "algorithms=[best,ll]", "sizes=[1K,16K]", "fabric=simulator"]
    assert run_main([*line, "track=none", "tuned=t.json"]) == 0
    table.unlink()
    (folder,) = (tmp_path / "records").iterdir()
    records = read([folder])
    names = {record.case.algorithm for record in records}
    (large,) = (one for one in records if one.case.algorithm.startswith("two_shot@"))
    given = large.request.kernel
    assert given["chosen"]["digest"] == digest_of(TABLE.text())
    assert "searched on NVIDIA H200" in given["chosen"]["nearest"]
    assert given["tuning"]["threads"] == given["choices"]["threads"] == 512
    assert names == {"lamport@t128b4l8", "two_shot@t512b64l8p", "ll"}
    capsys.readouterr()
    assert main(["audit", str(folder), "--rerun", "all"]) == 0
    said = capsys.readouterr().out
    assert "4 of 4 cases that configurations ask for: all agree" in said
    assert "4 cases run again here from the records alone" in said
    assert main(["replay", str(folder), "--records", "again"]) == 0
    assert "4 BIT-EQUAL" in capsys.readouterr().out
