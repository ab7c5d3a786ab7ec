"""The per-rank program of a case under stress: launches on one set of workspaces, in the way that the case names.

Launches take slots in turn, each with its own input and output, and slots change their data from round to round. Every
output of every launch is compared. Between launches the hosts meet in a barrier only where the kernel's spec does not
promise no_host_barrier: so what a spec promises holds together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cases.case import Case
from cases.stress import parts_of
from kernels.spec import KernelSpec
from memory.fabric import Deadlock, Executable, Fabric
from memory.pool import SymmetricPool
from runner.case.binding import bind, device_of
from runner.case.check import RankCheck, check_rank
from runner.case.contestant import check_names
from runner.case.inputs import digest_of
from runner.case.program import RankOutcome, check_world, input_of, output_of

LATE_S = 0.05
"""How long a late rank's host sleeps on GPUs; in the simulator it waits until the other ranks can do nothing more."""
SIMULATED_PATIENCE_NS = 2_000_000
"""How long a simulated kernel waits for a dead rank, by its clock: 2,000 steps of all ranks together."""
STREAMS = (1, 2)
"""Of two_streams, beside the default one."""


@dataclass(frozen=True, slots=True)
class StressPlan:
    """What all ranks are to run: cases that take turns (the plan's own first), what was compiled for each.

    rounds: how often all slots are launched and compared.
    """

    cases: tuple[Case, ...]
    spec: KernelSpec
    executables: tuple[Executable, ...]
    rounds: int = 2
    check: bool = True
    patience_s: float = 10.0
    brings_output: bool = False

    def __post_init__(self) -> None:
        for case, executable in zip(self.cases, self.executables, strict=True):
            check_names(case, self.spec, executable)

    @property
    def case(self) -> Case:
        """The case that the plan is about."""
        return self.cases[0]

    @property
    def meets(self) -> bool:
        """Whether hosts meet in a barrier between launches."""
        return "no_host_barrier" not in self.spec.promises

    def data(self, slot: int, round_number: int) -> Case:
        """The case whose data a slot holds in a round: slot 0 has the plan's own in round 0."""
        case = self.cases[slot]
        return dataclasses.replace(case, seed=(case.seed + slot + round_number) % (1 << 63))


class Instance:
    """A kernel's one set of workspaces on a rank, and the slots that its launches take in turn."""

    def __init__(self, fabric: Fabric, pool: SymmetricPool, plan: StressPlan) -> None:
        self.fabric, self.plan = fabric, plan
        numbers = STREAMS if "two_streams" in parts_of(plan.case.stress) else ()
        self.streams = [own_stream(fabric, number) for number in numbers]
        self.kernel = bind(fabric, pool, plan.spec, plan.cases, plan.executables, plan.patience_s)
        self.checks: list[RankCheck] = []
        self.faults: list[str] = []
        self.output: torch.Tensor | None = None

    def prepare(self, round_number: int, slots: Sequence[int]) -> None:
        """Fill the slots' inputs, and make all else of their payloads unlike any result."""
        for slot in slots:
            self.kernel.write_counts(slot, self.plan.data(slot, round_number))  # they follow from the seed
        held = self._held(round_number, slots)
        self.kernel.prepare(1 + round_number, {slot: data for slot, (_, data) in held.items()})
        self.fabric.synchronize()

    def _held(self, round_number: int, slots: Sequence[int]) -> dict[int, tuple[Case, torch.Tensor]]:
        """By slot, the case whose data it holds in a round, and what its input holds."""
        cases = {slot: self.plan.data(slot, round_number) for slot in slots}
        return {slot: (case, input_of(self.fabric, case)) for slot, case in cases.items()}

    def done(self) -> None:
        """Wait for this rank's launches. Raises Deadlock where a kernel gave a wait up."""
        self.fabric.synchronize()
        if text := self.kernel.trouble():
            raise Deadlock(text, rank=self.fabric.rank)

    def compare(self, round_number: int, slots: Sequence[int]) -> None:
        """Compare the slots' outputs with their references, and look at all guards."""
        plan, fabric = self.plan, self.fabric
        wants_output = plan.brings_output and not round_number and 0 in slots
        held = self._held(round_number, slots) if plan.check or wants_output else {}
        for slot, (case, data) in held.items():
            output = self.kernel.output(slot, case).clone()
            if wants_output and not slot:
                self.output = output_of(case, fabric.rank, [output])
            if plan.check:
                self._judge(f"round {round_number}, slot {slot}", case, data, output)
        if plan.check:
            self.faults += self.kernel.faults(round_number + 1, held)

    def _judge(self, where: str, case: Case, data: torch.Tensor, output: torch.Tensor) -> None:
        """Compare an output; a wrong one of other data than the plan's case becomes a fault."""
        found = check_rank(case, self.plan.spec, self.fabric.rank, [output], (), input_digest=digest_of(data))
        if case == self.plan.case:
            self.checks.append(found)
        elif found.wrong:
            assert found.first_mismatch is not None
            at = found.first_mismatch
            self.faults.append(
                f"{where} ({case.size_bytes} bytes, seed {case.seed}): {found.wrong} of {found.elements} elements "
                f"wrong, the first at {at.index}: {at.actual_bits}, expected {at.expected_bits}"
            )


