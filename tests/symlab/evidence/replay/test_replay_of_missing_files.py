"""A replay of records of which a kernel's file is not here any more, beside a kernel that is."""

import json
import re

import pytest

from kernels.sources import ROOT
from reports.record.bundle import read
from runner.__main__ import main
from tests.symlab.evidence.audit.complete_set import asked

RING = ROOT / "conf" / "exp" / "own" / "ring.py"
ASKED = ["op=all_gather", "world_size=2", "sizes=[1K]", "track=none", "fabric=simulator"]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The folder of records of all_gather/pull and of a user's ring, whose file is gone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    file = tmp_path / "my" / "gone.py"
    file.write_text(RING.read_text())
    assert main([*ASKED, "algorithms=[pull,my/gone.py:SPEC]", "records=one"]) == 0
    file.unlink()
    return tmp_path / "one"


@pytest.mark.slow
def test_the_verdict_names_the_kernel_and_the_exit_code_is_2(recorded, capsys):
    capsys.readouterr()
    assert main(["replay", "one", "--records", "again"]) == 2
    verdict = capsys.readouterr().out.splitlines()[-1]
    start = (
        "verdict: NOT AUDITABLE (nothing of all_gather/ring was compared): 1 of 2 cases not compared; data: 1 BIT-EQUAL"
    )
    assert verdict.startswith(start)
    (path,) = recorded.parent.glob("again/*/verdict.json")
    assert json.loads(path.read_text())["exit_code"] == 2


@pytest.mark.slow
def test_an_audit_says_that_its_sources_were_not_compared(recorded):
    assert re.search("kernels NOT COMPARABLE: .*all_gather/ring: .*there is no file", asked(read([recorded])))
