"""ProcessWorld on a fabric of files: whatever happens to a rank, run() ends, says who it was, and leaves nothing.

Starting a world takes seconds, for each rank imports torch: worlds are few here, and each is used for all it can do.
"""

import os
import re
import signal
import socket
import tempfile
import textwrap
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from memory.fabric import FabricError
from runner.world import processes
from runner.world.processes import ProcessWorld
from runner.world.world import WorldFailure
from tests.patience import NEVER_S, PATIENCE_S, Clock, pressed, until, within
from tests.processes import begun
from tests.runner import rank_programs
from tests.runner.conftest import is_running
from tests.runner.rank_programs import HEAP_BYTES, Fault, FileOpener

RING = [[11] * 4, [10] * 4]


def children():
    """All processes that this one has started and not reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(path.parent.name))
    return found


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def shared_names():
    return {path.name for path in Path("/dev/shm").glob("*")}


def litter(processes=(), before=()):
    """What processes could leave behind outside of themselves: temporary files, shared memory named after them, which
    was not there before. A number within a longer one, or within a digest, is no process."""
    named = [re.compile(f"(?<![0-9a-f]){one}(?![0-9a-f])") for one in processes]
    found = sorted(shared_names() - set(before))
    return [*os.listdir(tempfile.gettempdir()), *(name for name in found if any(one.search(name) for one in named))]


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path_factory, monkeypatch):
    folder = str(tmp_path_factory.mktemp("temporary"))
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)


@pytest.fixture(scope="module", autouse=True)
def _one_store_before():
    """The first server in a process opens a pipe that stays: libuv's own."""
    TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Started:
    """A world, and what was there before it."""

    def __init__(self, folder, world_size=2):
        self.before = children()
        self.files = len(os.listdir("/proc/self/fd"))
        self.shared = shared_names()
        self.world = ProcessWorld(world_size, FileOpener(str(folder)))
        self.processes = self.world.processes
        self.port = self.world.port

    def fail(self, fault):
        with pytest.raises(WorldFailure) as caught:
            self.world.run(rank_programs.ring, fault, NEVER_S)
        self.check_nothing_is_left()
        with pytest.raises(FabricError, match="make a new one"):
            self.world.run(rank_programs.nothing, None, None)
        return caught.value

    def check_nothing_is_left(self):
        assert not self.world.healthy
        assert self.world.processes == ()
        assert not any(is_running(one) for one in self.processes)
        assert not listens(self.port)
        assert (children() - self.before, len(os.listdir("/proc/self/fd"))) == (set(), self.files)
        assert litter(self.processes, self.shared) == []


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(processes, "time", clock)
    return clock


@pytest.fixture
def started(tmp_path):
    one = Started(tmp_path)
    assert all(is_running(process) for process in one.processes)
    assert listens(one.port)
    yield one
    one.world.close()


@pytest.mark.slow
def test_a_world_is_kept_and_ends_in_good_order(started, tmp_path):
    world = started.world
    assert world.run(rank_programs.ring, None, NEVER_S) == RING
    assert world.run(rank_programs.group_sum, None, NEVER_S) == [3.0, 3.0]
    assert world.run(rank_programs.pid, None, None) == list(started.processes)
    assert world.counters() == {}
    for index in range(100):
        assert world.run(rank_programs.nothing, index, NEVER_S) == [index, index]
    assert world.run(rank_programs.pid, None, None) == list(started.processes), "no program has processes of its own"
    big = bytes(3 << 20)
    assert world.run(rank_programs.nothing, big, NEVER_S) == [big, big], "more than a pipe holds"
    with pytest.raises(ValueError, match="a function of a module"):
        world.run(lambda fabric, argument: None, None, NEVER_S)
    assert world.run(rank_programs.ring, None, NEVER_S) == RING
    assert world.healthy
    world.close()
    started.check_nothing_is_left()
    world.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(("method", "at_call"), [("allocate", 1), ("allocate", 2), ("launch", 2)])
def test_an_exception_anywhere_in_a_real_program(started, method, at_call):
    assert started.world.run(rank_programs.ring, None, NEVER_S) == RING
    with within():
        failure = started.fail(Fault(method, 1, at_call))
    assert (failure.status, failure.rank) == ("FAILED", 1)
    assert failure.message.startswith(f"rank 1: KeyError: 'injected at {method}' (tests/runner/rank_programs.py:")
    assert "rank 1 failed: KeyError" in str(failure.errors[0]), "rank 0 was told, and is an echo"
    assert any("in __getattr__" in note for note in failure.errors[1].__notes__), "with the rank's own traceback"


