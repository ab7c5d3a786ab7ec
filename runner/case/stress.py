"""The per-rank program of a case under stress: launches on one set of workspaces, in the way that the case names.

Launches take slots in turn, each with its own input and output, and slots change their data from round to round. Every
output of every launch is compared. Between launches the hosts meet in a barrier only where the kernel's spec does not
promise no_host_barrier: so what a spec promises holds together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from cases.case import Case
from cases.dtypes import DTYPES
from cases.ops import collective
from cases.stress import parts_of
from kernels.spec import KernelSpec, Parameter
from memory.fabric import Argument, Deadlock, Executable, Fabric, Launch
from memory.pool import SymmetricPool
from runner.case.allocation import ADDRESS_BYTES, COUNTS, GUARD_BYTES, allocate_in_turn, workspaces_of
from runner.case.binding import arguments_of, device_of, status_report, write_counts, write_tables
from runner.case.buffers import changed_guards, changed_pieces, fill, halves
from runner.case.check import RankCheck, check_rank
from runner.case.contestant import check_names
from runner.case.inputs import digest_of, make_input
from runner.case.layout import layout_of
from runner.case.program import RankOutcome, output_of

LATE_S = 0.05
"""How long a late rank's host sleeps on GPUs; in the simulator it waits until the other ranks can do nothing more."""
SIMULATED_PATIENCE_NS = 2_000_000
"""How long a simulated kernel waits for a dead rank, by its clock: 2,000 steps of all ranks together."""
SIMULATED_STREAMS = (1, 2)


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
    guard_bytes: int = GUARD_BYTES
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
        self.streams = _streams(fabric) if "two_streams" in parts_of(plan.case.stress) else ()
        self._memory = allocate_in_turn(pool, plan.spec, plan.cases, plan.guard_bytes)
        for wanted, workspace in zip(workspaces_of(plan.spec, plan.cases), self._memory.workspaces, strict=True):
            initial = wanted.initial(workspace.size_bytes)
            if initial is not None:
                workspace.write(fabric, torch.frombuffer(bytearray(initial), dtype=torch.uint8))
        self.halves = [
            halves(layout_of(case), payloads, fabric.rank)
            for case, payloads in zip(plan.cases, self._memory.payloads, strict=True)
        ]
        self._arguments = self._bound()
        self._launches = [plan.spec.launch(case) for case in plan.cases]
        self.checks: list[RankCheck] = []
        self.faults: list[str] = []
        self.output: torch.Tensor | None = None

    def _bound(self) -> list[tuple[Argument, ...]]:
        """The arguments of each slot's launches."""
        fabric, plan = self.fabric, self.plan
        workspaces = {workspace.name: workspace for workspace in self._memory.workspaces}
        slots = [{"input": source, "output": target} | workspaces for source, target in self.halves]
        row_bytes = ADDRESS_BYTES * fabric.world_size
        write_tables(fabric, self._memory.tables, plan.cases, slots)
        found = []
        for slot, (case, buffers) in enumerate(zip(plan.cases, slots, strict=True)):
            tables = {name: table.address + row_bytes * slot for name, table in self._memory.tables.items()}
            arguments = arguments_of(plan.spec, fabric, case, buffers, tables, plan.patience_s)
            found.append(arguments)
        return found

    def lose_patience(self) -> None:
        """Let later launches give up waiting in the simulator, too, where kernels otherwise wait for ever."""
        if self.fabric.traits.simulated:
            parameters = self.plan.spec.parameters
            self._arguments = [tuple(map(_impatient, parameters, arguments)) for arguments in self._arguments]

    def prepare(self, round_number: int, slots: Sequence[int]) -> None:
        """Fill the slots' inputs, and make all else of their payloads unlike any result."""
        fabric = self.fabric
        device = device_of(fabric)
        for slot in slots:
            data = self._data(round_number, slot)
            for buffer in self._memory.payloads[slot]:
                buffer.fill_guards(fabric, device, 1 + round_number)
            fill(fabric, self._memory.payloads[slot], self.halves[slot][0], data)
            if COUNTS in self._memory.tables:  # they follow from the seed
                write_counts(fabric, self._memory.tables[COUNTS], self.plan.data(slot, round_number), slot)
        for buffer in self._memory.workspaces:
            buffer.fill_guards(fabric, device, 1 + round_number)
        fabric.synchronize()

    def _data(self, round_number: int, slot: int) -> torch.Tensor:
        """What a slot's input holds in a round."""
        case, source = self.plan.data(slot, round_number), self.halves[slot][0]
        return make_input(case, self.fabric.rank, source.size_bytes // case.itemsize, device_of(self.fabric))

    def launch(self, slot: int, stream: int | None = None) -> None:
        """Queue one launch on a slot."""
        shape = self._launches[slot]
        if stream is not None:
            how = (
                shape.grid,
                shape.block,
                shape.shared_bytes,
                shape.cluster,
                stream,
                shape.cooperative,
                shape.dependent,
            )
            shape = Launch(*how)
        self.fabric.launch(self.plan.executables[slot], shape, self._arguments[slot])

    def report(self) -> str:
        """What a kernel said of a wait that it gave up; "" if none did. Only after a synchronize."""
        return status_report(self.fabric, self._memory.workspaces)

    def done(self) -> None:
        """Wait for this rank's launches. Raises Deadlock where a kernel gave a wait up."""
        self.fabric.synchronize()
        if text := self.report():
            raise Deadlock(text, rank=self.fabric.rank)

    def compare(self, round_number: int, slots: Sequence[int]) -> None:
        """Compare the slots' outputs with their references, and look at all guards."""
        plan, fabric = self.plan, self.fabric
        wants_output = plan.brings_output and not round_number and 0 in slots
        for slot in slots if plan.check or wants_output else ():
            case = plan.data(slot, round_number)
            _, target = halves(layout_of(case), self._memory.payloads[slot], fabric.rank)
            output = target.inspect(fabric).clone().view(DTYPES[case.dtype])
            if wants_output and not slot:
                self.output = output_of(case, fabric.rank, [output])
            if plan.check:
                self._judge(round_number, slot, case, output)
        if plan.check:
            self._look_at_guards(round_number, slots)

    def _look_at_guards(self, round_number: int, slots: Sequence[int]) -> None:
        """Note what was changed that was not to be: guards, inputs, outputs of ranks that are given none."""
        fabric, number = self.fabric, round_number + 1
        for slot in slots:
            case = self.plan.data(slot, round_number)
            kept = layout_of(case).kept(fabric.rank, collective(case.op).gives(case, fabric.rank))
            data = self._data(round_number, slot)
            for buffer, pieces in zip(self._memory.payloads[slot], kept, strict=True):
                self.faults += changed_guards(fabric, buffer, buffer.name, number)
                self.faults += changed_pieces(fabric, buffer, pieces, data, buffer.name, number)
        for buffer in self._memory.workspaces:
            self.faults += changed_guards(fabric, buffer, buffer.name, number)

    def _judge(self, round_number: int, slot: int, case: Case, output: torch.Tensor) -> None:
        """Compare an output; a wrong one of other data than the plan's case becomes a fault."""
        if case == self.plan.case:
            digest = digest_of(self._data(round_number, slot))
            self.checks.append(check_rank(case, self.plan.spec, self.fabric.rank, [output], (), input_digest=digest))
            return
        found = check_rank(case, self.plan.spec, self.fabric.rank, [output], ())
        if found.wrong:
            assert found.first_mismatch is not None
            at = found.first_mismatch
            self.faults.append(
                f"round {round_number}, slot {slot} ({case.size_bytes} bytes, seed {case.seed}): {found.wrong} of "
                f"{found.elements} elements wrong, the first at {at.index}: {at.actual_bits}, expected "
                f"{at.expected_bits}"
            )


def _impatient(parameter: Parameter, argument: Argument) -> Argument:
    return parameter.argument(SIMULATED_PATIENCE_NS) if parameter.kind == "patience" else argument


def run_stressed(fabric: Fabric, plan: StressPlan) -> RankOutcome:
    """Run a plan's launches on this rank under what its case names, and check what came out.

    All ranks call it with the same plan. Raises ValueError for a plan that is not for this world, HeapFull when its
    memory does not fit, and what the fabric raises.
    """
    if plan.case.world_size != fabric.world_size:
        raise ValueError(f"the case is for {plan.case.world_size} ranks, this world has {fabric.world_size}")
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
            instance.launch(slot)
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
            instance.launch(slot, _handle(instance.streams[slot]))
    return ""


def _graphs(instance: Instance, is_late: bool) -> str:
    """Replay all slots at once on even ranks, one by one on odd ones; a rank pauses before its turn's replay, and with
    is_late each launch has a rank that is late with the replay that it is in."""
    fabric, slots = instance.fabric, range(len(instance.plan.cases))
    whole = [slots] if fabric.rank % 2 == 0 else [(slot,) for slot in slots]
    replays = [_captured(fabric, partial(_launch_all, instance, some)) for some in whole]
    for number in _rounds(instance, slots):
        for place, replay in enumerate(replays):
            turns = [number] if place == len(replays) // 2 else []
            turns += [number * len(slots) + slot for slot in whole[place]] if is_late else []
            _be_late(fabric, *turns)
            replay()
    return ""


def _launch_all(instance: Instance, slots: Sequence[int]) -> None:
    for slot in slots:
        instance.launch(slot)


def _dead_rank(instance: Instance) -> str:
    """Launch all slots on all ranks and compare; then one on all but the last rank, and return what that reports."""
    fabric, slots = instance.fabric, range(len(instance.plan.cases))
    for slot in slots:
        instance.launch(slot)
        instance.done()
        fabric.barrier()
    instance.compare(0, slots)
    fabric.barrier()
    if fabric.rank == fabric.world_size - 1:
        return ""
    instance.lose_patience()
    instance.launch(0)
    fabric.synchronize()
    return instance.report()


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


def _streams(fabric: Fabric) -> tuple[Any, ...]:
    """Two streams of the rank beside the default one: torch's, or numbers of simulated ones."""
    device = device_of(fabric)
    if device.type != "cuda":
        return SIMULATED_STREAMS
    return tuple(torch.cuda.Stream(device) for _ in SIMULATED_STREAMS)  # type: ignore[no-untyped-call]


def _handle(stream: Any) -> int:
    return stream if isinstance(stream, int) else int(stream.cuda_stream)


def _captured(fabric: Fabric, queue: Callable[[], None]) -> Callable[[], None]:
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
