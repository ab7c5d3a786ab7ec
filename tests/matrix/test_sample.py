"""Every pair of the matrix' axes, run in the simulator: what `make test-all` does with the whole of it."""

from collections import Counter

import pytest

from tests.matrix.cells import sample
from tests.matrix.running import cores, in_processes


@pytest.mark.slow
def test_the_sample_passes(capsys):
    outcomes = [one for task in in_processes(sample(), cores()) for one in task]
    tally = Counter(one.status for one in outcomes)
    with capsys.disabled():
        print(f" sample of the matrix: {tally['PASSED']} cases passed ", end="")
    assert [(one.id, one.status, one.detail) for one in outcomes if one.status != "PASSED"] == []
    assert tally["PASSED"] == len(sample())
