"""Races in the report: both accesses of each finding, escaped, and no part where nothing was checked."""

import dataclasses

import pytest

from reports.html import page
from tests.golden import same_text
from tests.reports.html.test_html import Reader
from tests.reports.raced import LOAD, checked, finding, unchecked
from tests.reports.synthetic import record

EVIL = "<script>alert(1)</script>"
FORMAL = finding("formal", "an acquire")


def test_findings_are_shown_by_both_accesses():
    """A finding stands once, with its cases."""
    records = [checked(finding(count=3), FORMAL), checked(FORMAL, size_bytes=2048), unchecked(algorithm="ll")]
    same_text(Reader(page(records)).said("first", "races"))


@pytest.mark.parametrize("records", [[unchecked()], [checked()], [record()], [unchecked(), record()]])
def test_what_was_found_is_a_fact_of_every_simulated_report(records):
    """There is no part where nothing was checked."""
    same_text(Reader(page(records)).said("first", "races"))


def test_what_a_finding_quotes_is_escaped():
    evil = dataclasses.replace(LOAD, text=EVIL, tensor=EVIL, source=f"{EVIL}.py:1", proxy=EVIL)
    text = page([checked(finding("race", EVIL, second=evil), finding("advisory", first=evil, assumption=EVIL))])
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