def run_stressed(fabric: Fabric, plan: StressPlan) -> RankOutcome:
    """Run a plan's launches on this rank under what its case names, and check what came out.

    All ranks call it with the same plan. Raises ValueError for a plan that is not for this world, HeapFull when its
    memory does not fit, and what the fabric raises.
    """
    check_world(plan.case, fabric)
    with SymmetricPool(fabric) as pool:
        instance = Instance(fabric, pool, plan)
        instance.prepare(0, range(len(plan.cases)))
        fabric.barrier()  # no peer may reach this memory before it's ready
        report = _launched(instance, parts_of(plan.case.stress))
        fabric.barrier()
        check = _merged(instance) if plan.check else None
        return RankOutcome(fabric.rank, check, instance.output, report)


def _merged(instance: Instance) -> RankCheck:
    """The check of the plan's own case, with what was found of all other launches."""
    (check,) = instance.checks
    return dataclasses.replace(check, guard_faults=(*check.guard_faults, *dict.fromkeys(instance.faults)))


def _rounds(instance: Instance, slots: Sequence[int]) -> Iterator[int]:
    """The numbers of the rounds: slots are filled before each, and compared after it."""
    for number in range(instance.plan.rounds):
        if number:
            instance.prepare(number, slots)
            if instance.plan.meets:
                instance.fabric.barrier()
        yield number
        instance.done()
        instance.compare(number, slots)
        if instance.plan.meets:
            instance.fabric.barrier()


def _in_turn(instance: Instance, is_late: bool) -> str:
    """Launch all slots in turn; with is_late each launch has a rank that is late with it."""
    fabric, slots = instance.fabric, range(len(instance.plan.cases))
    for number in _rounds(instance, slots):
        for slot in slots:
            if is_late:
                _be_late(fabric, number * len(slots) + slot)
            instance.kernel.launch(slot)
            if instance.plan.meets:
                instance.done()
                fabric.barrier()
    return ""


def _be_late(fabric: Fabric, *turns: int) -> None:
    """Pause once if one of the turns is this rank's; ranks take them one after another."""
    if any(turn % fabric.world_size == fabric.rank for turn in turns):
        fabric.pause(LATE_S)


def _two_streams(instance: Instance, is_late: bool) -> str:
    """Launch two slots at once, in one order on even ranks and in the other on odd ones; with is_late each launch has a
    rank that is late with it."""
    order = (0, 1) if instance.fabric.rank % 2 == 0 else (1, 0)
    for number in _rounds(instance, (0, 1)):
        for place, slot in enumerate(order):
            if is_late:
                _be_late(instance.fabric, 2 * number + place)
            instance.kernel.launch(slot, instance.streams[slot])
    return ""


