"""The order of worlds: what alternates, what does not, and how neighbours resemble one another."""

from datetime import UTC, datetime, timedelta

import pytest

from symlab.evidence.audit.order import alternates, in_pairs, order_of, pairs
from symlab.evidence.audit.statistics import sides_of, world_starts
from tests.symlab.evidence.audit.invented_records import in_turns, one

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("order", "does"),
    [
        ("ABBAABBA", True),
        ("ABABABAB", True),
        ("BAABBAAB", True),
        ("ABBAABBAB", True),
        ("AAAABBBB", False),
        ("BBBBAAAA", False),
        ("AABBAABB", False),
        ("ABBBAABA", False),
        ("AABAABABBABB", False),
        ("AAAA", False),
        ("", False),
    ],
)
def test_what_alternates(order, does):
    assert alternates(order) == does


def test_an_order_is_that_of_the_worlds_beginnings():
    at = [START + timedelta(minutes=minute) for minute in range(4)]
    assert order_of({"x": at[0], "y": at[3]}, {"z": at[1], "w": at[2]}) == "ABBA"
    assert order_of({"x": at[0]}, {"z": at[0]}) == "AB"


def test_a_world_begins_with_its_earliest_timed_record():
    late, early = (one(us=10.0, started=f"2026-01-01T0{hour}:00:00.000+00:00") for hour in (5, 3))
    untimed = one(started="2026-01-01T00:00:00Z")
    assert world_starts([late, untimed, early]) == {"command0": datetime(2026, 1, 1, 3, tzinfo=UTC)}


def test_times_are_in_the_order_of_their_worlds():
    before, after = in_turns((10.0, 11.0, 12.0), (20.0, 21.0, 22.0))
    sides = sides_of(before[::-1], after[::-1])
    assert (sides.before, sides.after, sides.order) == ((10.0, 11.0, 12.0), (20.0, 21.0, 22.0), "ABBAAB")


def test_pairs_are_drawn_by_their_seed_and_half_of_eight_begin_with_either_side():
    drawn = ["".join(pairs(16, str(seed))) for seed in range(50)]
    assert len(set(drawn)) > 40
    assert pairs(7, "1") == pairs(16, "1")[:7], "a plan that grows keeps its order"
    for order in drawn:
        assert alternates(order)
        assert in_pairs(order)
        assert all(order[at : at + 16 : 2].count("A") == 4 for at in (0, 16))
    assert not in_pairs("AABB")
    assert not in_pairs("ABB")
