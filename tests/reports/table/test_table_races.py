"""Races in tables: a column only where some case was checked, and "not checked" is never shown as none."""

import csv
import dataclasses
import io
import json

import pytest

from cases.record.record import KernelInfo
from reports.table import brief, table
from reports.table.table import plain
from reports.table.text import csv_of, json_of
from tests.golden import same_text
from tests.reports.raced import checked, finding, unchecked
from tests.reports.synthetic import record, refused

FORMAL = finding("formal", "an acquire")
ADVISORY = finding("advisory", assumption="vector_16")
SAID = "vector_16: a store is a single one (someone said so)"


KERNEL = KernelInfo("all_reduce/one_shot", "k", "sm_90a", "sha256:0", "", "", "", 1, 32, assumptions=(SAID, "b: c"))
TABLES = {
    "not checked": [unchecked()],
    "not simulated": [record()],
    "found, none, not checked, refused": [
        checked(finding(), FORMAL),
        checked(algorithm="two_shot"),
        unchecked(algorithm="lamport"),
        dataclasses.replace(refused("multimem_one_shot"), fabric=checked().fabric),
    ],
    # of the assumptions, the one that explains something here
    "what does not fail a case": [checked(FORMAL, ADVISORY, kernel=KERNEL), checked(FORMAL, size_bytes=2048)],
    "a long list": [checked(*(dataclasses.replace(FORMAL, missing=f"thing {number}") for number in range(7)))],
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says(name):
    same_text(plain(TABLES[name]))


def test_values_for_programs():
    assert all("races" not in one for records in ([unchecked()], [record()]) for one in table.values(records))
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
    same_text(brief.text([checked(finding(), FORMAL), unchecked(algorithm="two_shot")]))
    same_text(brief.text([unchecked()]))
