"""What decides for accesses of weak memory: the seed as before, what was kept, and the newest store for all else."""

import random

from simulator.memory.chance import FRESH, Chance, Late

PLACE = (0, 8, 3, 12)


def drawn(chance):
    """Some of everything that can be drawn."""
    order = [0, 1, 2, 3]
    chance.shuffle(order)
    return [int(chance.is_fresh()), chance.below(7), chance.choice([5, 6, 7], 1), *order]


def test_a_seed_draws_as_a_generator_does():
    numbers = random.Random(5)
    order = [0, 1, 2, 3]
    numbers.shuffle(order)
    expected = [int(numbers.random() < FRESH), numbers.randrange(7), numbers.choice([5, 6, 7]), *order]
    assert drawn(Chance(5)) == expected


def test_what_was_kept_is_drawn_again_at_its_place_and_only_there():
    chance = Chance(5, records=True)
    found = []
    for nth in range(3):
        chance.begin(PLACE)
        found.append(drawn(chance))
        chance.is_late = nth == 1
        chance.end(PLACE)
    (late,) = chance.kept
    assert (late.launch, late.threads, late.lane, late.line, late.nth) == (*PLACE, 1)
    usual = [1, 0, 6, 0, 1, 2, 3]
    followed = Chance(99, records=True, follows=[late])
    for expected in (usual, found[1], usual):
        followed.begin(PLACE)
        assert drawn(followed) == expected
        followed.end(PLACE)
    followed.begin((0, 8, 4, 12))
    assert drawn(followed) == usual


def test_numbers_that_do_not_fit_or_are_missing_do_no_harm():
    """Another interleaving may leave fewer choices, or ask for more."""
    chance = Chance(0, follows=[Late(*PLACE, 0, (0, 6))])
    chance.begin(PLACE)
    assert (chance.is_fresh(), chance.below(4), chance.below(4), chance.choice([5, 6], 1)) == (False, 2, 0, 6)


def test_a_new_beginning_keeps_nothing():
    chance = Chance(1, records=True)
    chance.begin(PLACE)
    first = drawn(chance)
    chance.is_late = True
    chance.end(PLACE)
    chance.restart(1)
    assert chance.kept == []
    chance.begin(PLACE)
    assert drawn(chance) == first
