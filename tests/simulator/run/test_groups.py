"""Groups of few lanes far apart; other groups are merged in every launch that diverges (test_control_flow.py)."""

import numpy as np

from simulator.observe.lanes import ids_of
from simulator.run.groups import SPARSE, merge


def test_a_few_lanes_far_apart_are_merged_too():
    groups = [np.array([5, 10**9]), range(0, 1), np.array([7, 10**6])]
    assert 5 * SPARSE < 10**9
    assert ids_of(merge(groups)).tolist() == [0, 5, 7, 10**6, 10**9]
