"""Races in tables: a column only where some case was checked, and "not checked" is never shown as none."""

import csv
import dataclasses
import io
import json

from cases.record.record import KernelInfo, Status
from reports.table import brief, table
from reports.table.table import plain
from reports.table.text import csv_of, json_of
from tests.reports.raced import checked, finding, unchecked
from tests.reports.synthetic import record, refused

FORMAL = finding("formal", "an acquire")
ADVISORY = finding("advisory", assumption="vector_16")
SAID = "vector_16: a store is a single one (someone said so)"


def line_of(text, algorithm):
    return next(line for line in text.splitlines() if line.strip().startswith(algorithm))


def test_no_column_where_nothing_was_checked():
    for records in ([unchecked()], [record()]):
        assert "races" not in plain(records)
        assert all("races" not in one for one in table.values(records))


def test_each_case_says_what_was_found_or_that_it_was_not_checked():
    records = [
        checked(finding(), FORMAL),
        checked(algorithm="two_shot"),
        unchecked(algorithm="lamport"),
        dataclasses.replace(refused("multimem_one_shot"), fabric=checked().fabric),
    ]
    text = plain(records)
    assert "1 race, 1 formal" in line_of(text, "one_shot")
    assert "none" in line_of(text, "two_shot")
    assert "not checked" in line_of(text, "lamport")
    assert "none" not in line_of(text, "lamport")
    assert "checked" not in line_of(text, "multimem_one_shot")
    assert "races: accesses that nothing orders" in text
    assert "[1] race: a release is missing between `st.global.u32 [%rd1], %r2;` (push.py:12)" in text


def test_what_does_not_fail_a_case_is_named_below():
    kernel = KernelInfo("all_reduce/one_shot", "k", "sm_90a", "sha256:0", "", "", "", 1, 32, assumptions=(SAID, "b: c"))
    text = plain([checked(FORMAL, ADVISORY, kernel=kernel), checked(FORMAL, size_bytes=2048)])
    assert "all_reduce/one_shot, 2 cases: formal: an acquire is missing between" in text
    assert "all_reduce/one_shot, 1 case: advisory: a release is missing, which the assumption" in text
    assert f"assumed of hardware beyond PTX: {SAID}" in text
    assert "b: c" not in text, "it explains nothing here"


def test_a_long_list_is_cut_and_says_so():
    many = [dataclasses.replace(FORMAL, missing=f"thing {number}") for number in range(7)]
    text = plain([checked(*many)])
    assert "thing 4 is missing" in text
    assert "thing 5 is missing" not in text
    assert "2 findings more that do not fail" in text


def test_values_for_programs():
    records = [checked(finding(), FORMAL), unchecked(algorithm="two_shot")]
    first, second = json.loads(json_of(table.values(records)))
    assert {key: first[key] for key in first if key.startswith(("races", "findings"))} == {
        "races": "checked",
        "findings_race": 1,
        "findings_proxy": 0,
        "findings_formal": 1,
        "findings_advisory": 0,
    }
    assert (second["races"], second["findings_race"]) == ("not checked", None)
    rows = list(csv.DictReader(io.StringIO(csv_of(table.values([record(), *records])))))
    assert [row["races"] for row in rows] == ["not checked", "checked", "not checked"]
    assert [row["findings_race"] for row in rows] == ["", "1", ""]


def test_the_brief_form_counts_findings():
    records = [checked(finding(), FORMAL), unchecked(algorithm="two_shot")]
    text = brief.text(records)
    assert "findings" in text
    assert line_of(text, "two_shot").rstrip().split()[-1] != "2"
    assert "what the race checker found in all cases" in text
    assert "findings" not in brief.text([unchecked()])
    assert records[0].status is Status.WRONG
