"""All ranks begin a sample together, whichever host comes late: else who is first in a turn gets a longer time.

The hosts and devices of this test have clocks of their own: a host takes HOST_US to queue anything, and a device begins
it when it was queued and what comes before it has ended. A call ends on all ranks at once, as a collective does.
"""

import dataclasses
import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import torch

from runner.request.schema import TimingMode
from runner.timing.sampling import Measured, Sampling
from runner.timing.stopwatch import DELAY_S
from tests.patience import NEVER_S
from tests.runner.measuring import TIMING

RANKS = 2
HOST_US = 5.0
CALL_US = 2.0
CALLS = 10
LATE_US = 40.0
"""How much longer one of the hosts takes to hear what a contestant's kernels have to say."""


@dataclasses.dataclass
class Mark:
    us: float = 0.0


@dataclasses.dataclass(frozen=True)
class Queued:
    """Something for a device. together: it begins when all ranks have come to it, or ends when it has on all."""

    at_us: float
    takes_us: float = 0.0
    begins_together: bool = False
    ends_together: bool = False
    mark: Mark | None = None


class World:
    """What the ranks share: they meet when they wait for their devices, and then the devices' times are known."""

    def __init__(self):
        self.meeting = threading.Barrier(RANKS)
        self.notes = [None] * RANKS

    def exchange(self, rank, note):
        self.meeting.wait(NEVER_S)
        self.notes[rank] = note
        self.meeting.wait(NEVER_S)
        found = list(self.notes)
        self.meeting.wait(NEVER_S)
        return found


class Machine:
    """A host and its device; fabric and stopwatch of one rank."""

    def __init__(self, world, rank):
        self.world, self.rank = world, rank
        self.device = torch.device("cpu")
        self.host_us = 0.0
        self.devices_us = [0.0] * RANKS
        self.queue = []

    def add(self, **what):
        self.host_us += HOST_US
        self.queue.append(Queued(self.host_us, **what))

    def queue_barrier(self):
        self.add(begins_together=True)

    def note_queued(self, what):
        pass

    def delay(self, seconds=DELAY_S):
        self.add(takes_us=seconds * 1e6)

    def mark(self):
        self.add(mark=Mark())
        return cast(Mark, self.queue[-1].mark)

    def elapsed_us(self, start, end):
        return end.us - start.us

    def capture(self, queue):
        return lambda: self.add(takes_us=CALLS * CALL_US, ends_together=True)

    def kernels(self):
        return ()

    def synchronize(self):
        everyone = self.world.exchange(self.rank, self.queue)
        for step in zip(*everyone, strict=True):
            begun = [max(own.at_us, us) for own, us in zip(step, self.devices_us, strict=True)]
            if step[0].begins_together:
                begun = [max(begun)] * RANKS
            ended = [us + own.takes_us for own, us in zip(step, begun, strict=True)]
            self.devices_us = [max(ended)] * RANKS if step[0].ends_together else ended
            if (mark := step[self.rank].mark) is not None:
                mark.us = self.devices_us[self.rank]
        self.world.exchange(self.rank, None)  # whoever reads the others' queues has done so
        self.queue = []
        self.host_us = max(self.host_us, self.devices_us[self.rank])

    def barrier(self):
        self.host_us = max(self.world.exchange(self.rank, self.host_us))

    def exchange(self, note):
        notes = self.world.exchange(self.rank, note)
        self.barrier()
        return notes


@dataclasses.dataclass
class Contestant:
    """Takes as long as any other; whichever host is late hears of it late."""

    machine: Machine
    name: str
    slots: int = 1
    calls: int = CALLS
    problem: str = ""
    changes: bool = True
    accumulates: bool = False
    queue: Callable[[], None] | None = None
    once: Callable[[], None] | None = None
    samples_us: list[float] = dataclasses.field(default_factory=list)
    kernels: tuple[()] = ()
    asked: int = 0

    @property
    def label(self):
        return self.name

    def launch(self, slot):
        self.machine.add(takes_us=CALL_US, ends_together=True)

    def nothing(self, *given): ...

    write = captured = look_before = look_after = nothing

    def trouble(self):
        self.asked += 1
        self.machine.host_us += LATE_US * ((self.asked + self.machine.rank) % 2)
        return ""

    def is_unchanged(self):
        return False


def samples_of(names, mode):
    """By contestant the samples of all ranks, in microseconds a call."""
    world = World()
    timing = dataclasses.replace(TIMING, mode=mode, warmup=1, samples=8)

    def rank_program(rank):
        machine = Machine(world, rank)
        contestants = [Contestant(machine, name) for name in names]
        Sampling(cast(Any, machine), timing, cast(Any, machine), cast(list[Measured], contestants)).run()
        return [one.samples_us for one in contestants]

    with ThreadPoolExecutor(RANKS) as pool:
        ranks = list(pool.map(rank_program, range(RANKS)))
    return {name: list(zip(*(found[index] for found in ranks), strict=True)) for index, name in enumerate(names)}


@pytest.mark.parametrize("mode", [TimingMode.graph, TimingMode.eager])
def test_who_is_first_in_a_turn_takes_no_longer_though_a_host_comes_late(mode):
    found = samples_of(["first", "second", "third"], mode)
    medians = {name: statistics.median(map(max, samples)) for name, samples in found.items()}
    assert medians["first"] == pytest.approx(medians["second"])
    assert medians["second"] == pytest.approx(medians["third"])


def test_a_sample_has_its_calls_in_it_and_no_wait_for_another_ranks_host():
    for samples in samples_of(["first", "second"], TimingMode.graph).values():
        assert samples == [pytest.approx([CALL_US] * RANKS)] * 8
