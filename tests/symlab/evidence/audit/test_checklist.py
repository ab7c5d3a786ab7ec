"""The list of items as a whole: a complete set, a bare one, simulated ones, old ones; the verdict and its forms."""

import dataclasses
from pathlib import Path
from unittest.mock import patch

import pytest

from cases.record.record import CHECK_WAS_OFF, load
from cases.record.request import RecordedEnvironment, RecordedRequest
from reports.record.bundle import read
from reports.table import sheet
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import ITEMS, check
from symlab.evidence.audit.items import Outcome, Point
from symlab.evidence.audit.level import Recomputed, with_outcome
from symlab.evidence.audit.result import as_json
from tests.golden import same_text
from tests.reports.synthetic import study
from tests.symlab.evidence.audit.complete_set import answer, audited, evidence, kept, records, without
from tests.symlab.evidence.audit.invented_records import simulated

EXAMPLES = Path(__file__).parents[3] / "reports" / "examples"


def test_a_complete_set_is_verified_in_every_item(tmp_path):
    audit = audited(place=kept(tmp_path / "records"))
    gaps = {one.name: evidence(audit, one.name, Outcome.NOT_CAPTURED) for one in audit.items}
    assert [name for name, text in gaps.items() if text] == ["signatures"], "commands sign nothing"
    assert [one.name for one in audit.items] == [*ITEMS, "signatures"]
    assert {one.outcome for one in audit.items[:-1]} <= {Outcome.VERIFIED, Outcome.CAPTURED, Outcome.DOES_NOT_APPLY}
    assert set(with_outcome(audit.items, Outcome.VERIFIED)) == set(answer().points), (
        "what is recomputed or compared, and nothing else"
    )
    assert audit.exit_code == 0
    assert (
        audit.verdict
        == "DATA VERIFIED IN PART: data recomputed in 1 of 2; times stated, not verified; consistent; unsigned"
    )


def each(**changes):
    return [dataclasses.replace(one, **changes) for one in records()]


def on_a_simulator():
    """Without GPUs and a driver, of our kernel alone."""
    members = [simulated(record) for record in records() if record.kernel is not None]
    return without([dataclasses.replace(one, counters={"instructions": 8}) for one in members], "gpus", "cuda_driver")


def with_a_changed_tree():
    git = {"commit": "0" * 40, "branch": "main", "dirty": True, "changed_files": 1}
    return [dataclasses.replace(one, environment=dataclasses.replace(one.environment, git=git)) for one in records()]


ONE, OTHER = "all_reduce/one_shot", "all_reduce/other"
BARE = [
    dataclasses.replace(record, environment=RecordedEnvironment(), request=RecordedRequest())
    for record in study(worlds=1)
]
SETS = {
    "unchanged": {},
    "bare": {"members": BARE, "said": answer(problem="no answer")},
    "a finding": {"said": answer(cases=[Point(Outcome.FINDING, "a case is missing")])},
    "cases not compared": {"said": answer(cases=[Point(Outcome.NOT_COMPARABLE, "no configuration")])},
    "a changed tree": {"members": with_a_changed_tree()},
    "nothing checked": {"members": each(check=None, timing=None, reason=CHECK_WAS_OFF), "said": answer(Recomputed())},
    "simulated": {"members": on_a_simulator()},
    "on GPUs without times": {"members": each(timing=None)},
    "no worker": {"said": answer(problem="it took longer than 5 s")},
    "nothing recomputed": {"said": answer(Recomputed())},
    "0 of 2": {"said": answer(Recomputed(0, 2, kernels=[ONE], without=[ONE]))},
    "a kernel without": {"said": answer(Recomputed(1, 2, kernels=[ONE, OTHER], without=[OTHER]))},
    "one unexplained": {"said": answer(Recomputed(1, 2, kernels=[ONE], unexplained=1))},
    "one ended": {"said": answer(Recomputed(1, 2, ended=1, kernels=[]))},
    "2 of 2": {"said": answer(Recomputed(2, 2, kernels=[ONE, OTHER]))},
    **{
        name: {"members": [load(EXAMPLES / f"{name}.json")], "place": EXAMPLES / f"{name}.json"}
        for name in ("schema2", "schema2_library")
    },
}


def points(audit):
    return [f"{one.name} {point.outcome}: {point.evidence}" for one in audit.items for point in one.points]


@pytest.mark.parametrize("name", SETS)
def test_what_is_said(name):
    """The verdict and its level, and all points of which the unchanged set has not the same."""
    audit, unchanged = audited(**SETS[name]), points(audited()) if name != "unchanged" else ()
    said = [one for one in points(audit) if one not in unchanged]
    head = [f"{audit.exit_code}: {audit.verdict}", *said]
    same_text("\n".join(head), r"(?<=SHA-256 )\w+", r"[\d,]+(?= h after this audit)")


def test_the_forms_hold_every_point(tmp_path):
    audit = audited(place=kept(tmp_path / "records"))
    forms = (sheet.text(audit.sheets, ()), as_json(audit))
    assert all(point.evidence in form for form in forms for one in audit.items for point in one.points)
    same_text("\n".join([sheet.markdown(audit.sheets, audit.captions), forms[1]]), r"(?<=sha256:)\w{64}")


def test_progress_is_told(tmp_path):
    told = []
    with patch.object(worker, "ask", lambda *_: answer()):
        check(read([kept(tmp_path / "records")]), say=told.append)
    assert len(told) == 2
