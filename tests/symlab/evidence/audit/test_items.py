"""The nouns of a checklist: what VERIFIED may rest on, and which point of an item counts."""

import itertools

import pytest

from symlab.evidence.audit.items import Ground, Item, Outcome, Point, held, recomputed
from tests.golden import same_text


def told(outcome, ground, share):
    try:
        return Point(outcome, "x", ground, share).ground_text
    except ValueError as error:
        return str(error)


def test_what_a_point_may_rest_on():
    every = itertools.product(Outcome, Ground, (None, (3, 4), (0, 4), (5, 4), (-1, 4)))
    same_text(
        "\n".join(f"{outcome}, {ground}, {share}: {told(outcome, ground, share)}" for outcome, ground, share in every)
    )


def test_an_item_counts_as_its_gravest_point_and_the_records_word_is_graver_than_verified():
    verified = Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED, (4, 4))
    assert Item("name", (verified, Point(Outcome.CAPTURED, "y"))).outcome is Outcome.CAPTURED
    assert Item("name", (verified,)).outcome is Outcome.VERIFIED


@pytest.mark.parametrize(
    ("agree", "different", "unsure", "outcomes", "share"),
    [
        (4, [], [], ["VERIFIED"], (4, 4)),
        (3, [["a", "b"]], [], ["FINDING"], (4, 4)),
        (3, [], [["a", "b"]], ["VERIFIED", "NOT COMPARABLE"], (3, 4)),
        (2, [["a", "b"]], [["a", "b"]], ["FINDING", "NOT COMPARABLE"], (3, 4)),
        (0, [], [["a", "b"]], ["NOT COMPARABLE"], None),
        (0, [], [], [], None),
    ],
)
def test_what_a_comparison_found(agree, different, unsure, outcomes, share):
    found = list(recomputed(agree, different, unsure, "things", Ground.COMPARED))
    assert [str(point.outcome) for point in found] == outcomes
    assert [point.share for point in found[:1]] == ([share] if outcomes else [])
    assert all(point.ground is Ground.COMPARED for point in found if point.outcome is not Outcome.NOT_COMPARABLE)


def test_contradictions_are_one_finding():
    assert list(held([])) == []
    (point,) = held(["a", "b", "a"], "good")
    assert (point.outcome, point.evidence) == (Outcome.FINDING, "2 contradictions: a; b")
    assert list(held([], "good")) == [Point(Outcome.CAPTURED, "good")]
