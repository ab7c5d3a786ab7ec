"""Times of a custom kernel: the per-rank program that measures it, on slots of all its buffers, compared with nothing.

It is launched again and again on what the launch before it left: buffers are filled before the checks and before the
samples, not between calls. What the timed calls left is compared with the reference, unless a second call on the same
buffers gives something else than the first: then calls after them, from freshly filled buffers, are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch

from cases.record.record import LinkLimit, Timing
from memory.fabric import Argument, DeviceFabric, Fabric, Launch
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.allocation import ADDRESS_BYTES, GUARD_BYTES
from runner.case.binding import device_of
from runner.custom.contents import content_of
from runner.custom.judge import judged, wrong_elements
from runner.custom.nouns import Contents, CustomSpec
from runner.custom.program import CustomMemory, CustomOutcome, CustomPlan, allocate_custom, bound_launch
from runner.timing.kernel_names import CapturedKernel
from runner.timing.link import LinkTimes, link_limit, measure_link
from runner.timing.measure import HEAP_SHARE, TimedResult, calls_for, expected_us, slots_for, whole_turns
from runner.timing.sampling import WRONG_BEFORE, Sampling
from runner.timing.stopwatch import Stopwatch, TorchStopwatch

if TYPE_CHECKING:
    from runner.request.schema import TimingRequest

_BETWEEN_BYTES = 512
"""What an allocation takes at least, and is rounded up to, on the fabrics that there are."""


@dataclass(frozen=True, slots=True)
class CustomMeasurePlan:
    """What all ranks measure: the kernel with its buffers, what they must hold afterwards by rank, and how.

    link says whether to time the links, too.
    """

    run: CustomPlan
    expected: tuple[Contents, ...]
    timing: TimingRequest
    link: bool = False


@dataclass(frozen=True, slots=True)
class CustomTimes:
    """What one rank brings home. samples_us are per call; problem says why there are none.

    elements_before and elements_after were compared. wrong is the first slot that was not right, None without one.
    """

    rank: int
    slots: int
    calls_per_sample: int
    samples_us: tuple[float, ...]
    elements_before: int
    elements_after: int
    wrong: CustomOutcome | None
    problem: str
    link: LinkTimes | None
    device_before: dict[str, Any]
    device_after: dict[str, Any]
    l2_bytes: int


def slot_bytes_of(spec: CustomSpec) -> int:
    """Return the bytes of all buffers of one slot."""
    return sum(buffer.size_bytes for buffer in spec.buffers)


def expected_s(plan: CustomMeasurePlan) -> float:
    """A rough guess of what all samples take."""
    size_bytes = slot_bytes_of(plan.run.spec)
    calls = calls_for(size_bytes, plan.timing.calls) + plan.timing.lead_in_calls
    per_round_us = calls * expected_us(size_bytes) + 200
    return (plan.timing.most_samples + plan.timing.warmup) * per_round_us / 1e6


def measure_custom(fabric: Fabric, plan: CustomMeasurePlan, stopwatch: Stopwatch | None = None) -> CustomTimes:
    """Measure a custom kernel on this rank. All ranks call it with the same plan.

    Raises ValueError on a simulated fabric, which has no clock of real hardware, and what the fabric raises. stopwatch
    replaces the device's own in tests.
    """
    if stopwatch is None:
        if fabric.traits.simulated:
            raise ValueError(f"the fabric {fabric.traits.name} is simulated: there is no clock of real hardware")
        stopwatch = TorchStopwatch(device_of(fabric))
    device = cast(DeviceFabric, fabric)
    with SymmetricPool(fabric) as pool:
        link = measure_link(device, pool, stopwatch) if plan.link else None
        measurement = _open(device, pool, plan)
        before, after = Sampling(device, plan.timing, stopwatch, [measurement]).run()
        found = CustomTimes(
            rank=fabric.rank,
            slots=measurement.slots,
            calls_per_sample=measurement.calls,
            samples_us=tuple(measurement.samples_us),
            elements_before=measurement.elements_before,
            elements_after=measurement.elements_after,
            wrong=measurement.wrong,
            problem=measurement.problem,
            link=link,
            device_before=before,
            device_after=after,
            l2_bytes=fabric.traits.l2_bytes,
        )
        del measurement
    return found


def _open(fabric: DeviceFabric, pool: SymmetricPool, plan: CustomMeasurePlan) -> CustomMeasurement:
    """Collective: the kernel, with as many slots as it is to have."""
    spec, timing = plan.run.spec, plan.timing
    size_bytes = slot_bytes_of(spec)
    calls = calls_for(size_bytes, timing.calls)
    budget_bytes = int(fabric.traits.heap_bytes * HEAP_SHARE)
    parts = [buffer.size_bytes + 2 * GUARD_BYTES for buffer in spec.buffers]
    parts += [ADDRESS_BYTES * fabric.world_size for _ in spec.tables]
    held_bytes = sum(-(-part // _BETWEEN_BYTES) * _BETWEEN_BYTES for part in parts)
    slots = slots_for(size_bytes, timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    slots = max(1, min(slots, budget_bytes // held_bytes))
    memories = [allocate_custom(pool, spec, fabric.world_size, f"slot {slot} ") for slot in range(slots)]
    device = device_of(fabric)
    contents = {}
    for buffer in spec.buffers:
        given = plan.run.given.get(buffer.name)
        made = given[fabric.rank] if given else content_of(buffer, fabric.rank, fabric.world_size, plan.run.seed)
        contents[buffer.name] = flat_bytes(made).to(device)
    return CustomMeasurement(
        fabric=fabric,
        plan=plan.run,
        expected=plan.expected[fabric.rank],
        memories=memories,
        launches=[bound_launch(fabric, spec, plan.run.compiled, memory) for memory in memories],
        contents=contents,
        calls=whole_turns(calls, slots, timing.calls),
    )


@dataclass(slots=True)
class CustomMeasurement:
    """A custom kernel on its way through a measurement (see runner.timing.sampling.Measured).

    contents are what the buffers hold before a call, as bytes on the device.
    """

    fabric: DeviceFabric
    plan: CustomPlan
    expected: Contents
    memories: list[CustomMemory]
    launches: list[tuple[Launch, tuple[Argument, ...]]]
    contents: dict[str, torch.Tensor]
    calls: int
    problem: str = ""
    changes: bool = True
    accumulates: bool | None = None
    queue: Callable[[], None] | None = None
    once: Callable[[], None] | None = None
    samples_us: list[float] = field(default_factory=list)
    kernels: tuple[CapturedKernel, ...] = ()
    elements_before: int = 0
    elements_after: int = 0
    wrong: CustomOutcome | None = None

    @property
    def label(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return self.plan.compiled.executable.name

    @property
    def slots(self) -> int:
        return len(self.memories)

    def write(self, slot: int) -> None:
        for name, placed in self.memories[slot].buffers.items():
            placed.write(self.fabric, self.contents[name])

    def launch(self, slot: int) -> None:
        self.fabric.launch(self.plan.compiled.executable, *self.launches[slot])

    def captured(self) -> None:
        pass

    def trouble(self) -> str:
        return ""

    def look_before(self, rank: int) -> None:
        self.elements_before, self.wrong = self._looked_at(rank)
        self.changes = bool(self.expected) and not self._is_as_before(0)
        if self.wrong is not None:
            self.problem = WRONG_BEFORE

    def look_again(self, rank: int) -> bool:
        return self._looked_at(rank)[1] is None

    def agree(self, is_right_again: bool) -> None:
        self.accumulates = not is_right_again

    def look_after(self, rank: int) -> None:
        elements, wrong = self._looked_at(rank)
        self.elements_after += elements
        self.wrong = self.wrong or wrong

    def is_unchanged(self) -> bool:
        return any(map(self._is_as_before, range(self.slots)))

    def _is_as_before(self, slot: int) -> bool:
        """Whether all compared buffers of a slot hold what they held before any call."""
        buffers = self.memories[slot].buffers
        return all(torch.equal(buffers[name].inspect(self.fabric), self.contents[name]) for name in self.expected)

    def _looked_at(self, rank: int) -> tuple[int, CustomOutcome | None]:
        """How many elements of all slots were compared, and the first slot that is wrong."""
        spec, elements, wrong = self.plan.spec, 0, None
        for memory in self.memories:
            outputs = {
                name: memory.buffers[name].inspect(self.fabric).cpu().clone().view(one.dtype).view(one.shape)
                for name, one in self.expected.items()
            }
            elements += sum(one.numel() for one in outputs.values())
            if wrong is None and wrong_elements(spec, self.expected, outputs):
                wrong = CustomOutcome(rank, (outputs,), ())
        return elements, wrong


def combine_custom(
    plan: CustomMeasurePlan,
    spec: CustomSpec,
    inputs: Sequence[Contents],
    rows: Sequence[CustomTimes],
    limit: LinkLimit | None,
    moved_bytes: int,
) -> tuple[TimedResult, LinkLimit | None]:
    """Return the kernel's TimedResult from its rows, one a rank, and the links' limit.

    inputs are what its buffers held, by rank. moved_bytes are those that a call moves over a rank's links, as they were
    declared; 0: there is no bandwidth. limit is what an earlier measurement of the same job found.
    """
    rows = sorted(rows, key=lambda one: one.rank)
    limit = link_limit([row.link for row in rows]) or limit
    if any(row.wrong is not None for row in rows):
        outcomes = [row.wrong or CustomOutcome(row.rank, (), ()) for row in rows]
        return TimedResult(wrong=judged(spec, inputs, plan.expected, outcomes).check), limit
    problem = next((row.problem for row in rows if row.problem), "")
    if problem:
        return TimedResult(problem=problem), limit
    timing = Timing(
        mode=str(plan.timing.mode),
        window=str(plan.timing.window),
        l2=str(plan.timing.l2),
        slots=rows[0].slots,
        slot_bytes=slot_bytes_of(spec),
        warmup_calls=plan.timing.warmup * rows[0].calls_per_sample,
        calls_per_sample=rows[0].calls_per_sample,
        bus_factor=1.0,
        samples_us=tuple(row.samples_us for row in rows),
        checked_before=sum(row.elements_before for row in rows),
        checked_after=sum(row.elements_after for row in rows),
        limit=limit,
        devices=tuple({"before": row.device_before, "after": row.device_after} for row in rows),
        l2_bytes=rows[0].l2_bytes,
        moved_bytes=moved_bytes,
    )
    return TimedResult(timing=timing), limit
