"""Times by a GPU's own clock: the per-rank program that measures all contestants of one size together, interleaved.

A sample is one contestant's calls between two events, divided by their number. The contestants take turns (A B C A B
C), each on slots of its own. Before a sample all ranks meet in a barrier on the device and then spin for a little
while, so that every host has queued its calls before any rank begins; nothing waits on the host but
Fabric.synchronize(), which has a deadline. Ranks leave that barrier at different times, which the first call after it
has in its time: with timing.lead_in_calls that is a call of the same contestant that is not timed. Every kernel is
launched once before anything that spins is timed.

Nothing is timed that was not right just before, and no time is kept of what is not right just after: inputs are
written and outputs poisoned between the warm-up and the timed calls, and outputs are looked at after them; then inputs
are written again, each slot is launched once, and looked at again. In place the timed calls of a sum add up their own
results, beyond the largest number after a few: only what follows the new inputs is compared, and that comes from a
graph, too, where graphs are timed. (What a second call in place leaves as it is, data moved or a maximum, is compared
like everything else.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch

from cases import ops
from cases.case import Case
from cases.record.record import Check, LinkLimit, Timing
from cases.record.timing import L2State
from kernels.baselines import Baseline
from memory.fabric import DeviceFabric, Fabric
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.binding import device_of
from runner.case.buffers import POISON
from runner.case.check import RankCheck, check_rank, merge
from runner.case.contestant import Contestant
from runner.case.inputs import make_input
from runner.case.layout import layout_of
from runner.case.libraries import open_baseline
from runner.case.slots import OpenContestant, open_kernel, slot_bytes
from runner.timing.kernel_names import CapturedKernel
from runner.timing.link import LinkTimes, link_limit, measure_link
from runner.timing.sampling import WRONG_BEFORE, Sampling
from runner.timing.stopwatch import Stopwatch, TorchStopwatch

if TYPE_CHECKING:
    from runner.request.schema import TimingRequest

SAMPLE_US = 750.0
"""What a sample should last, where its number of calls is not given."""

FEWEST_CALLS, MOST_CALLS = 4, 50

HEAP_SHARE = 0.9
"""How much of the symmetric heap the slots of all contestants may take together."""


REPEATABLE = ("none", "min", "max", "and", "or")
"""Reductions (and none) of which a second call in place changes nothing more."""


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What all ranks measure together: contestants of one size, and how. link says whether to time the links, too."""

    contestants: tuple[Contestant, ...]
    timing: TimingRequest
    patience_s: float = 10.0
    link: bool = False

    def __post_init__(self) -> None:
        if not self.contestants:
            raise ValueError("a plan to measure needs at least one contestant")
        names = [f"{contestant.case.name} {contestant.case.placement}" for contestant in self.contestants]
        if len({contestant.case.size_bytes for contestant in self.contestants}) > 1 or len(set(names)) < len(names):
            raise ValueError(
                f"what is measured together has one size and different names or placements: {', '.join(names)}"
            )


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What one rank found of one contestant. samples_us are per call; problem says why there are none. kernels are
    those of its graph."""

    slots: int
    slot_bytes: int
    calls_per_sample: int
    samples_us: tuple[float, ...]
    before: RankCheck
    after: tuple[RankCheck, ...]
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


def expected_us(size_bytes: int) -> float:
    """A rough guess of what a call takes: the start of a collective, and the bytes at 200 GB/s."""
    return 15.0 + size_bytes / 200e3


def calls_for(size_bytes: int, given: int | None) -> int:
    """Calls a sample: as given, or as many as make it about SAMPLE_US long."""
    if given is not None:
        return given
    return min(max(round(SAMPLE_US / expected_us(size_bytes)), FEWEST_CALLS), MOST_CALLS)


def slots_for(one_slot_bytes: int, l2: str, l2_bytes: int, calls: int, budget_bytes: int) -> int:
    """Slots of a contestant: enough to be twice the L2 cache together, no more than calls or than the heap permits."""
    if l2 == L2State.hot:
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
    calls = calls_for(plan.contestants[0].case.size_bytes, plan.timing.calls) + plan.timing.lead_in_calls
    per_round_us = len(plan.contestants) * (calls * expected_us(plan.contestants[0].case.size_bytes) + 200)
    return (plan.timing.most_samples + plan.timing.warmup) * per_round_us / 1e6


def measure(fabric: Fabric, plan: MeasurePlan, stopwatch: Stopwatch | None = None) -> RankMeasurement:
    """Measure all contestants of a plan on this rank. All ranks call it with the same plan.

    Raises ValueError on a simulated fabric, which has no clock of real hardware; Deadlock when a kernel gave up a
    wait; and what the fabric and the libraries raise. stopwatch replaces the device's own in tests.
    """
    if stopwatch is None:
        if fabric.traits.simulated:
            raise ValueError(f"the fabric {fabric.traits.name} is simulated: there is no clock of real hardware")
        stopwatch = TorchStopwatch(device_of(fabric))
    device = cast(DeviceFabric, fabric)
    with SymmetricPool(fabric) as pool:
        link = measure_link(device, pool, stopwatch) if plan.link else None
        with contextlib.ExitStack() as stack:
            measurements = [_open(stack, device, pool, plan, contestant) for contestant in plan.contestants]
            before, after = Sampling(device, plan.timing, stopwatch, measurements).run()
            found = tuple(measurement.times() for measurement in measurements)
            del measurements
    return RankMeasurement(fabric.rank, found, link, before, after, fabric.traits.l2_bytes)


def _open(
    stack: contextlib.ExitStack, fabric: DeviceFabric, pool: SymmetricPool, plan: MeasurePlan, contestant: Contestant
) -> Measurement:
    """Open one contestant with as many slots as it is to have."""
    case, timing = contestant.case, plan.timing
    calls = calls_for(case.size_bytes, timing.calls)
    budget_bytes = int(fabric.traits.heap_bytes * HEAP_SHARE) // len(plan.contestants)
    slots = slots_for(slot_bytes(case), timing.l2, fabric.traits.l2_bytes, calls, budget_bytes)
    if isinstance(contestant.spec, Baseline):
        opened = stack.enter_context(open_baseline(contestant.spec.name, fabric, pool, case, slots))
    else:
        opened = stack.enter_context(open_kernel(fabric, pool, contestant, slots, plan.patience_s))
    count = ops.collective(case.op).counts(case.numel, case.world_size)[0]
    data = make_input(case, fabric.rank, count, device_of(fabric))
    return Measurement(
        contestant,
        opened,
        whole_turns(calls, slots, timing.calls),
        data,
        before_call=before_call(case, fabric.rank, data),
        has_output=ops.collective(case.op).gives(case, fabric.rank),
    )


@dataclass(slots=True)
class Measurement:
    """One contestant on its way: its contestant, its data, and what was found so far.

    before_call is what a slot's output holds before a call, has_output whether the op gives this rank anything;
    changes says that a call changes the output, as far as one right call showed it. queue queues one sample's calls,
    once one call on every slot; None: by launching them.
    """

    contestant: Contestant
    opened: OpenContestant
    calls: int
    data: torch.Tensor
    before_call: torch.Tensor
    has_output: bool = True
    changes: bool = True
    queue: Callable[[], None] | None = None
    once: Callable[[], None] | None = None
    before: RankCheck | None = None
    after: list[RankCheck] = field(default_factory=list)
    samples_us: list[float] = field(default_factory=list)
    kernels: tuple[CapturedKernel, ...] = ()
    problem: str = ""

    @property
    def name(self) -> str:
        return self.contestant.case.name

    @property
    def label(self) -> str:
        return self.contestant.case.id

    @property
    def slots(self) -> int:
        return self.opened.slots

    @property
    def accumulates(self) -> bool:
        """Whether calls in place go on from the results of those before them."""
        case = self.contestant.case
        return case.placement == "in_place" and case.reduction not in REPEATABLE

    def write(self, slot: int) -> None:
        self.opened.write(slot, self.data)

    def launch(self, slot: int) -> None:
        self.opened.launch(slot)

    def captured(self) -> None:
        self.opened.captured()

    def trouble(self) -> str:
        return self.opened.trouble()

    def look_before(self, rank: int) -> None:
        self.before = self.checked(rank)
        # xor goes back and forth: an even number of calls may leave what was there.
        self.changes = self.contestant.case.reduction != "xor" and not self.is_as_before(self.opened.output(0))
        if self.before.wrong or self.before.guard_faults:
            self.problem = WRONG_BEFORE

    def look_again(self, rank: int) -> bool:
        raise AssertionError(f"{self.name}: its case says whether its calls accumulate")

    def agree(self, is_right_again: bool) -> None:
        raise AssertionError(f"{self.name}: its case says whether its calls accumulate")

    def look_after(self, rank: int) -> None:
        self.after.append(self.checked(rank))

    def is_unchanged(self) -> bool:
        return any(map(self.is_as_before, self.outputs()))

    def outputs(self) -> list[torch.Tensor]:
        """What lies in the outputs of all slots; to be looked at."""
        return [self.opened.output(slot) for slot in range(self.opened.slots)]

    def is_as_before(self, output: torch.Tensor) -> bool:
        """Whether an output holds what it held before any call."""
        return torch.equal(flat_bytes(output), self.before_call)

    def checked(self, rank: int) -> RankCheck:
        """What is wrong with the outputs; for a rank that is given none, that one of them was changed."""
        outputs = self.outputs()
        faults: list[str] = []
        if not self.has_output and self.contestant.executable is not None:
            touched = [slot for slot, output in enumerate(outputs) if not self.is_as_before(output)]
            faults = [f"the output of a rank that is given none changed in slot {slot}" for slot in touched]
        return check_rank(self.contestant.case, self.contestant.spec, rank, outputs, faults)

    def times(self) -> RankTimes:
        assert self.before is not None
        return RankTimes(
            slots=self.opened.slots,
            slot_bytes=slot_bytes(self.contestant.case),
            calls_per_sample=self.calls,
            samples_us=tuple(self.samples_us),
            before=self.before,
            after=tuple(self.after),
            problem=self.problem,
            kernels=self.kernels,
        )


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


@dataclass(frozen=True, slots=True)
class TimedResult:
    """What became of one contestant: a timing; or a check that found it wrong; or a problem in words."""

    timing: Timing | None = None
    wrong: Check | None = None
    problem: str = ""


def combine(
    plan: MeasurePlan, ranks: Sequence[RankMeasurement], limit: LinkLimit | None
) -> tuple[list[TimedResult], LinkLimit | None]:
    """One TimedResult for each contestant of the plan, from all ranks' measurements, and the links' limit.

    limit is what an earlier measurement of the same job found; it stands where this one did not measure it.
    """
    ranks = sorted(ranks, key=lambda one: one.rank)
    limit = link_limit([one.link for one in ranks]) or limit
    names = [contestant.case.algorithm for contestant in plan.contestants]
    devices = tuple({"before": one.device_before, "after": one.device_after} for one in ranks)
    found = []
    for index in range(len(names)):
        others = tuple(dict.fromkeys(names[:index] + names[index + 1 :]))
        timed = _timed(plan, index, [one.contestants[index] for one in ranks])
        if timed.timing is not None:
            timing = replace(
                timed.timing, interleaved_with=others, limit=limit, devices=devices, l2_bytes=ranks[0].l2_bytes
            )
            timed = replace(timed, timing=timing)
        found.append(timed)
    return found, limit


def _timed(plan: MeasurePlan, index: int, rows: Sequence[RankTimes]) -> TimedResult:
    """One contestant's TimedResult from its rows, one a rank; what belongs to all contestants is not in it yet."""
    case, spec = plan.contestants[index].case, plan.contestants[index].spec
    rounds = [
        [row.before for row in rows],
        *(list(checks) for checks in zip(*(row.after for row in rows), strict=True)),
    ]
    for checks in rounds:
        check = merge(case, spec, checks)
        if check.faults:
            return TimedResult(wrong=check)
    problem = next((row.problem for row in rows if row.problem), "")
    if problem or len(rounds) < 2:
        return TimedResult(problem=problem or "its results were not checked after timing")
    ran = rows[0].kernels if isinstance(spec, Baseline) else ()
    timing = Timing(
        mode=str(plan.timing.mode),
        window=str(plan.timing.window),
        l2=str(plan.timing.l2),
        slots=rows[0].slots,
        slot_bytes=rows[0].slot_bytes,
        warmup_calls=plan.timing.warmup * rows[0].calls_per_sample,
        calls_per_sample=rows[0].calls_per_sample,
        bus_factor=ops.collective(case.op).bus_factor(case.world_size),
        samples_us=tuple(row.samples_us for row in rows),
        checked_before=sum(check.elements for check in rounds[0]),
        checked_after=sum(check.elements for checks in rounds[1:] for check in checks),
        kernels=tuple(one.name for one in ran) or None,
        kernel_blocks=tuple(one.blocks for one in ran) or None,
    )
    return TimedResult(timing=timing)
