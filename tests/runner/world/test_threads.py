"""ThreadWorld: results by rank, the root of a failure, deadlines, interrupts, leaks. No simulator: a small machine."""

import threading
import time

import pytest

from cases.finding import Finding
from memory.fabric import DeadlineExceeded, Deadlock, DeviceFault, FabricError, PeerLost, Region
from runner.world import threads as threads_module
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S, PATIENCE_S, Clock, pressed, until, within
from tests.runner.found import finding


class Machine:
    """Ranks that can wait for each other, and nothing else; fabric(rank) is the rank's number and the machine."""

    def __init__(self, world_size):
        self.world_size = world_size
        self.condition = threading.Condition()
        self.arrived = 0
        self.rounds = 0
        self.lost = None
        self.aborted = None
        self.deadline_s = None
        self.regions = {}
        self.left = []

    def fabric(self, rank):
        assert threading.current_thread() is threading.main_thread()
        return Rank(self, rank)

    def meet(self):
        with self.condition:
            mine = self.rounds
            self.arrived += 1
            if self.arrived == self.world_size:
                self.arrived, self.rounds = 0, self.rounds + 1
                self.condition.notify_all()
            while self.rounds == mine:
                if self.aborted is not None:
                    raise FabricError(str(self.aborted))
                if self.lost is not None:
                    raise PeerLost(self.lost)
                self.condition.wait(0.02)

    def leave(self, rank, error):
        with self.condition:
            self.left.append((rank, error))
            if error is not None:
                self.lost = f"rank {rank} left after {error!r}"
            self.condition.notify_all()

    def set_deadline(self, monotonic_s):
        self.deadline_s = monotonic_s

    def counters(self):
        return {"left": len(self.left)}

    findings: tuple[Finding, ...] = ()

    def live_regions(self, rank):
        return self.regions.get(rank, ())

    def abort(self, error):
        with self.condition:
            self.aborted = error
            self.condition.notify_all()


class Rank:
    def __init__(self, machine, rank):
        self.machine = machine
        self.rank = rank

    def barrier(self):
        self.machine.meet()


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The worlds' clock; they wait for what ends by itself as long as it takes."""
    clock = Clock()
    monkeypatch.setattr(threads_module, "time", clock)
    monkeypatch.setattr(threads_module, "GRACE_S", PATIENCE_S)
    monkeypatch.setattr(threads_module, "LINGER_S", PATIENCE_S)
    return clock


@pytest.fixture
def _stuck(monkeypatch):
    """For ranks that do not end by themselves, however long a world waits."""
    monkeypatch.setattr(threads_module, "GRACE_S", 0.1)
    monkeypatch.setattr(threads_module, "LINGER_S", 0.2)


def make(world_size=4):
    machine = Machine(world_size)
    return ThreadWorld(world_size, machine=machine), machine


def fail(world, program, deadline_s=NEVER_S):
    with pytest.raises(WorldFailure) as caught:
        world.run(program, None, deadline_s)
    assert not world.healthy
    return caught.value


def test_results_come_home_by_rank_and_the_world_is_kept():
    world, machine = make()

    def program(fabric, argument):
        fabric.barrier()
        return int(fabric.rank * argument)

    assert world.run(program, 10, NEVER_S) == [0, 10, 20, 30]
    assert world.run(program, 2, None) == [0, 2, 4, 6]
    assert world.healthy
    assert world.counters() == {"left": 8}
    assert machine.deadline_s is None


@pytest.mark.parametrize(
    ("kind", "status"),
    [(DeviceFault, "FAILED"), (Deadlock, "DEADLOCK"), (DeadlineExceeded, "TIMEOUT"), (ValueError, "FAILED")],
)
def test_the_root_is_reported_and_not_its_echoes(kind, status):
    world, _ = make()
    error = kind("in the middle")

    def program(fabric, argument):
        if fabric.rank == 2:
            time.sleep(0.05)
            raise error
        fabric.barrier()

    failure = fail(world, program)
    assert (failure.status, failure.rank) == (status, 2)
    assert failure.message == f"rank 2: {error}"
    assert failure.__cause__ is error
    assert sorted(failure.errors) == [0, 1, 2, 3]
    assert all("rank 2" in str(failure.errors[rank]) for rank in (0, 1, 3))
    with refused(FabricError):
        world.run(lambda fabric, argument: None, None, None)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_whatever_ends_a_rank_is_named_with_its_line(kind):
    world, _ = make(2)

    def program(fabric, argument):
        if fabric.rank == 1:
            raise kind
        fabric.barrier()

    failure = fail(world, program)
    assert failure.rank == 1
    assert failure.status == "FAILED"
    assert failure.message.startswith(f"rank 1: {kind.__name__} (")
    assert "test_threads.py:" in failure.message


