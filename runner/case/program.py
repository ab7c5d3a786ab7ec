"""The per-rank program: allocate, fill, launch, bring home. A plain function that a World runs on every rank.

It knows no algorithm: memory and arguments are bound from what the kernel's spec declares (runner/case/binding.py).
Every buffer lies between two guard zones, and a kernel that writes into one, or into anything else that isn't its
output, is reported with its result: an input out of place, what lies beside the output in place, the output of a rank
that is given none. On a GPU inputs, outputs and their reference stay there: what comes home is what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cases.case import Case
from cases.ops import collective
from kernels.spec import KernelSpec
from memory.fabric import Deadlock, Executable, Fabric, Launch
from memory.pool import SymmetricPool
from memory.tensor import flat_bytes
from runner.case.allocation import GUARD_BYTES
from runner.case.binding import Binding, bind, device_of, status_report
from runner.case.buffers import changed_guards, changed_pieces, fill
from runner.case.check import RankCheck, check_rank, forget_references
from runner.case.contestant import check_names
from runner.case.inputs import digest_of, forget_inputs, make_input
from runner.case.layout import BUFFER_ALIGNMENT_BYTES

SMALL_BYTES = 64 << 10
"""Up to here launches are cheap, on GPUs and in the simulator."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks are to run: a case, its kernel's spec and what was compiled of it, how often, how it is watched.

    launches are those that are checked; they follow each other with the same workspaces, and between them come others
    on other data. guard_bytes lie before and after each buffer. check=False brings nothing home. patience_s is how long
    a kernel on a real GPU waits for another rank before it reports that. between is how many of those others there are
    before each checked launch but the first; None: as many as show what is wrong, 0: none. inputs, one 1-D tensor of
    the case's dtype a rank, stand in for what make_input gives. brings_output: the ranks bring their last output home.
    """

    case: Case
    spec: KernelSpec
    executable: Executable
    launches: int = 2
    guard_bytes: int = GUARD_BYTES
    check: bool = True
    patience_s: float = 10.0
    between: int | None = None
    inputs: tuple[torch.Tensor, ...] | None = None
    brings_output: bool = False

    def __post_init__(self) -> None:
        if self.launches < 1:
            raise ValueError(f"launches is {self.launches}: a plan needs 1 or more")
        if not self.patience_s > 0:
            raise ValueError(f"patience_s is {self.patience_s}: a plan needs more than 0 seconds")
        if self.guard_bytes < BUFFER_ALIGNMENT_BYTES or self.guard_bytes % BUFFER_ALIGNMENT_BYTES:
            raise ValueError(f"guard_bytes is {self.guard_bytes}, not a multiple of {BUFFER_ALIGNMENT_BYTES} above 0")
        check_names(self.case, self.spec, self.executable)


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What one rank brings home; check is None if the plan asked for none.

    output is the last launch's, a 1-D host tensor; None if the plan did not ask for it, and for a rank that is given
    none. report is what the rank's kernel says of a wait that it gave up, where that was wanted.
    """

    rank: int
    check: RankCheck | None
    output: torch.Tensor | None = None
    report: str = ""


