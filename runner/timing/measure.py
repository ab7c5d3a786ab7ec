"""Times by a GPU's own clock: the per-rank program that measures all contenders of one size together, interleaved.

A sample is one contender's calls between two events, divided by their number. The contenders take turns (A B C A B C),
each on slots of its own. Before a sample all ranks meet in a barrier on the device and then spin for a little while,
so that every host has queued its calls before any rank begins; nothing waits on the host but Fabric.synchronize(),
which has a deadline. Every kernel is launched once before anything that spins is timed.

Nothing is timed that was not right just before, and no time is kept of what is not right just after: inputs are
written and outputs poisoned between the warm-up and the timed calls, and outputs are looked at after them; then inputs
are written again, each slot is launched once, and looked at again. In place the timed calls of a sum add up their own
results, beyond the largest number after a few: only what follows the new inputs is compared, and that comes from a
graph, too, where graphs are timed. (What a second call in place leaves as it is, data moved or a maximum, is compared
like everything else.)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kernels import catalogue
from kernels.baselines import Baseline
from memory.fabric import Deadlock, DeviceFabric, Fabric
from memory.pool import SymmetricPool
from runner.case.check import promise_of
from runner.case.inputs import make_input
from runner.case.libraries import baseline_contender
from runner.case.program import device_of
from runner.case.slots import kernel_contender, slot_bytes
from runner.timing.gpu_state import read_clocks
from runner.timing.lanes import Entrant as Entrant
from runner.timing.lanes import EntrantTimes as EntrantTimes
from runner.timing.lanes import Lane, before_call
from runner.timing.link import LinkTimes, measure_link
from runner.timing.stopwatch import Stopwatch, TorchStopwatch

if TYPE_CHECKING:
    from runner.request.validate import TimingRequest

SAMPLE_US = 750.0
"""What a sample should last, where its number of calls is not given."""

FEWEST_CALLS, MOST_CALLS = 4, 50

HEAP_SHARE = 0.9
"""How much of the symmetric heap the slots of all contenders may take together."""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What all ranks measure together: entrants of one size, and how. link says whether to time the links, too."""

    entrants: tuple[Entrant, ...]
    timing: TimingRequest
    patience_s: float = 10.0
    link: bool = False

    def __post_init__(self) -> None:
        if not self.entrants:
            raise ValueError("a plan to measure needs at least one entrant")
        names = [entrant.case.name for entrant in self.entrants]
        if len({entrant.case.size_bytes for entrant in self.entrants}) > 1 or len(set(names)) < len(names):
            raise ValueError(f"what is measured together has one size and different names: {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class RankMeasurement:
    """What one rank brings home, entrants in the plan's order; device_before and device_after: see read_clocks."""

    rank: int
    entrants: tuple[EntrantTimes, ...]
    link: LinkTimes | None
    device_before: dict[str, Any]
    device_after: dict[str, Any]
    l2_bytes: int = 0


def expected_us(size_bytes: int) -> float:
    """A rough guess of what a call takes: the start of a collective, and the bytes at 200 GB/s."""
    return 15.0 + size_bytes / 200e3


def calls_for(size_bytes: int, given: int | None) -> int:
    """Calls a sample: as given, or as many as make it about SAMPLE_US long."""
    if given is not None:
        return given
    return min(max(round(SAMPLE_US / expected_us(size_bytes)), FEWEST_CALLS), MOST_CALLS)


def slots_for(one_slot_bytes: int, l2: str, l2_bytes: int, calls: int, budget_bytes: int) -> int:
    """Slots of a contender: enough to be twice the L2 cache together, no more than calls or than the heap permits."""
    if l2 == "hot":
        return 1
    one_slot_bytes = max(one_slot_bytes, 1)
    wanted = -(-2 * l2_bytes // one_slot_bytes)
    return max(1, min(wanted, calls, budget_bytes // (-(-one_slot_bytes // 512) * 512)))


def whole_turns(calls: int, slots: int, given: int | None) -> int:
    """The calls of a sample, changed so that every slot has as many, unless their number was given."""
    if given is not None or calls % slots == 0:
        return calls
    up = -(-calls // slots) * slots
    return up if up <= MOST_CALLS else calls // slots * slots


def expected_s(plan: MeasurePlan) -> float:
    """A rough guess of what all samples take; see expected_us."""
    calls = calls_for(plan.entrants[0].case.size_bytes, plan.timing.calls)
    per_round_us = len(plan.entrants) * (calls * expected_us(plan.entrants[0].case.size_bytes) + 200)
    return (plan.timing.samples + plan.timing.warmup) * per_round_us / 1e6


def measure(fabric: Fabric, plan: MeasurePlan, stopwatch: Stopwatch | None = None) -> RankMeasurement:
    """Measure all entrants of a plan on this rank. All ranks call it with the same plan.

    Raises ValueError on a simulated fabric, which has no clock of real hardware; Deadlock when a kernel gave up a
    wait; and what the fabric and the libraries raise. stopwatch stands in for the device's own in tests.
    """
    if stopwatch is None:
        if fabric.traits.simulated:
            raise ValueError(f"the fabric {fabric.traits.name} is simulated: there is no clock of real hardware")
        stopwatch = TorchStopwatch(device_of(fabric))
    device = cast(DeviceFabric, fabric)
    with SymmetricPool(fabric) as pool:
        link = measure_link(device, pool, stopwatch) if plan.link else None
        with contextlib.ExitStack() as opened:
            lanes = [_open(opened, device, pool, plan, entrant) for entrant in plan.entrants]
            before, after = _Measuring(device, plan, stopwatch, lanes).run()
            found = tuple(lane.times() for lane in lanes)
            del lanes
    return RankMeasurement(fabric.rank, found, link, before, after, fabric.traits.l2_bytes)


def _open(
    opened: contextlib.ExitStack, fabric: DeviceFabric, pool: SymmetricPool, plan: MeasurePlan, entrant: Entrant
) -> Lane:
    """Open one entrant's contender with as many slots as it is to have."""
    case, timing = entrant.case, plan.timing
    calls = calls_for(case.size_bytes, timing.calls)
    budget_bytes = int(fabric.traits.heap_bytes * HEAP_SHARE) // len(plan.entrants)
    slots = slots_for(slot_bytes(case), timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    promise = promise_of(case)
    if isinstance(promise, Baseline):
        contender = opened.enter_context(baseline_contender(case.algorithm, fabric, pool, case, slots))
    else:
        assert entrant.executable is not None
        contender = opened.enter_context(
            kernel_contender(fabric, pool, case, entrant.executable, slots, plan.patience_s)
        )
    count = catalogue.collective(case.op).counts(case.numel, case.world_size)[0]
    data = make_input(case, fabric.rank, count, device_of(fabric))
    return Lane(
        entrant,
        contender,
        promise,
        whole_turns(calls, slots, timing.calls),
        data,
        before_call=before_call(case, fabric.rank, data),
        has_output=catalogue.collective(case.op).gives(case, fabric.rank),
    )


class _Measuring:
    """The steps of a measurement, in order; every step is made by all ranks for the same lanes."""

    def __init__(self, fabric: DeviceFabric, plan: MeasurePlan, stopwatch: Stopwatch, lanes: list[Lane]) -> None:
        self._fabric = fabric
        self._plan = plan
        self._stopwatch = stopwatch
        self._lanes = lanes

    @property
    def _live(self) -> list[Lane]:
        return [lane for lane in self._lanes if not lane.problem]

    def run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything; the device's state right before the samples and right after."""
        self._warm()
        self._launch_all()
        for lane in self._lanes:
            lane.before = lane.checked(self._fabric.rank)
            # xor goes back and forth: an even number of calls may leave what was there.
            lane.changes = lane.entrant.case.reduction != "xor" and not lane.is_as_before(lane.contender.output(0))
            if lane.before.wrong or lane.before.guard_faults:
                lane.problem = "its results were wrong right before timing"
        self._agree()
        self._write_all()
        self._prepare()
        for _ in range(self._plan.timing.warmup):
            self._round()
        self._write_all()  # what the warm-up left must not pass for what the timed calls do
        device = device_of(self._fabric)
        before = read_clocks(device)
        for _ in range(self._plan.timing.samples):
            self._round(keep=True)
        after = read_clocks(device)
        self._meet()
        self._check_what_is_left()
        self._launch_all()
        for lane in self._live:
            lane.after.append(lane.checked(self._fabric.rank))
        self._meet()
        return before, after

    def _settle(self) -> None:
        """Wait for all that was queued, and hear what kernels have to say about it."""
        self._fabric.synchronize()
        for lane in self._live:
            if report := lane.contender.trouble():
                raise Deadlock(f"{lane.entrant.case.name}: {report}")

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
        for lane in self._live:
            for slot in range(lane.contender.slots):
                lane.contender.write(slot, lane.data)
        self._meet()

    def _launch_all(self) -> None:
        """Fresh inputs, then one call on every slot; one contender after another."""
        self._write_all()
        for lane in self._live:
            if lane.once is not None:
                lane.once()
            else:
                self._calls(lane, lane.contender.slots)()
            self._meet()

    def _agree(self) -> None:
        """What one rank found wrong, no rank times."""
        mine = {str(index): lane.problem for index, lane in enumerate(self._lanes) if lane.problem}
        for rank, note in enumerate(self._fabric.exchange(json.dumps(mine))):
            for index, problem in json.loads(note).items():
                lane = self._lanes[int(index)]
                lane.problem = lane.problem or f"rank {rank}: {problem}"

    def _calls(self, lane: Lane, calls: int) -> Callable[[], None]:
        """What queues so many calls, slots in turn, with the barriers of the window."""
        window = self._plan.timing.window
        entry, exit_ = window in ("entry_barrier", "both_barriers"), window == "both_barriers"

        def queue() -> None:
            for call in range(calls):
                if entry:
                    self._fabric.queue_barrier()
                lane.contender.launch(call % lane.contender.slots)
                if exit_:
                    self._fabric.queue_barrier()

        return queue

    def _prepare(self) -> None:
        """Make each lane's graph. A contender that can't be captured is not timed; the others are."""
        for lane in self._live:
            lane.queue = self._calls(lane, lane.calls)
            if self._plan.timing.mode == "graph":
                try:
                    lane.queue = self._stopwatch.capture(lane.queue)
                    if lane.accumulates:
                        # Its timed calls can't be compared: calls from a graph are, that was made like theirs.
                        lane.once = self._stopwatch.capture(self._calls(lane, lane.contender.slots))
                except Exception as error:
                    lane.problem = f"its calls could not be captured in a graph: {type(error).__name__}: {error}"
        self._agree()
        self._meet()

    def _round(self, keep: bool = False) -> None:
        """One sample of each lane, in turn."""
        marks = []
        for lane in self._live:
            self._fabric.queue_barrier()
            self._stopwatch.delay()
            start = self._stopwatch.mark()
            lane.queue()
            marks.append((lane, start, self._stopwatch.mark()))
        self._settle()
        if keep:
            for lane, start, end in marks:
                lane.samples_us.append(self._stopwatch.elapsed_us(start, end) / lane.calls)

    def _check_what_is_left(self) -> None:
        """The outputs of the timed calls themselves; where they accumulate only that they did anything on each slot."""
        for lane in self._live:
            if not lane.accumulates:
                lane.after.append(lane.checked(self._fabric.rank))
            elif lane.changes and any(map(lane.is_as_before, lane.outputs())):
                lane.problem = "the timed calls changed nothing"
        self._agree()
