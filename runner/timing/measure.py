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
from dataclasses import dataclass
from typing import Any, cast

from memory.fabric import DeviceFabric, Fabric
from memory.pool import SymmetricPool
from runner.case.binding import device_of
from runner.case.check import RankCheck
from runner.case.contestant import Contestant
from runner.custom.program import CustomOutcome
from runner.request.schema import TimingRequest
from runner.timing.calls import HEAP_SHARE, calls_for, expected_us
from runner.timing.custom import CustomContestant, CustomMeasurement, open_custom
from runner.timing.kernel_names import CapturedKernel
from runner.timing.link import LinkTimes, measure_link
from runner.timing.of_case import Measurement, open_case
from runner.timing.sampling import Sampling
from runner.timing.stopwatch import Stopwatch


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
    calls = calls_for(size_bytes, plan.timing.calls)
    per_round_us = len(plan.contestants) * (calls * expected_us(size_bytes) + 200)
    return (plan.timing.samples + plan.timing.warmup) * per_round_us / 1e6


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
                else open_case(stack, device, pool, one, plan.timing, plan.patience_s, budget_bytes)
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
