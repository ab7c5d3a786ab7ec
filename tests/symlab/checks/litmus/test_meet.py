"""Which threads can meet at which barrier."""

from symlab.checks.litmus.meet import Arrival, Meeting, meetings


def sync(thread, event, count=2, name=0, *, is_waiting=True):
    return Arrival((thread, event), name, count, is_waiting)


def both(*events):
    return frozenset((a, b) for a in events for b in events if a != b)


def test_two_threads_meet():
    assert meetings([[sync(0, 1)], [sync(1, 2)]]) == {Meeting(both((0, 1), (1, 2)), frozenset())}


def test_a_barrier_starts_again():
    met = both((0, 1), (1, 1)) | both((0, 2), (1, 2))
    assert meetings([[sync(0, 1), sync(0, 2)], [sync(1, 1), sync(1, 2)]]) == {Meeting(met, frozenset())}


def test_of_three_threads_at_a_barrier_of_two_any_is_left():
    found = meetings([[sync(i, 0)] for i in range(3)])
    assert {one.blocked for one in found} == {frozenset({(i, 0)}) for i in range(3)}
    assert len(found) == 3


def test_who_only_arrives_does_not_wait_and_is_not_ordered_after():
    (one,) = meetings([[sync(0, 1, is_waiting=False)], [sync(1, 2)]])
    assert one == Meeting(frozenset({((0, 1), (1, 2))}), frozenset())
    (alone,) = meetings([[sync(0, 1, is_waiting=False)], []])
    assert alone == Meeting(frozenset(), frozenset())


def test_other_names_and_other_blocks_do_not_meet():
    (one,) = meetings([[sync(0, 1)], [sync(1, 2, name=1)]])
    assert one.blocked == {(0, 1), (1, 2)}
    (two,) = meetings([[sync(0, 1)], [Arrival((1, 2), 0, 2, True, (0, 1))]])
    assert two.blocked == {(0, 1), (1, 2)}


def test_threads_that_wait_for_each_other_in_two_orders_do_not_end():
    (one,) = meetings([[sync(0, 1), sync(0, 2, name=1)], [sync(1, 1, name=1), sync(1, 2)]])
    assert one == Meeting(frozenset(), frozenset({(0, 1), (1, 1)}))