@pytest.mark.parametrize(
    ("fault", "words"), [("kill", "SIGKILL"), ("abort", "SIGABRT; its last words: the library gave up | it was at")]
)
def test_a_rank_that_dies(started, fault, words):
    with within():
        failure = started.fail(Fault(fault))
    assert (failure.status, failure.rank) == ("FAILED", 1)
    assert failure.message.startswith(f"rank 1: its process ended by {words}")
    assert "rank 1 failed: its process ended by" in str(failure.errors[0]), "the parent told rank 0"


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "line"), [("spin", "while fault.kind"), ("native", "sleep(3600)")])
def test_a_rank_that_never_ends(started, fault, line, tmp_path, clock):
    told = tmp_path / "told"
    clock.skip_when(told.exists)
    with within():
        failure = started.fail(Fault(fault, told=str(told)))
    assert (failure.status, failure.rank) == ("TIMEOUT", 1), "and not rank 0, which waited for it"
    assert failure.message.startswith(f"rank 1: still running after {NEVER_S:.1f} s, at tests/runner/rank_programs.py:")
    assert "in commit" in failure.message
    assert line in failure.message


@pytest.mark.slow
def test_what_ranks_leave_behind_is_a_failure(started):
    with pytest.raises(WorldFailure) as caught:
        started.world.run(rank_programs.leave_behind, None, NEVER_S)
    assert (caught.value.status, caught.value.rank) == ("FAILED", 0)
    assert caught.value.message == 'rank 0: leak: symmetric tensor "data" was never released'
    assert str(caught.value.errors[1]) == 'leak: symmetric tensor "flags" was never released'
    started.check_nothing_is_left()


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_ends_the_ranks_before_it_gets_out(started, tmp_path):
    with within(), pytest.raises(KeyboardInterrupt), pressed((tmp_path / "sleeping-1").exists):
        started.world.run(rank_programs.wait_in_a_barrier, str(tmp_path), None)
    started.check_nothing_is_left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status", "parts"),
    [
        ("raise", "FAILED", ["OSError: no device for this rank (tests/", "words: the driver said no (while starting)"]),
        ("sleep", "TIMEOUT", [f"not ready {NEVER_S:g} s after its start, at tests/", "sleep(3600)  # never ready"]),
    ],
)
def test_a_rank_that_cannot_start(tmp_path, fault, status, parts, clock):
    others = tmp_path / "heap-0"
    clock.skip_when(
        lambda: (tmp_path / "not ready").exists() and others.exists() and others.stat().st_size == HEAP_BYTES
    )
    before = children()
    said = []
    with pytest.raises(WorldFailure) as caught:
        ProcessWorld(2, FileOpener(str(tmp_path), fault), start_deadline_s=NEVER_S, say=said.append)
    message = caught.value.message
    assert (caught.value.status, caught.value.rank, message[:8]) == (status, 1, "rank 1: ")
    assert [part for part in parts if part not in message] == [], message
    assert "\n" not in message
    assert said == ["starting 2 rank processes ..."][: len(said)]
    assert said or fault == "raise", "no word for as long"
    assert (children() - before, litter()) == (set(), [])


PARENT = """
    import os, sys
    from runner.interrupt import interruptible
    from runner.world.processes import ProcessWorld
    from tests.runner import rank_programs

    with interruptible():
        world = ProcessWorld(2, rank_programs.FileOpener(sys.argv[1]))
        print(world.port, *world.processes, flush=True)
        try:
            world.run(rank_programs.wait_in_a_barrier, sys.argv[1], None)
        except KeyboardInterrupt as interrupt:
            print(type(interrupt).__name__, world.processes, flush=True)
            sys.exit(interrupt.exit_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_parent_that_is_ended_leaves_no_rank(tmp_path, number, code):
    parent = begun("-c", textwrap.dedent(PARENT), str(tmp_path), stderr=None)
    port, *ranks = map(int, parent.stdout.readline().split())
    until(lambda: (tmp_path / "sleeping-1").exists())
    assert all(is_running(one) for one in ranks)
    parent.send_signal(number)
    out, _ = parent.communicate(timeout=PATIENCE_S)
    assert parent.returncode == code
    assert out == ("Interrupted ()\n" if number == signal.SIGTERM else "")
    until(lambda: not any(is_running(one) for one in ranks))
    assert not listens(port)
