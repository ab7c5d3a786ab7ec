"""The nouns of a checklist: what VERIFIED may rest on, and which point of an item counts."""

from __future__ import annotations

import dataclasses

import pytest

from reports.audit.items import Ground, Item, Outcome, Point, captured_or, verified_or


@pytest.mark.parametrize("ground", [Ground.RECOMPUTED, Ground.COMPARED])
def test_what_was_recomputed_or_compared_is_verified(ground: Ground) -> None:
    point = Point(Outcome.VERIFIED, "x", ground, (3, 4))
    assert point.ground_text == f"{ground}, 3 of 4"


def test_the_records_word_cannot_be_verified() -> None:
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        Point(Outcome.VERIFIED, "the record says so")
    stated = Point(Outcome.CAPTURED, "the record says so")
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        dataclasses.replace(stated, outcome=Outcome.VERIFIED)
    recomputed = Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED)
    with pytest.raises(ValueError, match="VERIFIED needs what was recomputed or compared"):
        dataclasses.replace(recomputed, ground=Ground.STATED)


def test_captured_does_not_hide_a_better_ground() -> None:
    with pytest.raises(ValueError, match="CAPTURED is what the records state"):
        Point(Outcome.CAPTURED, "x", Ground.COMPARED)


@pytest.mark.parametrize("share", [(5, 4), (-1, 4)])
def test_a_share_is_a_part_of_a_whole(share: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no share"):
        Point(Outcome.FINDING, "x", Ground.RECOMPUTED, share)


def test_nothing_recomputed_verifies_nothing() -> None:
    with pytest.raises(ValueError, match="VERIFIED needs at least one of 4"):
        Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED, (0, 4))


@pytest.mark.parametrize("outcome", [Outcome.NOT_CAPTURED, Outcome.NOT_COMPARABLE, Outcome.DOES_NOT_APPLY])
def test_what_was_not_verified_shows_no_ground(outcome: Outcome) -> None:
    assert Point(outcome, "x").ground_text == ""


def test_an_item_counts_as_its_gravest_point_and_the_records_word_is_graver_than_verified() -> None:
    verified = Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED, (4, 4))
    stated = Point(Outcome.CAPTURED, "y")
    item = Item(1, "name", (verified, stated))
    assert (item.outcome, item.ground, item.share) == (Outcome.CAPTURED, Ground.STATED, None)


def test_of_equal_outcomes_the_weakest_ground_and_the_smallest_share_count() -> None:
    all_of_them = Point(Outcome.VERIFIED, "x", Ground.RECOMPUTED, (4, 4))
    some = Point(Outcome.VERIFIED, "y", Ground.RECOMPUTED, (1, 4))
    compared = Point(Outcome.VERIFIED, "z", Ground.COMPARED)
    assert Item(1, "name", (all_of_them, some)).share == (1, 4)
    assert Item(1, "name", (all_of_them, some, compared)).ground is Ground.COMPARED


def test_findings_keep_what_they_rest_on() -> None:
    bad = verified_or(["a", "b"], "good", 4, "things", Ground.RECOMPUTED)
    assert (bad.outcome, bad.evidence, bad.ground_text) == (
        Outcome.FINDING,
        "2 of 4 things: a; b",
        "recomputed, 4 of 4",
    )
    assert verified_or([], "good", 4, "things", Ground.COMPARED).ground_text == "compared, 4 of 4"
    assert captured_or(["a"], "good", 4, "things").ground_text == "stated"
    assert captured_or([], "good", 4, "things").outcome is Outcome.CAPTURED