def test_what_all_ranks_end_with_belongs_to_none_of_them():
    world, _ = make(3)

    def program(fabric, argument):
        fabric.barrier()
        raise Deadlock("everybody waits")

    failure = fail(world, program)
    assert (failure.status, failure.rank, failure.message) == ("DEADLOCK", None, "everybody waits")


def test_a_leak_is_a_failure_that_names_tensor_and_rank():
    world, machine = make(2)
    machine.regions[1] = (Region("flags", 4096, 64),)
    failure = fail(world, lambda fabric, argument: fabric.barrier())
    assert failure.rank == 1
    assert '"flags"' in failure.message


@pytest.mark.usefixtures("_stuck")
@pytest.mark.parametrize("ends", [True, False])
def test_a_rank_stuck_in_python_is_named_with_the_line_it_is_at(clock, ends):
    """Even if it ends when it is told."""
    world, machine = make()
    release = threading.Event()

    def program(fabric, argument):
        if fabric.rank == 3:
            until(lambda: machine.arrived == 3)
            clock.skip()
            while not release.wait(0.01) and not (ends and machine.aborted):  # the line in question
                pass
        fabric.barrier()

    with within():
        failure = fail(world, program)
    release.set()
    assert (failure.status, failure.rank) == ("TIMEOUT", 3)
    assert " at tests/runner/world/test_threads.py:" in failure.message, "relative to the project"
    assert ends or "the line in question" in failure.message


@pytest.mark.usefixtures("_stuck")
def test_ranks_that_end_well_after_the_abort_are_late_all_the_same(clock):
    world, machine = make()
    begun = []

    def program(fabric, argument):
        begun.append(fabric.rank)
        if len(begun) == 4:
            clock.skip()
        while machine.aborted is None:
            time.sleep(0.01)

    failure = fail(world, program)
    assert (failure.status, failure.rank) == ("TIMEOUT", 0)
    assert not world.healthy


@pytest.mark.usefixtures("_stuck")
def test_a_rank_stuck_after_anothers_failure_does_not_hide_it():
    world, _ = make(3)
    release = threading.Event()

    def program(fabric, argument):
        if fabric.rank == 0:
            release.wait(NEVER_S)
        if fabric.rank == 1:
            raise ValueError("a wrong size")
        fabric.barrier()

    with within():
        failure = fail(world, program, deadline_s=None)
    release.set()
    assert (failure.status, failure.message) == ("FAILED", "rank 1: a wrong size")


@pytest.mark.usefixtures("ctrl_c_raises")
def test_an_interrupt_of_the_main_thread_ends_the_ranks():
    world, machine = make()
    reached = threading.Event()

    def program(fabric, argument):
        fabric.barrier()
        if fabric.rank == 0:
            reached.set()
            while machine.aborted is None:
                time.sleep(0.01)
        fabric.barrier()

    with within(), pytest.raises(KeyboardInterrupt), pressed(reached.is_set):
        world.run(program, None, NEVER_S)
    assert not world.healthy
    assert isinstance(machine.aborted, FabricError)
    assert sorted(rank for rank, _ in machine.left) == [0, 1, 2, 3]


def test_findings_are_the_machines_and_none_where_nothing_is_checked():
    machine = Machine(2)
    machine.findings = (finding(),)
    with_checker = ThreadWorld(2, SimulatorOptions(races=True), machine)
    assert with_checker.findings() == (finding(),)
    assert ThreadWorld(2, SimulatorOptions(), machine).findings() is None
    machine.findings = ()
    assert with_checker.findings() == ()
