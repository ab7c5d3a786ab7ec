"""The list of items as a whole: a complete set, a bare one, simulated ones, old ones; the verdict and its forms."""

import dataclasses
import json
from pathlib import Path
from unittest.mock import patch

import pytest

from cases.record.record import CHECK_WAS_OFF, load
from cases.record.request import RecordedEnvironment, RecordedRequest
from reports.record.bundle import read
from reports.table import sheet
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import ITEMS, RECOMPUTED, check
from symlab.evidence.audit.items import Outcome, Point
from symlab.evidence.audit.level import Recomputed
from tests.golden import same_text
from tests.reports.synthetic import study
from tests.symlab.evidence.audit.complete_set import answer, audited, evidence, kept, outcomes, records, without
from tests.symlab.evidence.audit.invented_records import simulated

EXAMPLES = Path(__file__).parents[3] / "reports" / "examples"
BARE = {"environment": RecordedEnvironment(), "request": RecordedRequest()}


def test_a_complete_set_is_verified_in_every_item(tmp_path):
    audit = audited(place=kept(tmp_path / "records"))
    gaps = {one.name: evidence(audit, one.name, Outcome.NOT_CAPTURED) for one in audit.items}
    assert [name for name, text in gaps.items() if text] == ["signatures"], "commands sign nothing"
    assert [one.name for one in audit.items] == [*ITEMS, "signatures"]
    assert {one.outcome for one in audit.items[:-1]} <= {Outcome.VERIFIED, Outcome.CAPTURED, Outcome.DOES_NOT_APPLY}
    assert set(audit.level.verified) == set(answer().points), "what is recomputed or compared, and nothing else"
    assert audit.exit_code == 0
    assert (
        audit.verdict
        == "DATA VERIFIED IN PART: data recomputed in 1 of 2; times stated, not verified; consistent; unsigned"
    )


def test_all_that_is_said_of_the_unchanged_set():
    """What tells() compares other sets with."""
    audit = audited()
    said = [f"{one.name} {point.outcome}: {point.evidence}" for one in audit.items for point in one.points]
    same_text("\n".join(said))


def test_nothing_is_passed_by_default():
    """Of records that hold next to nothing, next to nothing is verified, and all else is named."""
    bare = [dataclasses.replace(record, **BARE) for record in study(worlds=1)]
    audit = audited(bare, said=answer(problem="no answer"))
    assert audit.level.verified == ()
    said_by_a_record_alone = {"kernels", "timing", "limit", "figures", "clocks", "samples"}
    for name in {one.name for one in audit.items} - said_by_a_record_alone:
        assert outcomes(audit, name) & {Outcome.NOT_CAPTURED, Outcome.NOT_COMPARABLE}, name
    assert "no answer" in evidence(audit, "configuration", Outcome.NOT_COMPARABLE)


def test_a_finding_decides_and_is_named():
    audit = audited(said=answer(cases=[Point(Outcome.FINDING, "a case is missing")]))
    assert audit.exit_code == 1
    assert (
        audit.verdict == "FINDING: findings in cases; data recomputed in 1 of 2; times stated, not verified; unsigned"
    )


def test_the_last_line_names_the_items_that_were_not_compared():
    audit = audited(said=answer(cases=[Point(Outcome.NOT_COMPARABLE, "no configuration")]))
    assert audit.verdict.endswith("consistent; unsigned; not comparable in cases")


def test_the_level_says_that_the_tree_was_changed():
    """What a commit lacks may explain any difference, so it stands on the last line."""
    git = {"commit": "0" * 40, "branch": "main", "dirty": True, "changed_files": 1}
    members = [dataclasses.replace(one, environment=dataclasses.replace(one.environment, git=git)) for one in records()]
    audit = audited(members)
    assert "; changed tree; unsigned" in audit.verdict
    assert audit.level.document()["changed_tree"] is True
    assert "changed tree" not in audited().verdict


ONE, OTHER = "all_reduce/one_shot", "all_reduce/other"


