"""The nouns of a checklist: what VERIFIED may rest on, and which point of an item counts."""

import dataclasses

import pytest

from symlab.evidence.audit.items import Ground, Item, Outcome, Point, captured_or, contradicted, recomputed


@pytest.mark.parametrize("ground", [Ground.RECOMPUTED, Ground.COMPARED])
def test_what_was_recomputed_or_compared_is_verified(ground):
    point = Point(Outcome.VERIFIED, "x", ground, (3, 4))
    assert point.ground_text == f"{ground}, 3 of 4"


def test_the_records_word_cannot_be_verified():
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        Point(Outcome.VERIFIED, "the record says so")
    stated = Point(Outcome.CAPTURED, "the record says so")
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        dataclasses.replace(stated, outcome=Outcome.VERIFIED)
    recomputed = Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED)
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        dataclasses.replace(recomputed, ground=Ground.STATED)


def test_captured_does_not_hide_a_better_ground():
    with pytest.raises(ValueError, match="CAPTURED is what the records state"):
        Point(Outcome.CAPTURED, "x", Ground.COMPARED)


@pytest.mark.parametrize("share", [(5, 4), (-1, 4)])
def test_a_share_is_a_part_of_a_whole(share):
    with pytest.raises(ValueError, match="is no share"):
        Point(Outcome.FINDING, "x", Ground.RECOMPUTED, share)


def test_nothing_recomputed_verifies_nothing():
    with pytest.raises(ValueError, match="VERIFIED needs at least one of 4"):
        Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED, (0, 4))


@pytest.mark.parametrize("outcome", [Outcome.NOT_CAPTURED, Outcome.NOT_COMPARABLE, Outcome.DOES_NOT_APPLY])
def test_what_was_not_verified_shows_no_ground(outcome):
    assert Point(outcome, "x").ground_text == ""


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
    assert list(contradicted([])) == []
    (point,) = contradicted(["a", "b", "a"], "here: ")
    assert (point.outcome, point.evidence) == (Outcome.FINDING, "here: 2 contradictions: a; b")
    assert captured_or(["a"], "good", 4, "things").evidence == "1 of 4 things: a"
    assert captured_or([], "good", 4, "things") == Point(Outcome.CAPTURED, "good")
