"""Which threads can meet at which barrier."""

from __future__ import annotations

from symlab.checks.litmus.meet import Arrival, Meeting, meetings


def sync(thread: int, event: int, count: int = 2, name: int = 0, *, is_waiting: bool = True) -> Arrival:
    return Arrival((thread, event), name, count, is_waiting)


def both(*events: tuple[int, int]) -> frozenset[tuple[tuple[int, int], tuple[int, int]]]:
    return frozenset((a, b) for a in events for b in events if a != b)


def test_two_threads_meet() -> None:
    assert meetings([[sync(0, 1)], [sync(1, 2)]]) == {Meeting(both((0, 1), (1, 2)), frozenset())}


def test_a_barrier_starts_again() -> None:
    met = both((0, 1), (1, 1)) | both((0, 2), (1, 2))
    assert meetings([[sync(0, 1), sync(0, 2)], [sync(1, 1), sync(1, 2)]]) == {Meeting(met, frozenset())}


def test_of_three_threads_at_a_barrier_of_two_any_is_left() -> None:
    found = meetings([[sync(i, 0)] for i in range(3)])
    assert {one.blocked for one in found} == {frozenset({(i, 0)}) for i in range(3)}
    assert len(found) == 3


def test_who_only_arrives_does_not_wait_and_is_not_ordered_after() -> None:
    (one,) = meetings([[sync(0, 1, is_waiting=False)], [sync(1, 2)]])
    assert one == Meeting(frozenset({((0, 1), (1, 2))}), frozenset())
    (alone,) = meetings([[sync(0, 1, is_waiting=False)], []])
    assert alone == Meeting(frozenset(), frozenset())


def test_other_names_and_other_blocks_do_not_meet() -> None:
    (one,) = meetings([[sync(0, 1)], [sync(1, 2, name=1)]])
    assert one.blocked == {(0, 1), (1, 2)}
    (two,) = meetings([[sync(0, 1)], [Arrival((1, 2), 0, 2, True, (0, 1))]])
    assert two.blocked == {(0, 1), (1, 2)}


def test_threads_that_wait_for_each_other_in_two_orders_do_not_end() -> None:
    (one,) = meetings([[sync(0, 1), sync(0, 2, name=1)], [sync(1, 1, name=1), sync(1, 2)]])
    assert one == Meeting(frozenset(), frozenset({(0, 1), (1, 1)}))
