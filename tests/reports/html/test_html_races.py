"""Races in the report: both accesses of each finding, escaped, and no part where nothing was checked."""

import dataclasses
import re

from reports.html import page
from tests.reports.raced import LOAD, checked, finding, unchecked
from tests.reports.synthetic import record

EVIL = "<script>alert(1)</script>"
FORMAL = finding("formal", "an acquire")


def part_of(text):
    """The page's part on races, as text."""
    found = re.search(r'<section[^>]*id="races".*?</section>', text, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found[0])) if found else ""


def test_both_accesses_of_a_finding_are_shown():
    text = part_of(
        page([checked(finding(count=3), FORMAL), checked(FORMAL, size_bytes=2048), unchecked(algorithm="ll")])
    )
    assert "`st.global.u32 [%rd1], %r2;` (push.py:12) of byte 7 of data by rank 0, block 1, thread 32" in text
    assert "PTX line 40, generic proxy, launch 1" in text
    assert "`ld.global.u32 %r3, [%rd4];` (push.py:20) of byte 7 of data by rank 1, block 0, thread 5" in text
    assert "PTX line 55, generic proxy, launch 2" in text
    assert "checked in 2 of 3 cases; found: 1 race, 2 formal" in text
    assert "not checked: 1 case that ran" in text
    assert text.count("an acquire") == 1, "a finding stands once, with its cases"


def test_what_was_found_is_a_fact_of_every_simulated_report():
    assert "<dd>not checked</dd>" in page([unchecked()])
    assert "<dd>checked in 1 case; found: none</dd>" in page([checked()])
    assert "not checked" not in page([record()])


def test_no_part_where_nothing_was_checked():
    assert part_of(page([unchecked(), record()])) == ""


def test_what_a_finding_quotes_is_escaped():
    evil = dataclasses.replace(LOAD, text=EVIL, tensor=EVIL, source=f"{EVIL}.py:1", proxy=EVIL)
    text = page([checked(finding("race", EVIL, second=evil), finding("advisory", first=evil, assumption=EVIL))])
    assert EVIL not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
