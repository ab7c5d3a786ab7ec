"""Delta debugging of choices, on runs that are functions: fast, and their smallest failing choices are known."""

from dataclasses import replace

import pytest

from simulator.memory.chance import Late
from simulator.observe.lanes import ids_of
from simulator.run.choices import Began, Moved, Turn, Until
from simulator.run.decode import WHOLE
from symlab.checks.explore.shrink import Shrinker, Tried, actor_of, parts_of


def turn(lane, index=0, count=1, accesses=1):
    return Turn(0, 16, index, range(lane, lane + count), accesses)


def tried(fails, choices, shapes=frozenset()):
    """A run of choices alone, whose switches are their parts' number less one."""
    turns = tuple(one for one in choices if not isinstance(one, Late))
    return Tried(fails, choices, max(len(parts_of(turns)) - 1, 0), shapes)


def shrunk(attempt, choices, seconds=1e9):
    search = Shrinker(attempt, ends_s=seconds, clock=lambda: 0.0)
    search.shrink(attempt(tuple(choices)))
    return search


def order_of(choices):
    return [int(ids_of(one.lanes)[0]) for one in choices if isinstance(one, Turn)]


def test_two_turns_of_many_are_left():
    """Fails if lane 3 runs before lane 7 does."""

    def attempt(choices):
        order = order_of(choices)
        return tried(3 in order and 7 in order[order.index(3) :], choices)

    noise = [turn(lane) for lane in (1, 2, 5, 3, 2, 6, 1, 7, 4, 5, 6, 2)]
    search = shrunk(attempt, noise)
    assert order_of(search.kept) == [3, 7]
    assert search.best.switches == 1


def test_parts_of_one_actor_are_moved_together():
    """Fails if lane 0 takes four turns and lane 1 four, in any order: no turn can be left out."""

    def attempt(choices):
        order = order_of(choices)
        return tried(order.count(0) >= 4 and order.count(1) >= 4, choices)

    search = shrunk(attempt, [turn(number % 2) for number in range(8)])
    assert search.best.switches == 1
    assert len(parts_of(search.kept)) == 2


@pytest.mark.parametrize("expected", [[1, 0, 0, 2], [0, 0, 1, 2]])
def test_an_actors_part_moves_past_what_is_between_with_all_the_rest(expected):
    """Fails if lane 0 runs twice, lane 1 before the second time or after the first one, and lane 2 at last."""

    def attempt(choices):
        order = order_of(choices)
        at = [number for number, lane in enumerate(order) if lane == 0]
        between = [] if len(at) < 2 else order[: at[-1]] if expected[0] else order[at[0] :]
        return tried(1 in between and order[-1:] == [2], choices)

    assert order_of(shrunk(attempt, [turn(0), turn(1), turn(0), turn(2)]).kept) == expected


def test_what_fails_without_any_choice_needs_none():
    search = shrunk(lambda choices: tried(True, choices), [turn(0), turn(1)])
    assert (search.kept, search.tries) == ((), 1)


def test_lanes_of_a_block_run_together_where_that_fails_too():
    """Lanes 0 to 3 are of one block; it fails if some lane of it runs before lane 8. Another kernel has other blocks."""
    shapes = frozenset({(0, 16, 4), (1, 16, 8)})

    def attempt(choices):
        order = order_of(choices)
        before = order[: order.index(8)] if 8 in order else []
        ran = {lane for one in choices if isinstance(one, Turn) for lane in ids_of(one.lanes).tolist()}
        fails = bool(before) and {0, 1, 2, 3} <= ran
        return tried(fails, choices, shapes)

    search = shrunk(attempt, [turn(0), turn(9), turn(1), turn(2), turn(9), turn(3), turn(8)])
    assert search.best.switches == 1
    assert len(next(one.lanes for one in search.kept if isinstance(one, Turn))) >= 4


def test_whole_blocks_and_vectors_where_that_fails_too():
    torn = Turn(0, 16, 0, range(1), 1, tear=3, shuffle=5)
    other = Turn(0, 16, 0, range(1, 2), 1, tear=3, shuffle=5)

    def attempt(choices):
        return Tried(
            len(choices) >= 2, choices, sum(one.tear + one.shuffle for one in choices if isinstance(one, Turn))
        )

    search = shrunk(attempt, [torn, other, torn])
    assert search.best.switches == 0
    assert all(isinstance(one, Turn) and not one.tear and not one.shuffle for one in search.kept)