def run_case(fabric: Fabric, plan: Plan) -> RankOutcome:
    """Run a plan's launches on this rank and check what came out.

    All ranks call it with the same plan. Raises ValueError for a plan that is not for this world, HeapFull when its
    memory does not fit, and what the fabric raises.
    """
    case, spec = plan.case, plan.spec
    if case.world_size != fabric.world_size:
        raise ValueError(f"the case is for {case.world_size} ranks, this world has {fabric.world_size}")
    outputs: list[torch.Tensor] = []
    faults: list[str] = []
    with SymmetricPool(fabric) as pool:
        binding = bind(fabric, pool, spec, case, plan.guard_bytes, plan.patience_s)
        data = input_of(fabric, case, binding.input.size_bytes // case.itemsize, plan.inputs)
        launch = spec.launch(case)
        between = launches_between(case) if plan.between is None else plan.between
        for index in range(plan.launches):
            if index:
                _launch_on_other_data(fabric, binding, plan, launch, data, between)
            _prepare(fabric, binding, data, index)
            fabric.synchronize()
            if not index:
                fabric.barrier()  # no peer may reach this memory before it's ready; later the kernels see to that
            fabric.launch(plan.executable, launch, binding.arguments)
            fabric.synchronize()
            if report := status_report(fabric, binding.workspaces):
                raise Deadlock(report, rank=fabric.rank)
            if plan.check or (plan.brings_output and index == plan.launches - 1):
                outputs.append(binding.output.inspect(fabric).clone().view(data.dtype))
            if plan.check:
                faults += _faults(fabric, binding, data, index)
            if between:  # a rank that was let go too early overwrites what others still read
                fill(fabric, binding.payloads, binding.input, _complement(data))
            fabric.barrier()
    output = output_of(case, fabric.rank, outputs) if plan.brings_output else None
    if not plan.check:
        return RankOutcome(fabric.rank, None, output)
    given = digest_of(data)
    check = check_rank(case, spec, fabric.rank, outputs, faults, input_digest=given, inputs=plan.inputs)
    return RankOutcome(fabric.rank, check, output)


def input_of(fabric: Fabric, case: Case, numel: int, inputs: Sequence[torch.Tensor] | None) -> torch.Tensor:
    """Return this rank's input where its memory is: of the given ones (one 1-D tensor a rank), else make_input's."""
    device = device_of(fabric)
    return make_input(case, fabric.rank, numel, device) if inputs is None else inputs[fabric.rank].to(device)


def output_of(case: Case, rank: int, outputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return a rank's last output as a host tensor; None for a rank that the op gives no output."""
    return outputs[-1].cpu() if collective(case.op).gives(case, rank) else None


def launches_between(case: Case) -> int:
    """Launches on other data before each checked one but the first: as many as any kernel has banks, where they are
    cheap."""
    return 3 if case.size_bytes <= SMALL_BYTES else 1


def _complement(data: torch.Tensor) -> torch.Tensor:
    """Other data: no byte is the same."""
    return (~flat_bytes(data)).view(data.dtype)


def _launch_on_other_data(
    fabric: Fabric, binding: Binding, plan: Plan, launch: Launch, data: torch.Tensor, count: int
) -> None:
    """Unchecked launches on complemented data, run back to back between checked ones, without barriers of the hosts.

    They leave buffers, banks and flags different from what the next checked launch has to give. So the check finds a
    kernel that reads too early, or that lets a rank continue too early.
    """
    other = _complement(data)
    for _ in range(count):
        fill(fabric, binding.payloads, binding.input, other)
        fabric.synchronize()
        fabric.launch(plan.executable, launch, binding.arguments)
        fabric.synchronize()


def forget(fabric: Fabric, _: object) -> None:
    """A per-rank program: give up all inputs and references that are kept between cases, and torch's spare memory."""
    forget_references()
    forget_inputs()
    if device_of(fabric).type == "cuda":
        torch.cuda.empty_cache()


def _prepare(fabric: Fabric, binding: Binding, data: torch.Tensor, launch: int) -> None:
    """Fill the input, and make all else unlike any result.

    The first launch has the fresh memory's poison in the output and, in place, beside the input, and around all buffers
    where the fabric knows poison: it reports a kernel that reads it. Later launches have 0xFF written there, and a
    pattern around the buffers.
    """
    for buffer in (*binding.payloads, *binding.workspaces):
        buffer.fill_guards(fabric, data.device, launch)
    if launch == 0:
        binding.input.write(fabric, data)
    else:
        fill(fabric, binding.payloads, binding.input, data)


def _faults(fabric: Fabric, binding: Binding, data: torch.Tensor, launch: int) -> list[str]:
    """What a launch changed that was not its to change, a line each: guards, and what is kept of the payloads."""
    faults: list[str] = []
    for number, buffer in enumerate((*binding.payloads, *binding.workspaces)):
        where = buffer.name
        faults += changed_guards(fabric, buffer, where, launch)
        if number >= len(binding.payloads):
            continue
        if binding.in_place:
            where += " beside the output"
        elif number:
            where += " of a rank that is given none"
        faults += changed_pieces(fabric, buffer, binding.kept[number], data, where, launch)
    return faults
