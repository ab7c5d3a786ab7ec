"""Times by a GPU's own clock: the per-rank program that measures all contestants of one size together, interleaved.

A sample is one contestant's calls between two events, divided by their number. The contestants take turns (A B C A B
C), each on slots of its own. Before a sample all ranks meet in a barrier on the device and then spin for a little
while, so that every host has queued its calls before any rank begins; nothing waits on the host but
Fabric.synchronize(), which has a deadline. Ranks leave that barrier at different times, which the first call after it
has in its time, unless the same contestant makes calls before a sample that are not timed. Every kernel is launched
once before anything that spins is timed.

Nothing is timed that was not right just before, and no time is kept of what is not right just after: inputs are
written and outputs poisoned between the warm-up and the timed calls, and outputs are looked at after them; then inputs
are written again, each slot is launched once, and looked at again. In place the timed calls of a sum add up their own
results, beyond the largest number after a few: only what follows the new inputs is compared, and that comes from a
graph, too, where graphs are timed. (What a second call in place leaves as it is, data moved or a maximum, is compared
like everything else.)
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch

from cases import ops
from cases.case import Case
from kernels.baselines import Baseline
from memory.fabric import DeviceFabric, Fabric
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.binding import Slots, device_of, open_kernel
from runner.case.buffers import POISON
from runner.case.check import RankCheck, check_rank
from runner.case.contestant import Contestant
from runner.case.layout import layout_of, slot_bytes
from runner.case.libraries import open_baseline
from runner.case.library_slots import LibrarySlots
from runner.case.program import input_of
from runner.custom.program import CustomOutcome
from runner.timing.calls import HEAP_SHARE, calls_for, expected_us, slots_for, whole_turns
from runner.timing.custom import CustomContestant, CustomMeasurement, open_custom
from runner.timing.kernel_names import CapturedKernel
from runner.timing.link import LinkTimes, measure_link
from runner.timing.sampling import WRONG_BEFORE, Measured, Sampling
from runner.timing.stopwatch import Stopwatch

if TYPE_CHECKING:
    from runner.request.schema import TimingRequest

REPEATABLE = ("none", "min", "max", "and", "or")
"""Reductions (and none) of which a second call in place changes nothing more."""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What all ranks measure together: contestants of one size, or a custom kernel alone, and how. link says whether to
    time the links, too."""

    contestants: tuple[Contestant | CustomContestant, ...]
    timing: TimingRequest
    patience_s: float = 10.0
    link: bool = False

    def __post_init__(self) -> None:
        if not self.contestants:
            raise ValueError("a plan to measure needs at least one contestant")
        names = [contestant.title for contestant in self.contestants]
        if len({contestant.size_bytes for contestant in self.contestants}) > 1 or len(set(names)) < len(names):
            raise ValueError(
                f"what is measured together has one size and different names or placements: {', '.join(names)}"
            )


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What one rank found of one contestant. samples_us are per call; problem says why there are none. elements were
    compared before the samples, and after them. kernels are those of its graph.

    checks are a case's, the first before the samples; wrong is the first slot of a custom kernel that was not right.
    """

    slots: int
    slot_bytes: int
    calls_per_sample: int
    samples_us: tuple[float, ...]
    elements: tuple[int, int]
    checks: tuple[RankCheck, ...] = ()
    wrong: CustomOutcome | None = None
    problem: str = ""
    kernels: tuple[CapturedKernel, ...] = ()


@dataclass(frozen=True, slots=True)
class RankMeasurement:
    """What one rank brings home, contestants in the plan's order; device_before and device_after: see read_clocks."""

    rank: int
    contestants: tuple[RankTimes, ...]
    link: LinkTimes | None
    device_before: dict[str, Any]
    device_after: dict[str, Any]
    l2_bytes: int = 0


def expected_s(plan: MeasurePlan) -> float:
    """A rough guess of what all samples take; see expected_us."""
    size_bytes = plan.contestants[0].size_bytes
    calls = plan.timing.calls_in_all(calls_for(size_bytes, plan.timing.calls))
    per_round_us = len(plan.contestants) * (calls * expected_us(size_bytes) + 200)
    return (plan.timing.most_samples + plan.timing.warmup) * per_round_us / 1e6


def measure(fabric: Fabric, plan: MeasurePlan, stopwatch: Stopwatch | None = None) -> RankMeasurement:
    """Measure all contestants of a plan on this rank. All ranks call it with the same plan.

    Raises ValueError on a simulated fabric, which has no clock of real hardware; Deadlock when a kernel gave up a
    wait; and what the fabric and the libraries raise. stopwatch replaces the device's own in tests.
    """
    if stopwatch is None:
        if fabric.traits.simulated:
            raise ValueError(f"the fabric {fabric.traits.name} is simulated: there is no clock of real hardware")
        stopwatch = Stopwatch(device_of(fabric))
    device = cast(DeviceFabric, fabric)
    budget_bytes = int(fabric.traits.heap_bytes * HEAP_SHARE) // len(plan.contestants)
    with SymmetricPool(fabric) as pool:
        link = measure_link(device, pool, stopwatch) if plan.link else None
        with contextlib.ExitStack() as stack:
            measurements: list[Measurement | CustomMeasurement] = [
                open_custom(device, pool, one, plan.timing, budget_bytes)
                if isinstance(one, CustomContestant)
                else _open(stack, device, pool, plan, one, budget_bytes)
                for one in plan.contestants
            ]
            before, after = Sampling(device, plan.timing, stopwatch, measurements).run()
            found = tuple(_times(measurement) for measurement in measurements)
            del measurements
    return RankMeasurement(fabric.rank, found, link, before, after, fabric.traits.l2_bytes)