def test_nothing_is_chosen_before_the_launch_that_fails():
    """It fails in launch 2, if lane 1 runs before lane 0 there. Launches 0 and 1 have the same turns."""

    def attempt(choices):
        order = order_of(choices)
        fails = len(order) == 12 or (choices[:1] == (Until(2),) and order[:2] == [1, 0])
        return replace(tried(fails, choices), launches=(0,) * 4 + (1,) * 4 + (2,) * 4)

    search = shrunk(attempt, [turn(lane) for lane in (0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0)])
    assert search.kept[0] == Until(2)
    assert order_of(search.kept) == [1, 0]


def test_launches_begin_together_where_that_fails_too():
    """Launch 0 of both ranks may begin together; launch 1 of rank 0 must overtake rank 1's launch 0."""
    begins = [Began(((0, 0),)), Began(((1, 0),), True), Began(((0, 1),), True), Began(((1, 1),))]

    def attempt(choices):
        return tried(
            begins[2] in choices and turn(3).lanes in [getattr(one, "lanes", None) for one in choices], choices
        )

    search = shrunk(attempt, [*begins[:2], turn(3), begins[2], turn(4), begins[3]])
    assert [one for one in search.kept if isinstance(one, Began)] == [begins[2]]
    search = shrunk(lambda choices: tried(len(order_of(choices)) >= 2, choices), [*begins[:2], turn(3), turn(4)])
    assert not any(isinstance(one, Began) for one in search.kept)


def late(lane, nth=0):
    return Late(0, 16, lane, 7, nth, (0, 1))


def test_late_accesses_that_do_not_matter_take_the_newest_store():
    """It fails if lane 3 runs before lane 7 and sees an older value the second time."""
    noise = [late(lane, nth) for lane in range(6) for nth in range(4)]

    def attempt(choices):
        order = order_of(choices)
        return tried(3 in order and 7 in order[order.index(3) :] and late(3, 1) in choices, choices)

    search = shrunk(attempt, [*noise, turn(1), turn(3), turn(2), turn(7), turn(1)])
    assert (search.late, order_of(search.kept), search.best.late) == ((late(3, 1),), [3, 7], 1)


def test_no_late_access_is_kept_where_the_order_alone_fails():
    def attempt(choices):
        return tried(len(order_of(choices)) >= 2, choices)

    search = shrunk(attempt, [late(3), late(4), turn(3), turn(7)])
    assert (search.late, search.best.late) == ((), 0)


def test_no_turn_is_kept_where_late_accesses_alone_fail():
    search = shrunk(lambda choices: tried(late(3) in choices, choices), [late(3), late(4), turn(3), turn(7)])
    assert (search.late, search.kept) == ((late(3),), ())


def test_the_time_ends_it_with_the_best_so_far():
    now = iter(range(1000))
    choices = tuple(turn(number % 5) for number in range(200))

    def attempt(candidate):
        return tried(len(candidate) >= 20, candidate)

    search = Shrinker(attempt, ends_s=30, clock=lambda: float(next(now)))
    search.shrink(attempt(choices))
    assert search.tries < 30
    assert 20 <= len(search.kept) < 200
    assert search.best.fails


def test_a_candidate_that_fails_in_another_way_is_not_taken():
    choices = (turn(0), turn(1), turn(2))
    search = shrunk(lambda candidate: tried(candidate == choices, candidate), choices)
    assert search.kept == choices


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (turn(0, 1), turn(0, 5, accesses=WHOLE), True),
        (turn(0), turn(1), False),
        (turn(0), turn(0, count=2), False),
        (Moved(0, 16, ((1, 0),)), Moved(0, 16, ((1, 0),), tear=7), True),
        (Moved(0, 16, ((1, 0),)), Moved(0, 16, ((2, 0),)), False),
    ],
)
def test_an_actor_is_its_lanes(one, other, same):
    assert (actor_of(one) == actor_of(other)) is same
