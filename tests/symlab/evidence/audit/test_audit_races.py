"""Races in comparisons: the same pairs, other ones, and cases that were not checked."""

import dataclasses

import pytest

from reports.table import sheet
from symlab.evidence.audit.comparison import NOT_AUDITABLE, compare
from symlab.evidence.audit.gate import Gate
from symlab.evidence.audit.races import races_of
from tests.golden import same_text
from tests.reports.raced import LOAD, checked, finding, unchecked
from tests.symlab.evidence.audit.invented_records import check

FORMAL = finding("formal", "an acquire")
OTHER = finding("formal", "an acquire", second=dataclasses.replace(LOAD, line=56))


def world(record, name):
    """The same case with comparable data, as another world gave it."""
    request = dataclasses.replace(record.request, command=name)
    return dataclasses.replace(record, request=request, check=check())


SIDES = {
    "none": (checked(), checked()),
    "the same": (checked(FORMAL), checked(dataclasses.replace(FORMAL, count=4))),
    "one after": (checked(), checked(FORMAL)),
    "two after": (checked(), checked(FORMAL, OTHER)),
    "two before": (checked(FORMAL, OTHER), checked()),
    "others": (checked(FORMAL), checked(OTHER)),
    "unchecked before": (unchecked(), checked()),
    "unchecked after": (checked(), unchecked()),
    "unchecked": (unchecked(), unchecked()),
}


@pytest.mark.parametrize("name", SIDES)
def test_findings_of_a_case_are_compared_by_their_pairs(name):
    before, after = SIDES[name]
    races = races_of([before], [after])
    sides = [world(before, "a")], [world(after, "b")]
    found, gated = compare(*sides), compare(*sides, gate=Gate.DIFFERENT)
    said = [f"{races.races}: {races.remark}", f"{found.exit_code}, {gated.exit_code}: {found.verdict}"]
    said += [sheet.text(found.sheets, found.captions)]
    same_text("\n".join(said))


def test_without_a_common_case_nothing_is_said():
    assert compare([], [checked()]).exit_code == NOT_AUDITABLE
