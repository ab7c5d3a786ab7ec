"""What descriptions say of runs."""

import re

import pytest

from runner.track.descriptions import charts_link, command_note, outcome, report_link, series_note
from tests.golden import same_text
from tests.reports.synthetic import KIB, MIB, record, refused


@pytest.mark.parametrize(
    ("records", "missing", "text"),
    [
        ([record()], 0, "1 case: 1 passed"),
        ([record(), refused()], 0, "2 cases: 1 passed, 1 refused"),
        ([record()], 2, "3 cases: 1 passed, 2 did not run"),
        ([], 0, "0 cases: nothing ran"),
    ],
)
def test_an_outcome_counts(records, missing, text):
    assert outcome(records, missing) == text


def test_a_series_says_what_ran_where_and_why_not():
    """Many reasons are cut."""
    same_text(series_note([record(), refused("one_shot", MIB)], 0, "[report.html](#/x)"))
    same_text(series_note([refused(size_bytes=size, reason=f"too large: {size}") for size in range(1, 7)], 0, ""))


def test_a_command_has_its_table_if_that_is_short_enough():
    short = command_note([record()], 0, "python -m runner", "LINKS", ["figures: no room"])
    assert short.startswith("LINKS\n\n**1 case: 1 passed**\n\n`python -m runner`\n- not there: figures: no room\n\n")
    assert "| size |" in short
    many = [record(size_bytes=KIB + 4 * number) for number in range(300)]
    long = command_note(many, 0, "", "LINKS", [])
    assert "table.md" in long
    assert len(long) < 1000


def test_a_description_is_never_longer_than_a_tag():
    assert len(command_note([record()], 0, "x" * 9000, "LINKS", [])) <= 5000
    assert len(series_note([refused(reason="y" * 9000)], 0, "")) <= 5000


def test_links_lead_to_the_pages_own_server():
    assert report_link("3", "abc") == "[report.html](#/experiments/3/runs/abc/artifacts/report.html)"
    link = charts_link("3", "20260101T000000Z-x-1")
    assert "(#/experiments/3/runs?searchFilter=tags.%60symlab.command%60" in link
    for address in re.findall(r"\(([^)]*)\)", link):
        assert " " not in address
