"""The steps of a measurement: results are checked, samples are taken in turns, and results are checked again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.fabric import DeadlineExceeded, Deadlock, DeviceFabric
from runner.case.binding import device_of
from runner.request.schema import TimingMode, TimingRequest
from runner.timing.gpu_state import read_clocks
from runner.timing.kernel_names import CapturedKernel
from runner.timing.stopwatch import DELAY_S, Stopwatch

ROOM = 2.0
"""How many times as long as a host took to queue a graph the device waits for it."""

LONGEST_DELAY_S = 10e-3

WRONG_BEFORE = "its results were wrong right before timing"


@dataclass(slots=True, kw_only=True)
class Measured:
    """Something to be timed, on slots of its own, and what was found of it so far.

    label: what no other one measured with it is called. calls: of a sample. problem says why it is not timed; changes
    that a call changes the outputs; queue queues one sample's calls, once one call on every slot (None: by launching
    them). accumulates: whether calls go on from the results of those before them; None: unknown before look_again.
    elements are those compared before the samples, and after them.
    """

    name: str
    label: str
    slots: int
    slot_bytes: int
    calls: int
    accumulates: bool | None = None
    problem: str = ""
    changes: bool = True
    queue: Callable[[], None] | None = None
    once: Callable[[], None] | None = None
    samples_us: list[float] = field(default_factory=list)
    kernels: tuple[CapturedKernel, ...] = ()
    elements: tuple[int, int] = (0, 0)

    def write(self, slot: int) -> None:
        """Write the inputs of a slot, and poison into all else of it."""
        raise NotImplementedError

    def launch(self, slot: int) -> None:
        """Queue one call on the current stream, and nothing else."""
        raise NotImplementedError

    def captured(self) -> None:
        """Collective, once after its graphs were made: do what they need before the first is replayed."""

    def trouble(self) -> str:
        """Return what it reports about its calls so far, such as a wait it gave up; "" for nothing."""
        return ""

    def look_before(self, rank: int) -> None:
        """Check the outputs of one call on every slot; a fault is its problem."""
        raise NotImplementedError

    def look_again(self, rank: int) -> bool:
        """Return whether the outputs are right after a second call on every slot, with nothing written between."""
        raise NotImplementedError

    def look_after(self, rank: int) -> None:
        """Check what the timed calls left, or what calls after them gave."""
        raise NotImplementedError

    def is_unchanged(self) -> bool:
        """Return whether the outputs of some slot are what they were before any call."""
        raise NotImplementedError


class Sampling:
    """The steps of a measurement, in order; every step is made by all ranks for the same measurements."""

    def __init__(
        self, fabric: DeviceFabric, timing: TimingRequest, stopwatch: Stopwatch, measurements: Sequence[Measured]
    ) -> None:
        self._fabric = fabric
        self._timing = timing
        self._stopwatch = stopwatch
        self._measurements = measurements
        self._queued: list[tuple[Measured, Any, Any]] = []  # since all was done: each with its marks, if it has any
        self._queueing_s: dict[str, list[float]] = {}  # by label: how long each sample's calls took to be queued
        self._delays_s: dict[str, float] = {}

    @property
    def _live(self) -> list[Measured]:
        return [measurement for measurement in self._measurements if not measurement.problem]

    def run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything; the device's state right before the samples and right after."""
        self._warm()
        self._launch_all()
        for measurement in self._measurements:
            measurement.look_before(self._fabric.rank)
        self._agree()
        self._call_again()
        self._write_all()
        self._prepare()
        for _ in range(self._timing.warmup):
            self._round()
        self._make_room()
        self._write_all()  # what the warm-up left must not pass for what the timed calls do
        device = device_of(self._fabric)
        before = read_clocks(device)
        for _ in range(self._timing.samples):
            self._round(keep=True)
        after = read_clocks(device)
        self._meet()
        self._check_what_is_left()
        self._launch_all()
        for measurement in self._live:
            measurement.look_after(self._fabric.rank)
        self._meet()
        return before, after

    def _settle(self) -> None:
        """Wait for all that was queued, and hear what kernels have to say about it."""
        self._wait()
        for measurement in self._live:
            if report := measurement.trouble():
                text = f"{measurement.name}: {report}"
                raise Deadlock(text, rank=self._fabric.rank, work=measurement.label)

    def _wait(self) -> None:
        """Wait for all that was queued."""
        try:
            self._fabric.synchronize()
        except DeadlineExceeded as error:
            raise self._told(error) from error
        self._queued.clear()

    def _told(self, error: DeadlineExceeded) -> DeadlineExceeded:
        """The error that names what was begun here and did not end, where the marks show it. Where none is under way
        the device waits between two of them, for another rank."""
        for measurement, start, end in self._queued:
            if end is not None and self._stopwatch.passed(end):
                continue
            if start is not None and not self._stopwatch.passed(start):
                break
            text = f"{error}; {measurement.name} was begun and did not end"
            return DeadlineExceeded(text, rank=self._fabric.rank, work=measurement.label)
        return error

    def _meet(self) -> None:
        """Everything queued is done, on all ranks."""
        self._settle()
        self._fabric.barrier()

    def _warm(self) -> None:
        """Load what belongs to the measuring itself, before a kernel that spins is on the device."""
        self._fabric.queue_barrier()
        self._stopwatch.delay()
        self._stopwatch.mark()
        self._meet()

    def _write_all(self) -> None:
        """Inputs into all slots, poison into their outputs, while no rank runs anything."""
        self._meet()
        for measurement in self._live:
            for slot in range(measurement.slots):
                measurement.write(slot)
        self._meet()

    def _launch_all(self) -> None:
        """Fresh inputs, then one call on every slot; one contestant after another."""
        self._write_all()
        for measurement in self._live:
            self._queued.append((measurement, None, None))
            if measurement.once is not None:
                self._fabric.note_queued(measurement.name)
                measurement.once()
            else:
                self._calls(measurement, measurement.slots)()
            self._meet()

    def _call_again(self) -> None:
        """Find out of whom it is unknown whether calls go on from the results of those before them."""
        unknown = [measurement for measurement in self._live if measurement.accumulates is None]
        if not unknown:
            return
        for measurement in unknown:
            self._queued.append((measurement, None, None))
            self._calls(measurement, measurement.slots)()
            self._meet()
        mine = [measurement.look_again(self._fabric.rank) for measurement in unknown]
        notes = [json.loads(note) for note in self._fabric.exchange(json.dumps(mine))]
        for measurement, same in zip(unknown, zip(*notes, strict=True), strict=True):
            measurement.accumulates = not all(same)

    def _agree(self) -> None:
        """What one rank found wrong, no rank times."""
        mine = {
            str(index): measurement.problem
            for index, measurement in enumerate(self._measurements)
            if measurement.problem
        }
        for rank, note in enumerate(self._fabric.exchange(json.dumps(mine))):
            for index, problem in json.loads(note).items():
                measurement = self._measurements[int(index)]
                measurement.problem = measurement.problem or f"rank {rank}: {problem}"

    def _calls(self, measurement: Measured, calls: int) -> Callable[[], None]:
        """Return what queues a number of calls, slots in turn."""

        def queue() -> None:
            for call in range(calls):
                measurement.launch(call % measurement.slots)

        return queue

    def _prepare(self) -> None:
        """Make each measurement's graph. A contestant that can't be captured is not timed; the others are."""
        for measurement in self._live:
            queue = measurement.queue = self._calls(measurement, measurement.calls)
            if self._timing.mode == TimingMode.graph:
                try:
                    measurement.queue = self._stopwatch.capture(queue)
                    measurement.kernels = self._stopwatch.kernels()
                    if measurement.accumulates:
                        # Its timed calls can't be compared: calls from a graph are, that was made like theirs.
                        measurement.once = self._stopwatch.capture(self._calls(measurement, measurement.slots))
                except Exception as error:
                    measurement.problem = f"its calls could not be captured in a graph: {type(error).__name__}: {error}"
        self._agree()
        if self._timing.mode == TimingMode.graph:
            for measurement in self._live:
                measurement.captured()
        self._meet()

    def _round(self, keep: bool = False) -> None:
        """One sample of each measurement, in turn. The device is idle before each: with others' graphs still on it, a
        host may wait for room to queue the next, and the time between the marks would have that wait in it. The barrier
        comes after the delay, when all is queued: a host that comes late would begin a delay after the barrier late."""
        marks = []
        for measurement in self._live:
            self._stopwatch.delay(self._delays_s.get(measurement.label, DELAY_S))
            began_s = time.perf_counter()
            self._fabric.queue_barrier()
            self._fabric.note_queued(measurement.name)
            start = self._stopwatch.mark()
            assert measurement.queue is not None
            measurement.queue()
            marks.append((measurement, start, self._stopwatch.mark()))
            self._queueing_s.setdefault(measurement.label, []).append(time.perf_counter() - began_s)
            self._queued.append(marks[-1])
            self._wait()
        self._settle()
        if keep:
            for measurement, start, end in marks:
                measurement.samples_us.append(self._stopwatch.elapsed_us(start, end) / measurement.calls)

    def _make_room(self) -> None:
        """Let the device wait longer where a host took long to queue a graph in the warm-up, on all ranks alike: else
        the graph's time would be its host's. Calls that are no graph are timed as they are launched."""
        if self._timing.mode != TimingMode.graph or not self._timing.warmup:
            return
        # A graph's first launch brings it to the device.
        mine = {label: max(found[1:] or found) for label, found in self._queueing_s.items()}
        notes = [json.loads(note) for note in self._fabric.exchange(json.dumps(mine))]
        for label in mine:
            slowest_s = max(note[label] for note in notes)
            self._delays_s[label] = min(max(DELAY_S, ROOM * slowest_s), LONGEST_DELAY_S)

    def _check_what_is_left(self) -> None:
        """The outputs of the timed calls themselves; where they accumulate only that they did anything on each slot."""
        for measurement in self._live:
            if not measurement.accumulates:
                measurement.look_after(self._fabric.rank)
            elif measurement.changes and measurement.is_unchanged():
                measurement.problem = "the timed calls changed nothing"
        self._agree()
