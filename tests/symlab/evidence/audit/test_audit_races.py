"""Races in comparisons: the same pairs, other ones, and cases that were not checked."""

import dataclasses

import pytest

from reports.table import sheet
from symlab.evidence.audit.comparison import FINDING, NOT_AUDITABLE, VERIFIED, compare
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.races import Races, races_of
from tests.reports.raced import LOAD, checked, finding, unchecked
from tests.symlab.evidence.audit.invented_records import check, one

FORMAL = finding("formal", "an acquire")
OTHER = finding("formal", "an acquire", second=dataclasses.replace(LOAD, line=56))


def world(record, name):
    """The same case with comparable data, as another world gave it."""
    request = dataclasses.replace(record.request, command=name)
    return dataclasses.replace(record, request=request, check=check())


@pytest.mark.parametrize(
    ("before", "after", "races", "remark"),
    [
        (checked(), checked(), Races.SAME, ""),
        (checked(FORMAL), checked(dataclasses.replace(FORMAL, count=4)), Races.SAME, ""),
        (checked(), checked(FORMAL), Races.DIFFERENT, "only after: formal: an acquire is missing"),
        (checked(FORMAL, OTHER), checked(), Races.DIFFERENT, "only before: formal: an acquire is missing"),
        (checked(FORMAL), checked(OTHER), Races.DIFFERENT, "only before: formal"),
        (unchecked(), checked(), Races.NOT_COMPARABLE, "before it was not checked for races"),
        (checked(), unchecked(), Races.NOT_COMPARABLE, "after it was not checked for races"),
        (unchecked(), unchecked(), Races.NOT_CHECKED, ""),
    ],
)
def test_findings_of_a_case_are_compared_by_their_pairs(before, after, races, remark):
    found = races_of([before], [after])
    assert found.races is races
    assert remark in found.remark
    assert bool(remark) == bool(found.remark)


def test_all_that_differ_are_counted():
    assert races_of([checked()], [checked(FORMAL, OTHER)]).remark.endswith(", and 1 more")


def test_other_findings_are_a_finding_of_a_comparison():
    same = compare([world(checked(FORMAL), "a")], [world(checked(FORMAL), "b")])
    assert same.exit_code == VERIFIED
    assert "races: 1 SAME" in same.verdict
    found = compare([world(checked(), "a")], [world(checked(FORMAL), "b")])
    assert found.exit_code == FINDING
    assert "races: 1 DIFFERENT" in found.verdict
    assert found.document()["cases"][0]["races"] == "DIFFERENT"
    text = sheet.text(found.sheets, found.captions)
    assert "races: only after: formal: an acquire is missing" in text
    assert compare([world(checked(), "a")], [world(checked(FORMAL), "b")], gate=Gate.DIFFERENT).exit_code == FINDING


def test_a_comparison_of_unchecked_records_says_nothing_of_races():
    found = compare([one()], [one(world=1)])
    assert "races" not in found.verdict
    assert all("races" not in made.columns for made in found.sheets)


def test_a_case_that_was_checked_on_one_side_alone_is_not_said_to_be_the_same():
    found = compare([world(unchecked(), "a")], [world(checked(), "b")])
    assert "races: 1 NOT COMPARABLE" in found.verdict
    assert "after" not in found.cases[0].races.remark
    assert compare([], [checked()]).exit_code == NOT_AUDITABLE
