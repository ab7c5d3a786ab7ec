"""Groups of lanes: what is split and merged again are the same lanes, in their order."""

import random

import numpy as np
import pytest

from simulator.observe.lanes import ids_of
from simulator.run.groups import SPARSE, compact, merge, split


def drawn(seed):
    """Lanes of up to 600, each in one of a few groups, or in none."""
    rng = random.Random(seed)
    kinds, density = rng.randint(1, 6), rng.choice([0.01, 0.3, 0.9, 1.0])
    unit = rng.choice([1, 8, 64])
    homes = [rng.randrange(kinds) if rng.random() < density else -1 for _ in range(-(-600 // unit))]
    start = rng.randrange(10_000)
    lanes = np.arange(start, start + 600)
    home = np.repeat(homes, unit)[:600]
    groups = [compact(lanes[home == one]) for one in range(kinds) if (home == one).any()]
    rng.shuffle(groups)
    return groups or [range(3, 4)]


@pytest.mark.parametrize("seed", range(60))
def test_merged_lanes_are_all_of_them_in_order(seed):
    groups = drawn(seed)
    found = merge(groups)
    wanted = sorted(int(lane) for one in groups for lane in one)
    assert list(map(int, found)) == wanted
    assert isinstance(found, range) == (wanted[-1] - wanted[0] + 1 == len(wanted))


def test_a_few_lanes_far_apart_are_merged_too():
    groups = [np.array([5, 10**9]), range(0, 1), np.array([7, 10**6])]
    assert 5 * SPARSE < 10**9
    assert ids_of(merge(groups)).tolist() == [0, 5, 7, 10**6, 10**9]


def test_a_split_group_is_whole_again():
    group = range(100, 400)
    mask = np.arange(300) % 7 < 3
    yes, no = split(group, [mask[:120], mask[120:]])
    assert ids_of(yes).tolist() == (np.arange(100, 400)[mask]).tolist()
    assert merge([no, yes]) == group
    assert split(group, [np.ones(300, np.bool_)]) == (group, None)
    assert split(group, [np.zeros(300, np.bool_)]) == (None, group)
