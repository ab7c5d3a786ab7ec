"""The list of items as a whole: a complete set, a bare one, simulated ones, old ones; the verdict and its forms."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cases.record.record import CHECK_WAS_OFF, Record, RecordedEnvironment, RecordedRequest, load
from reports.audit.checklist import Audit, check
from reports.audit.items import Outcome
from reports.audit.level import Level
from reports.record.bundle import read
from reports.table import sheet
from tests.golden import same_text
from tests.reports.audit.complete_set import answer, audited, evidence, item, kept, outcomes, points, records, without
from tests.reports.audit.invented_records import simulated
from tests.reports.synthetic import study

EXAMPLES = Path(__file__).parents[1] / "examples"
BARE: dict[str, Any] = {"environment": RecordedEnvironment(), "request": RecordedRequest()}


def test_a_complete_set_is_verified_in_every_item(tmp_path: Path) -> None:
    audit = audited(place=kept(tmp_path / "records"))
    gaps = {one.number: evidence(audit, one.number, Outcome.NOT_CAPTURED) for one in audit.items}
    assert list(number for number, text in gaps.items() if text) == [21], "commands sign nothing"
    assert [one.number for one in audit.items] == list(range(1, 22))
    assert {one.outcome for one in audit.items[:20]} <= {Outcome.VERIFIED, Outcome.CAPTURED, Outcome.DOES_NOT_APPLY}
    verified = {one.number for one in audit.items if Outcome.VERIFIED in outcomes(audit, one.number)}
    assert verified == {1, 3, 6, 8, 9, 16, 19}, (
        "what is recomputed or compared, and nothing that the records only state"
    )
    assert audit.exit_code == 0
    assert (
        audit.verdict
        == "DATA VERIFIED IN PART: data recomputed in 1 of 2; times stated, not verified; consistent; unsigned"
    )
    assert audit.summary.startswith("8 records, 21 items: ")


def test_all_that_is_said_of_the_unchanged_set() -> None:
    """What tells() compares other sets with."""
    audit = audited()
    said = [f"{one.number} {outcome}: {text}" for one in audit.items for outcome, text in points(audit, one.number)]
    same_text("\n".join(said))


def test_nothing_is_passed_by_default() -> None:
    """Of records that hold next to nothing, next to nothing is verified, and all else is named."""
    bare = [dataclasses.replace(record, **BARE) for record in study(worlds=1)]
    audit = check(bare, ask=lambda *_: (None, "nobody is there"))
    for number in (1, 2, 4, 5, 6, 8, 9, 11, 14, 16, 17, 18, 19, 20):
        expected = {Outcome.NOT_CAPTURED, Outcome.NOT_COMPARABLE} if number != 11 else {Outcome.CAPTURED}
        assert outcomes(audit, number) & expected, number
    assert "nobody is there" in evidence(audit, 1, Outcome.NOT_COMPARABLE)


def test_a_finding_decides_and_is_named() -> None:
    audit = audited(cases={"missing": [["command0", 0, "a case"]]})
    assert audit.exit_code == 1
    assert (
        audit.verdict == "FINDING: findings in item 16; data recomputed in 1 of 2; times stated, not verified; unsigned"
    )
    assert audit.summary.endswith("; findings in item 16")


def test_the_last_line_names_the_items_that_were_not_compared() -> None:
    audit = audited(cases={"not_comparable": [["command0", 0, "no configuration"]]})
    assert audit.verdict.endswith("consistent; unsigned; not comparable in item 16")


def test_the_level_says_that_the_tree_was_changed() -> None:
    """What a commit lacks may explain any difference, so it stands on the last line."""
    git = {"commit": "0" * 40, "branch": "main", "dirty": True, "changed_files": 1}
    members = [dataclasses.replace(one, environment=dataclasses.replace(one.environment, git=git)) for one in records()]
    assert "; changed tree; unsigned" in audited(members).verdict
    assert "changed tree" not in audited().verdict


RERUN: dict[str, Any] = answer()["rerun"]
OTHER = ["the case of other", "all_reduce/other", "reference"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"agree": [], "of": 0, "kernels": []}, "0 of 0"),
        ({"agree": []}, "0 of 2"),
        ({"kernels": ["all_reduce/one_shot", "all_reduce/other"]}, "1 of 2, none of all_reduce/other"),
        ({"agree": [OTHER], "kernels": ["all_reduce/one_shot"]}, "1 of 2, none of all_reduce/one_shot"),
        (
            {"not_comparable": [["a case", "its code changed since"]]},
            "1 of 2, 1 changed since; not comparable in item 9",
        ),
    ],
)
def test_a_set_needs_data_recomputed_of_each_kernel(changes: dict[str, Any], says: str) -> None:
    audit = audited(rerun={"stated": [], **changes})
    data, _, rest = says.partition("; ")
    stated = "times stated, not verified; consistent; unsigned"
    wanted = f"NOT AUDITABLE: data recomputed in {data}; {stated}{'; ' if rest else ''}{rest}"
    assert (audit.exit_code, audit.verdict) == (2, wanted)


def test_one_case_of_each_kernel_is_enough() -> None:
    both = {"kernels": ["all_reduce/one_shot", "all_reduce/other"], "agree": [*RERUN["agree"], OTHER]}
    assert audited(rerun=both).exit_code == 0


def test_data_that_comes_out_differently_is_a_finding() -> None:
    audit = audited(rerun={"agree": [], "different": [["a case", "elements is 7 in the record, 8 here"]]})
    assert audit.exit_code == 1
    assert "a case: elements is 7 in the record, 8 here" in evidence(audit, 9, Outcome.FINDING)
    code = audited(rerun={"code": {"agree": [], "different": [["a case", "grid is 7"]], "stated": []}})
    assert (code.exit_code, "a case: grid is 7" in evidence(code, 3, Outcome.FINDING)) == (1, True)
    counters = audited(rerun={"counters": {"agree": [], "different": [["a case", "counter x"]], "stated": []}})
    assert (counters.exit_code, "a case: counter x" in evidence(counters, 19, Outcome.FINDING)) == (1, True)


def test_what_was_not_recomputed_is_stated_with_the_reasons() -> None:
    audit = audited()
    assert evidence(audit, 9, Outcome.CAPTURED).startswith("data of 1 case: 1 a library ran it, which needs GPUs")
    stated = {"agree": [], "different": [], "stated": [["a case", "stated: sources changed"]]}
    assert "1 stated: sources changed" in evidence(audited(rerun={"code": stated}), 3, Outcome.CAPTURED)


def unchecked(members: list[Record]) -> list[Record]:
    return [dataclasses.replace(one, check=None, timing=None, reason=CHECK_WAS_OFF) for one in members]


def test_a_set_of_which_nothing_was_checked_is_not_auditable(tmp_path: Path) -> None:
    """However much else is verified: nobody looked at the data."""
    nothing = {"of": 0, "kernels": [], "agree": [], "stated": []}
    audit = audited(place=kept(tmp_path / "records", unchecked(records())), rerun=nothing)
    assert {1, 16} <= {one.number for one in audit.items if Outcome.VERIFIED in outcomes(audit, one.number)}
    assert audit.exit_code == 2
    assert audit.verdict.startswith("NOT AUDITABLE: ")


def test_nothing_is_verified_of_records_that_hold_nothing() -> None:
    bare = [dataclasses.replace(one, **BARE, kernel=None) for one in unchecked(records()) if one.library]
    audit = check(bare, ask=lambda *_: (None, "nobody is there"))
    assert [one.number for one in audit.items if Outcome.VERIFIED in outcomes(audit, one.number)] == []
    assert audit.exit_code == 2


def test_a_changed_tree_is_a_part_of_the_level() -> None:
    clean, changed = Level(1, 1), Level(1, 1, is_changed=True)
    assert changed.document()["changed_tree"] is True
    assert changed.below(clean.document()) == ["it is of a tree with changes that its commit lacks"]
    assert clean.below(changed.document()) == changed.below(changed.document()) == []
    older = {key: value for key, value in clean.document().items() if key != "changed_tree"}
    assert (clean.below(older), len(changed.below(older))) == ([], 1)
    with pytest.raises(ValueError, match="not a level"):
        clean.below({**older, "changed_tree": "no"})


def test_refusals_that_are_none_here_are_a_finding() -> None:
    good = {"agree": ["a case"], "different": [], "not_comparable": []}
    said = worker_says(refusals=good)
    assert "1 refusal on GPUs decided again: refused here, too" in evidence(said, 16, Outcome.VERIFIED)
    found = worker_says(refusals={**good, "different": [["b case", "nothing refuses it here"]]})
    assert "1 of 2 refusals on GPUs are none here: b case: nothing" in evidence(found, 16, Outcome.FINDING)
    unsure = worker_says(refusals={**good, "not_comparable": [["b case", "kernels changed"]]})
    assert "b case: kernels changed" in evidence(unsure, 16, Outcome.NOT_COMPARABLE)


def worker_says(**more: object) -> Audit:
    return check(records(), ask=lambda *_: ({**answer(), **more}, ""))


def test_the_verdict_names_what_is_open() -> None:
    audit = audited(without(records(3), "host"), cases={"missing": [["command0", 0, "a case"]]})
    assert audit.summary.endswith(
        "; not comparable in item 13; not captured in item 3, 5, 16, 17, 18, 21; findings in item 16"
    )


def test_simulated_sets_have_no_clocks_and_no_gpus() -> None:
    simulations = [simulated(record) for record in records() if record.kernel is not None]
    members = [dataclasses.replace(record, counters={"instructions": 8}) for record in simulations]
    audit = audited(without(members, "gpus", "cuda_driver"))
    for number in (7, 10, 11, 14, 15):
        assert item(audit, number).outcome is Outcome.DOES_NOT_APPLY
    assert outcomes(audit, 5) == {Outcome.CAPTURED}
    assert "driver" not in evidence(audit, 4, Outcome.NOT_CAPTURED)
    assert audit.exit_code == 0


def test_what_ran_on_gpus_and_was_not_timed_is_said() -> None:
    audit = audited([dataclasses.replace(record, timing=None) for record in records()])
    for number in (7, 10, 11, 14, 15):
        assert evidence(audit, number, Outcome.NOT_CAPTURED) == "nothing was timed, although it ran on GPUs"


@pytest.mark.parametrize("name", ["schema2.json", "schema2_library.json"])
def test_the_published_schema_audits_without_a_finding(name: str) -> None:
    record = load(EXAMPLES / name)
    # No fabric without multicast addresses has kernels that use them, and no sample more slots than calls.
    if record.fabric is not None:
        record = dataclasses.replace(record, fabric=dataclasses.replace(record.fabric, multicast=True))
    if record.timing is not None:
        method = {"slots": 1, "checked_before": 2048, "checked_after": 4096}
        record = dataclasses.replace(record, timing=dataclasses.replace(record.timing, **method))
    audit = check([record], [EXAMPLES / name], ask=lambda *_: (answer(), ""))
    assert audit.exit_code == 0
    if record.check is not None:
        assert "the records hold none (schema 2)" in evidence(audit, 9, Outcome.NOT_CAPTURED)


def test_without_a_worker_what_it_would_say_is_named() -> None:
    audit = check(records(), ask=lambda *_: (None, "it took longer than 5 s"))
    for number in (1, 3, 8, 16):
        assert "it took longer than 5 s" in evidence(audit, number, Outcome.NOT_COMPARABLE)
    assert (audit.exit_code, "it took longer than 5 s" in evidence(audit, 9, Outcome.NOT_COMPARABLE)) == (2, True)


def test_the_forms_hold_every_point(tmp_path: Path) -> None:
    audit = audited(place=kept(tmp_path / "records"))
    text = sheet.text(audit.sheets, audit.captions)
    markdown = sheet.markdown(audit.sheets, audit.captions)
    document = json.loads(json.dumps(audit.document(), allow_nan=False))
    assert [one["number"] for one in document["items"]] == list(range(1, 22))
    for one in audit.items:
        assert one.name in text
        assert all(point.evidence in text for point in one.points)
        assert document["items"][one.number - 1]["outcome"] == str(one.outcome)
    assert "| ground |" in markdown.replace("  ", " ")
    assert "recomputed, 8 of 8" in markdown
    assert document["items"][7]["points"][0]["share"] == [8, 8]
    assert document["items"][7]["points"][0]["ground"] == "recomputed"
    assert document["exit_code"] == 0


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    check(read([kept(tmp_path / "records")]), say=told.append, ask=lambda *_: (answer(), ""))
    assert len(told) == 2