def _graphs(instance: Instance, is_late: bool) -> str:
    """Replay all slots at once on even ranks, one by one on odd ones; a rank pauses before its turn's replay, and with
    is_late each launch has a rank that is late with the replay that it is in."""
    fabric, slots = instance.fabric, range(len(instance.plan.cases))
    whole = [slots] if fabric.rank % 2 == 0 else [(slot,) for slot in slots]
    for one in instance.plan.executables:
        fabric.load(one)
    replays = [captured(fabric, partial(_launch_all, instance, some)) for some in whole]
    for number in _rounds(instance, slots):
        for place, replay in enumerate(replays):
            turns = [number] if place == len(replays) // 2 else []
            turns += [number * len(slots) + slot for slot in whole[place]] if is_late else []
            _be_late(fabric, *turns)
            replay()
    return ""


def _launch_all(instance: Instance, slots: Sequence[int]) -> None:
    for slot in slots:
        instance.kernel.launch(slot)


def _dead_rank(instance: Instance) -> str:
    """Launch all slots on all ranks and compare; then one on all but the last rank, and return what that reports."""
    fabric, slots = instance.fabric, range(len(instance.plan.cases))
    for slot in slots:
        instance.kernel.launch(slot)
        instance.done()
        fabric.barrier()
    instance.compare(0, slots)
    fabric.barrier()
    if fabric.rank == fabric.world_size - 1:
        return ""
    if fabric.traits.simulated:  # where kernels otherwise wait for ever
        instance.kernel.set_patience(SIMULATED_PATIENCE_NS)
    instance.kernel.launch(0)
    fabric.synchronize()
    return instance.kernel.trouble()


def _launched(instance: Instance, stress: Collection[str]) -> str:
    """Make the launches in the way that a combination of names says; return what a kernel reported of a dead rank."""
    is_late = "late_rank" in stress
    if "dead_rank" in stress:
        return _dead_rank(instance)
    if "two_streams" in stress:
        return _two_streams(instance, is_late)
    return _graphs(instance, is_late) if "graph_out_of_step" in stress else _in_turn(instance, is_late)


def unnamed_death(outcomes: Sequence[RankOutcome]) -> str:
    """Return what is wrong with the ranks' reports of a dead rank, the last one; "" if one of them names it."""
    dead = len(outcomes) - 1
    reports = [one.report for one in sorted(outcomes, key=lambda one: one.rank)[:dead]]
    silent = [rank for rank, report in enumerate(reports) if not report]
    if silent:
        return f"rank {dead} never launched, and rank {silent[0]} ended without a report"
    if any(f"for rank {dead}:" in report for report in reports):
        return ""
    return f"rank {dead} never launched, and no report names it: {'; '.join(reports)}"


def own_stream(fabric: Fabric, number: int | None) -> int | None:
    """Return the handle of a stream of the rank: on a GPU a new one of torch's, which keeps it as long as the process
    lives; in the simulator the number itself. None: the default stream."""
    device = device_of(fabric)
    if number is None or device.type != "cuda":
        return number
    return int(torch.cuda.Stream(device).cuda_stream)  # type: ignore[no-untyped-call]


def on_streams(fabric: Fabric, streams: Iterable[int | None], queue: Callable[[], None]) -> None:
    """Queue what queue() queues on streams, after all that the default one has, and before all that it gets."""
    apart = [one for one in dict.fromkeys(streams) if one is not None]
    for one in apart:
        fabric.wait_stream(one, None)
    queue()
    for one in apart:
        fabric.wait_stream(None, one)


def captured(fabric: Fabric, queue: Callable[[], None]) -> Callable[[], None]:
    """A graph of what queue() queues, as what replays it. In the simulator a replay queues it again."""
    device = device_of(fabric)
    if device.type != "cuda":
        return queue
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            queue()
        finally:
            graph.capture_end()
    current.wait_stream(side)
    replay: Callable[[], None] = graph.replay
    return replay