@pytest.mark.parametrize(
    ("level", "says", "code"),
    [
        (Recomputed(), "0 of 0", 2),
        (Recomputed(0, 2, kernels=[ONE], without=[ONE]), "0 of 2", 2),
        (Recomputed(1, 2, kernels=[ONE, OTHER], without=[OTHER]), "1 of 2, none of all_reduce/other", 2),
        (Recomputed(1, 2, kernels=[ONE], unexplained=1), "1 of 2, 1 changed since", 2),
        (Recomputed(1, 2, ended=1, kernels=[]), "1 of 2", 2),
        (Recomputed(2, 2, kernels=[ONE, OTHER]), "2 of 2", 0),
    ],
)
def test_a_set_needs_data_recomputed_of_each_kernel(level, says, code):
    audit = audited(said=answer(level))
    head = "DATA VERIFIED" if code == 0 else "NOT AUDITABLE"
    wanted = f"{head}: data recomputed in {says}; times stated, not verified; consistent; unsigned"
    assert (audit.exit_code, audit.verdict) == (code, wanted)


def unchecked(members):
    return [dataclasses.replace(one, check=None, timing=None, reason=CHECK_WAS_OFF) for one in members]


def test_a_set_of_which_nothing_was_checked_is_not_auditable(tmp_path):
    """However much else is verified: nobody looked at the data."""
    audit = audited(place=kept(tmp_path / "records", unchecked(records())), said=answer(Recomputed()))
    assert {"configuration", "cases"} <= set(audit.level.verified)
    assert audit.exit_code == 2
    assert audit.verdict.startswith("NOT AUDITABLE: ")


TIMED = ("clocks", "timing", "samples", "baselines", "limit")


def test_simulated_sets_have_no_clocks_and_no_gpus():
    simulations = [simulated(record) for record in records() if record.kernel is not None]
    members = [dataclasses.replace(record, counters={"instructions": 8}) for record in simulations]
    audit = audited(without(members, "gpus", "cuda_driver"))
    for name in TIMED:
        assert outcomes(audit, name) == {Outcome.DOES_NOT_APPLY}
    assert outcomes(audit, "machine") == {Outcome.CAPTURED}
    assert "driver" not in evidence(audit, "software", Outcome.NOT_CAPTURED)
    assert audit.exit_code == 0


def test_what_ran_on_gpus_and_was_not_timed_is_said():
    audit = audited([dataclasses.replace(record, timing=None) for record in records()])
    for name in TIMED:
        assert evidence(audit, name, Outcome.NOT_CAPTURED) == "nothing was timed, although it ran on GPUs"


@pytest.mark.parametrize("name", ["schema2.json", "schema2_library.json"])
def test_the_published_schema_audits_without_a_finding(name):
    record = load(EXAMPLES / name)
    audit = audited([record], EXAMPLES / name)
    assert audit.exit_code == 0
    if record.check is not None:
        assert "the records hold none (schema 2)" in evidence(audit, "data", Outcome.NOT_CAPTURED)


def test_without_a_worker_what_it_would_say_is_named():
    audit = audited(said=answer(problem="it took longer than 5 s"))
    for name in RECOMPUTED:
        assert "it took longer than 5 s" in evidence(audit, name, Outcome.NOT_COMPARABLE)
    assert audit.exit_code == 2


def test_the_forms_hold_every_point(tmp_path):
    audit = audited(place=kept(tmp_path / "records"))
    text = sheet.text(audit.sheets, audit.captions)
    markdown = sheet.markdown(audit.sheets, audit.captions)
    document = json.loads(json.dumps(audit.document(), allow_nan=False))
    assert [one["name"] for one in document["items"]] == [one.name for one in audit.items]
    for one, entry in zip(audit.items, document["items"], strict=True):
        assert one.name in text
        assert all(point.evidence in text for point in one.points)
        assert entry["outcome"] == str(one.outcome)
    assert "| ground |" in markdown.replace("  ", " ")
    assert "recomputed, 8 of 8" in markdown
    assert document["items"][7]["points"][0]["share"] == [8, 8]
    assert document["items"][7]["points"][0]["ground"] == "recomputed"
    assert document["exit_code"] == 0


def test_progress_is_told(tmp_path):
    told = []
    with patch.object(worker, "ask", lambda *_: answer()):
        check(read([kept(tmp_path / "records")]), say=told.append)
    assert len(told) == 2
