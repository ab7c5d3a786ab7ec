"""One failure for people out of what all ranks ended with: who is named where no rank says it itself."""

import pytest

from memory.fabric import DeadlineExceeded, Deadlock, DeviceFault, FabricError, HeapFull, PeerLost, work_of
from runner.world.rank import failure_answer, take_answer
from runner.world.world import Outcomes, ended, failure_of


@pytest.mark.parametrize(
    ("waiting", "blamed"), [({0}, 1), ({1}, 0), (set(), 0), ({0, 1}, 0)], ids=["rank 0", "rank 1", "none", "both"]
)
def test_of_ranks_that_never_end_the_one_that_waits_for_others_is_not_to_blame(waiting, blamed):
    run = Outcomes(2, late={0: "memory/nvshmem.py:70 in tensor", 1: "a program"}, waiting=waiting)
    failure = failure_of(run, 5.0)
    assert (failure.status, failure.rank) == ("TIMEOUT", blamed)
    assert failure.message == f"rank {blamed}: still running after 5.0 s, at {run.late[blamed]}"


def test_a_rank_that_says_nothing_at_all_beside_one_that_says_where_it_is():
    """In a launcher's world: rank 0 saw its deadline, rank 1's process is gone without a word, rank 2 waits."""
    run = Outcomes(3, errors={0: DeadlineExceeded("rank 1 did not come")}, late={2: "a barrier"}, waiting={2})
    failure = failure_of(run, 5.0)
    assert (failure.status, failure.rank) == ("TIMEOUT", 1)
    assert "its process does not answer" in failure.message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DeviceFault("one_shot on rank 1, block 0: poison", rank=1), "one_shot on rank 1, block 0: poison"),
        (DeviceFault("poison at rank 1's heap"), "rank 1: poison at rank 1's heap"),
        (Deadlock("waited for rank 1", rank=None), "rank 1: waited for rank 1"),
        (PeerLost("rank 0 failed: KeyError", rank=0), "rank 1: rank 0 failed: KeyError"),
        (HeapFull("rank 1: data needs 8 bytes", rank=1), "rank 1: data needs 8 bytes"),
        (ValueError("a wrong size"), "rank 1: a wrong size"),
        (FabricError("its process ended by SIGKILL"), "rank 1: its process ended by SIGKILL"),
    ],
)
@pytest.mark.parametrize("sent", [False, True], ids=["here", "sent"])
def test_the_rank_of_a_failure_is_named_once(error, message, sent):
    """Whether the message names it already is what the error says, not what its text looks like; in other processes,
    too."""
    run = Outcomes(2, results={0: None})
    if sent:
        take_answer(run, 1, failure_answer(error))
    else:
        run.errors[1] = error
    failure = failure_of(run, 5.0)
    assert (failure.rank, failure.message) == (1, message)


@pytest.mark.parametrize("sent", [False, True], ids=["here", "sent"])
def test_of_ranks_that_waited_the_one_that_knows_for_what_is_heard(sent):
    """Who waits in a barrier for a rank that waits for a library has nothing to tell."""
    errors = {
        0: DeadlineExceeded("work on rank 0 is still running", rank=0),
        1: DeadlineExceeded("work on rank 1 is still running; nvshmem was begun", rank=1, work="nvshmem 256M"),
    }
    run = Outcomes(2)
    for rank, error in errors.items():
        if sent:
            take_answer(run, rank, failure_answer(error))
        else:
            run.errors[rank] = error
    failure = failure_of(run, 5.0)
    assert (failure.status, failure.rank, failure.message) == ("TIMEOUT", 1, str(errors[1]))
    assert [work_of(one) for one in failure.errors.values()] == ["", "nvshmem 256M"]


def test_the_end_of_a_process_is_told_by_its_code():
    ends = ["ended with exit code 0", "ended by SIGKILL", "ended by signal 99", "cut its connection"]
    assert [ended(code) for code in (0, -9, -99, None)] == ends
