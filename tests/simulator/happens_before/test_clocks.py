"""Groups of rows of clocks, and the shadow of all ranks' tensors."""

import numpy as np
import pytest

from simulator.happens_before.clocks import Clocks
from simulator.happens_before.extras import ASYNC
from simulator.happens_before.shadow import Shadow


@pytest.mark.parametrize("has_proxies", [False, True])
@pytest.mark.parametrize("knows_others", [False, True])
def test_groups_of_rows_know_the_maximum_of_their_rows(has_proxies, knows_others):
    draw = np.random.default_rng(7)
    for turn in range(60):
        clocks = Clocks(3)
        clocks.fit(4, has_proxies)
        clocks.rows[:] = draw.integers(0, 100, clocks.rows.shape)
        clocks.free, clocks.unused = np.arange(100, 256), 156
        counts = draw.integers(1, 6, 8) if turn % 3 else np.full(8, 3)
        rows = draw.integers(0, 2 if turn % 5 == 0 else 50, int(counts.sum()))
        is_other = draw.random(len(rows)) < 0.5 if knows_others else None
        known = clocks.rows[rows]
        if is_other is not None and has_proxies:
            known[is_other, ASYNC] = 0
        expected = np.maximum.reduceat(known, np.cumsum(counts) - counts, axis=0)
        made = clocks.join_groups(rows, np.repeat(np.arange(8), counts), is_other)
        np.testing.assert_array_equal(clocks.rows[made], expected)


def test_a_shadow_of_all_ranks_names_bytes_of_one_tensor_and_readers_by_distance():
    shadow = Shadow("x", 0, 4 * 64, row_bytes=64, ranks=4)
    assert [shadow.byte_of(unit) for unit in (0, 3, 4, 9)] == [0, 48, 0, 16]
    own, units = np.arange(4), np.arange(4) * 4
    assert shadow.readers(own, units).tolist() == [0, 0, 0, 0]
    assert shadow.readers((own + 1) % 4, units).tolist() == [1, 1, 1, 1]
    assert shadow.readers(np.zeros(4, np.int64), units).tolist() == [0, 3, 2, 1]
