"""Meeting: agreement over a store, on both kinds of store, each rank with a client of its own."""

import functools
import signal
import threading
import time

import pytest
from torch.distributed import HashStore, TCPStore

from memory.fabric import DeadlineExceeded, Disagreement, PeerLost
from memory.meeting import OPENING, Meeting, lost
from tests.golden import refused
from tests.memory.outcomes import together
from tests.patience import NEVER_S, PATIENCE_S, pressed, within


@pytest.fixture(params=["hash", "tcp"])
def stores(request):
    """stores() gives one more client of the test's store."""
    if request.param == "hash":
        shared = HashStore()
        return lambda: shared
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    return lambda: TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False) if server else None


def met(stores, world_size, program):
    """program(meeting) on a thread a rank; what it returned or raised."""

    def on(rank):
        meeting = Meeting(stores(), rank, world_size)
        meeting.set_deadline(time.monotonic() + NEVER_S)
        return program(meeting)

    return together(functools.partial(on, rank) for rank in range(world_size))


def test_everybody_gets_everybodys_note_and_keys_do_not_pile_up(stores):
    def program(meeting):
        meeting.begin(0)
        return [meeting.exchange("exchange", f"{meeting.rank} says {turn}\n") for turn in range(50)]

    client = stores()
    before = client.num_keys()
    expected = [tuple(f"{rank} says {turn}\n" for rank in range(4)) for turn in range(50)]
    assert met(stores, 4, program) == [expected] * 4
    assert client.num_keys() - before <= 8


def test_runs_follow_each_other_and_forget_who_left(stores):
    def program(meeting):
        seen = [meeting.exchange("exchange", f"opening {meeting.rank}")]
        for run in range(5):
            meeting.begin(run)
            seen += [meeting.exchange("exchange", f"{run}.{turn} {meeting.rank}") for turn in range(3)]
            meeting.leave("")
        return seen

    client = stores()
    before = client.num_keys()
    texts = ["opening", *(f"{run}.{turn}" for run in range(5) for turn in range(3))]
    assert met(stores, 3, program) == [[tuple(f"{text} {rank}" for rank in range(3)) for text in texts]] * 3
    assert client.num_keys() - before <= 9


def test_a_run_has_a_larger_number_than_the_last():
    meeting = Meeting(HashStore(), 0, 1)
    meeting.begin(3)
    with refused():
        meeting.begin(3)


def test_different_kinds_are_a_disagreement_on_all_ranks(stores):
    def program(meeting):
        meeting.exchange("free data" if meeting.rank == 1 else "barrier", "")

    for outcome in met(stores, 3, program):
        assert isinstance(outcome, Disagreement)
        assert str(outcome) == "the ranks called different things: ranks 0, 2: barrier; rank 1: free data"


@pytest.mark.parametrize("has_looked", [False, True])
def test_a_failure_is_named_before_a_rank_that_left_in_good_order(stores, has_looked):
    """Also to a rank that has looked for failures before either was gone, and then finds both while it waits."""
    gone, failed = threading.Event(), threading.Event()

    def program(meeting):
        meeting.begin(0)
        if meeting.rank == 1:
            meeting.leave("")
            gone.set()
        elif meeting.rank == 2:
            assert gone.wait(PATIENCE_S)
            meeting.leave("ValueError: its own fault")
            failed.set()
        else:
            assert failed.wait(PATIENCE_S)
            if has_looked:
                meeting._look_for_failures = lambda kind: None
            meeting.exchange("barrier", "")

    assert str(met(stores, 3, program)[0]) == "rank 2 failed: ValueError: its own fault"


def test_a_complete_exchange_counts_even_if_a_rank_has_failed_since(stores):
    late = threading.Event()

    def program(meeting):
        meeting.begin(0)
        if meeting.rank == 0:
            answer = meeting.exchange("exchange", "0")
            meeting.leave("ValueError: afterwards")
            late.set()
            return answer
        original, meeting._wait = meeting._wait, lambda keys, kind: late.wait(PATIENCE_S)
        answer = meeting.exchange("exchange", "1")
        meeting._wait = original
        with pytest.raises(PeerLost, match="rank 0 .*ValueError: afterwards"):
            meeting.exchange("exchange", "again")
        return answer

    assert met(stores, 2, program) == [("0", "1")] * 2


def test_the_deadline_names_who_is_missing(stores):
    def program(meeting):
        if meeting.rank in (0, 3):
            meeting.set_deadline(time.monotonic() + 0.2)
            meeting.exchange("barrier", "")

    began = time.monotonic()
    with within():
        outcomes = met(stores, 4, program)
    assert time.monotonic() - began >= 0.2
    for rank in (0, 3):
        assert isinstance(outcomes[rank], DeadlineExceeded)
        assert "ranks 1, 2 did not come to 'barrier'" in str(outcomes[rank])


def test_the_parent_says_who_died_and_ends_a_world(stores):
    alone = threading.Event()

    def waits(meeting):
        if meeting.rank == 0:
            meeting.exchange("open", "")

    def ends(meeting):
        meeting.begin(4)
        meeting.exchange("barrier", "")
        if meeting.rank == 0:
            alone.set()
            meeting.exchange("barrier", "")

    client = stores()
    before = client.num_keys()
    with pressed(lambda: client.num_keys() > before, lambda: lost(stores(), OPENING, 1, "killed by signal 9")):
        assert str(met(stores, 2, waits)[0]) == "rank 1 failed: killed by signal 9"
    with pressed(alone.is_set, lambda: lost(stores(), 4, None, "Ctrl-C")):
        assert str(met(stores, 2, ends)[0]) == "the world was ended: Ctrl-C"


def test_a_wait_is_interrupted_by_a_signal(stores):
    """A thread can't be: this one waits in the main thread, where signals are handled."""
    meeting = Meeting(stores(), 0, 2)
    meeting.set_deadline(time.monotonic() + NEVER_S)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
    client = stores()
    keys = client.num_keys()
    try:
        with within(), pytest.raises(KeyboardInterrupt), pressed(lambda: client.num_keys() > keys):
            meeting.exchange("barrier", "")
    finally:
        signal.signal(signal.SIGINT, before)
