"""One failure for people out of what all ranks ended with: who is named where no rank says it itself."""

from __future__ import annotations

import pytest

from memory.fabric import DeadlineExceeded
from runner.world.world import Outcomes, failure_of


@pytest.mark.parametrize(
    ("waiting", "blamed"), [({0}, 1), ({1}, 0), (set(), 0), ({0, 1}, 0)], ids=["rank 0", "rank 1", "none", "both"]
)
def test_of_ranks_that_never_end_the_one_that_waits_for_others_is_not_to_blame(waiting: set[int], blamed: int) -> None:
    run = Outcomes(2, late={0: "memory/nvshmem.py:70 in tensor", 1: "a program"}, waiting=waiting)
    failure = failure_of(run, 5.0)
    assert (failure.status, failure.rank) == ("TIMEOUT", blamed)
    assert failure.message == f"rank {blamed}: still running after 5.0 s, at {run.late[blamed]}"


def test_a_rank_that_says_nothing_at_all_beside_one_that_says_where_it_is() -> None:
    """In a launcher's world: rank 0 saw its deadline, rank 1's process is gone without a word, rank 2 waits."""
    run = Outcomes(3, errors={0: DeadlineExceeded("rank 1 did not come")}, late={2: "a barrier"}, waiting={2})
    failure = failure_of(run, 5.0)
    assert (failure.status, failure.rank) == ("TIMEOUT", 1)
    assert "its process does not answer" in failure.message