def _times(one: Measurement | CustomMeasurement) -> RankTimes:
    names = ("slots", "slot_bytes", "elements", "problem", "kernels")
    return RankTimes(
        **{name: getattr(one, name) for name in names},
        calls_per_sample=one.calls,
        samples_us=tuple(one.samples_us),
        checks=tuple(one.checks) if isinstance(one, Measurement) else (),
        wrong=one.wrong if isinstance(one, CustomMeasurement) else None,
    )


def _open(
    stack: contextlib.ExitStack,
    fabric: DeviceFabric,
    pool: SymmetricPool,
    plan: MeasurePlan,
    contestant: Contestant,
    budget_bytes: int,
) -> Measurement:
    """Open one contestant with as many slots as it is to have."""
    case, timing = contestant.case, plan.timing
    calls = calls_for(case.size_bytes, timing.calls)
    slots = slots_for(slot_bytes(case), timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    if isinstance(contestant.spec, Baseline):
        opened = stack.enter_context(open_baseline(contestant.spec.name, fabric, pool, case, slots))
    else:
        opened = stack.enter_context(open_kernel(fabric, pool, contestant, slots, plan.patience_s))
    data = input_of(fabric, case)
    return Measurement(
        name=case.name,
        label=case.id,
        slots=slots,
        slot_bytes=slot_bytes(case),
        calls=whole_turns(calls, slots, timing.calls),
        accumulates=accumulates(case),
        contestant=contestant,
        opened=opened,
        data=data,
        before_call=before_call(case, fabric.rank, data),
        has_output=ops.collective(case.op).gives(case, fabric.rank),
    )


@dataclass(slots=True, kw_only=True)
class Measurement(Measured):
    """One contestant on its way: its contestant, its data, and what was found so far.

    before_call is what a slot's output holds before a call, has_output whether the op gives this rank anything.
    """

    contestant: Contestant
    opened: Slots | LibrarySlots
    data: torch.Tensor
    before_call: torch.Tensor
    has_output: bool = True
    checks: list[RankCheck] = field(default_factory=list)

    def write(self, slot: int) -> None:
        self.opened.write(slot, self.data)

    def launch(self, slot: int) -> None:
        self.opened.launch(slot)

    def captured(self) -> None:
        self.opened.captured()

    def trouble(self) -> str:
        return self.opened.trouble()

    def look_before(self, rank: int) -> None:
        check = self._look(rank)
        # xor goes back and forth: an even number of calls may leave what was there.
        self.changes = self.contestant.case.reduction != "xor" and not self.is_as_before(self.opened.output(0))
        if check.wrong or check.guard_faults:
            self.problem = WRONG_BEFORE

    def look_after(self, rank: int) -> None:
        self._look(rank)

    def is_unchanged(self) -> bool:
        return any(map(self.is_as_before, self.outputs()))

    def outputs(self) -> list[torch.Tensor]:
        """What lies in the outputs of all slots; to be looked at."""
        return [self.opened.output(slot) for slot in range(self.slots)]

    def is_as_before(self, output: torch.Tensor) -> bool:
        """Whether an output holds what it held before any call."""
        return torch.equal(flat_bytes(output), self.before_call)

    def _look(self, rank: int) -> RankCheck:
        check = self.checked(rank)
        before, after = self.elements
        self.elements = (before, after + check.elements) if self.checks else (check.elements, 0)
        self.checks.append(check)
        return check

    def checked(self, rank: int) -> RankCheck:
        """What is wrong with the outputs; for a rank that is given none, that one of them was changed."""
        outputs = self.outputs()
        faults: list[str] = []
        if not self.has_output and self.contestant.executable is not None:
            touched = [slot for slot, output in enumerate(outputs) if not self.is_as_before(output)]
            faults = [f"the output of a rank that is given none changed in slot {slot}" for slot in touched]
        return check_rank(self.contestant.case, self.contestant.spec, rank, outputs, faults)


def accumulates(case: Case) -> bool:
    """Whether calls of a case go on from the results of those before them."""
    return case.placement == "in_place" and case.reduction not in REPEATABLE


def before_call(case: Case, rank: int, data: torch.Tensor) -> torch.Tensor:
    """The bytes of an output before a call, on the data's device: poison, in place the input's where the two overlap.

    None where they never matter: an output out of place is written again before every call that is looked at.
    """
    layout = layout_of(case)
    if not layout.in_place and ops.collective(case.op).gives(case, rank):
        return data.new_empty(0, dtype=torch.uint8)
    held = torch.full((max(layout.payloads_bytes),), POISON, dtype=torch.uint8, device=data.device)
    if layout.in_place:
        held[layout.input_starts[rank] :][: layout.input_bytes] = flat_bytes(data)
    return held[layout.output_starts[rank] :][: layout.outputs_bytes[rank]]
