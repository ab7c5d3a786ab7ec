"""Item "data": checks, digests against what they promise, races, and worlds against each other."""

import dataclasses

import pytest

from cases.record.record import CHECK_WAS_OFF
from symlab.evidence.audit.items import Outcome
from tests.reports.raced import checked, finding, unchecked
from tests.reports.synthetic import with_case
from tests.symlab.evidence.audit.complete_set import audited, changed, evidence, records, tells
from tests.symlab.evidence.audit.invented_records import check, digest, one, wrong

FINDING, NOT_CAPTURED, CAPTURED = Outcome.FINDING, Outcome.NOT_CAPTURED, Outcome.CAPTURED


def test_wrong_and_unchecked_data():
    tells(audited([*records(), wrong(world=0)]), "data", FINDING, CAPTURED)
    without = dataclasses.replace(records()[0], check=None, timing=None, reason=CHECK_WAS_OFF)
    tells(audited([*records(), without]), "data", NOT_CAPTURED)


def test_bits_that_differ_across_worlds():
    members = records()
    tells(audited([*members[:-2], changed(members[-2], check=check("other")), members[-1]]), "data", FINDING)
    within = [changed(one, check=check(f"bits {number}", method="bound")) for number, one in enumerate(members)]
    tells(audited(within), "data", CAPTURED)
    tells(audited(records(1)), "data", CAPTURED, CAPTURED, Outcome.DOES_NOT_APPLY, CAPTURED)


def with_digests(rows, op="all_reduce", root=0, **changes):
    """A record whose check was written by somebody who did not look at the digests."""
    good = check(**({"results": 1} | changes))
    made = dataclasses.replace(records()[0], check=good, timing=None)
    made = made if op == "all_reduce" else with_case(dataclasses.replace(made, kernel=None), op=op, root=root)
    object.__setattr__(made.check, "output_digests", rows)
    return made


FREE = {"ranks_equal_promised": False, "launches_equal_promised": False, "results": None}
A, B = (digest("a"),) * 2, (digest("b"),) * 2


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        (with_digests((A, A, B, A)), True),
        (with_digests((A, A, B, B), **FREE | {"results": 1}), True),
        (with_digests((A,) * 4, **FREE | {"results": 2}), True),
        (with_digests((A, A, B, B), **FREE), False),
        (with_digests(((),) * 4), True),
        (with_digests((A, (), A, A)), True),
        (with_digests(()), True),
        (with_digests((A, (), A, A), "custom", **FREE), False),
        (with_digests(((),) * 4, "custom", **FREE), True),
        (with_digests(((), (), A, ()), "reduce", 2, **FREE), False),
        (with_digests((A, (), (), ()), "reduce", 2, **FREE), True),
    ],
)
def test_digests_that_contradict_what_the_check_says(made, is_found):
    """Of reduce the root alone has a result; of a user's kernel some ranks may have none."""
    assert ("contradict their digests" in evidence(audited([made]), "data", FINDING)) is is_found


def races(*members):
    """The points that speak of races."""
    points = next(item for item in audited(list(members)).items if item.name == "data").points
    return {point.outcome: point.evidence for point in points if "race" in point.evidence}


def test_what_the_race_checker_found():
    formal = finding("formal", "an acquire")
    assert races(checked(formal)) == {CAPTURED: "1 case checked for races; found: 1 formal"}
    assert races(checked(finding()))[FINDING].startswith("1 of 1 cases with races: ")
    assert races(unchecked()) == {Outcome.DOES_NOT_APPLY: "races: no case was checked for them (check.races)"}
    assert races(one()) == {}, "GPUs can't be checked"
    mixed = races(checked(), unchecked(algorithm="two_shot"))
    assert mixed[NOT_CAPTURED].startswith("1 case beside checked ones not checked for races: ")
