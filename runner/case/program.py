"""The per-rank program: allocate, fill, launch, bring home. A plain function that a World runs on every rank.

It knows no algorithm: memory and arguments are bound from what the kernel's spec declares. Every buffer lies between
two guard zones, and a kernel that writes into one, or into anything else that isn't its output, is reported with its
result: an input out of place, what lies beside the output in place, the output of a rank that is given none. On a GPU
inputs, outputs and their reference stay there: what comes home is what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from kernels import catalogue
from kernels.baselines import find_baseline
from kernels.spec import Case, KernelSpec, Launch, Parameter
from memory.fabric import Deadlock, Executable, Fabric
from memory.pool import SymmetricPool
from runner.case.buffers import Buffer, changed_guards, changed_pieces, fill, guarded, halves
from runner.case.check import RankCheck, check_rank, forget_references
from runner.case.inputs import CPU, digest_of, forget_inputs, make_input
from runner.case.layout import BUFFER_ALIGNMENT_BYTES, Piece, layout_of
from runner.case.libraries import baseline_contender

SMALL_BYTES = 64 << 10
"""Up to here launches are cheap, on GPUs and in the simulator."""

STATUS = "status"
"""The workspace in which kernels leave their report of a wait that they gave up (kernels/dsl/status.py)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks are to run: a case's kernel, how often, and how it is watched.

    launches are those that are checked; they follow each other with the same workspaces, and between them come others
    on other data. guard_bytes lie before and after each buffer. check=False brings nothing home. patience_s is how long
    a kernel on a real GPU waits for another rank before it reports that. between is how many of those others there are
    before each checked launch but the first; None: as many as show what is wrong, 0: none.
    """

    case: Case
    executable: Executable
    launches: int = 2
    guard_bytes: int = 256
    check: bool = True
    patience_s: float = 10.0
    between: int | None = None

    def __post_init__(self) -> None:
        if self.launches < 1:
            raise ValueError(f"launches is {self.launches}: a plan needs 1 or more")
        if not self.patience_s > 0:
            raise ValueError(f"patience_s is {self.patience_s}: a plan needs more than 0 seconds")
        if self.guard_bytes < BUFFER_ALIGNMENT_BYTES or self.guard_bytes % BUFFER_ALIGNMENT_BYTES:
            raise ValueError(f"guard_bytes is {self.guard_bytes}, not a multiple of {BUFFER_ALIGNMENT_BYTES} above 0")
        if self.executable.name != self.case.name:
            raise ValueError(f"the case is {self.case.name}, its executable {self.executable.name}")


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """What one rank brings home; check is None if the plan asked for none."""

    rank: int
    check: RankCheck | None


@dataclass(frozen=True, slots=True)
class Binding:
    """A case's memory on this rank, and the kernel's arguments in it.

    payloads are what input and output lie in: two, or in place one. kept are the pieces of each that a launch must
    leave as they were.
    """

    input: Buffer
    output: Buffer
    payloads: tuple[Buffer, ...]
    kept: tuple[tuple[Piece, ...], ...]
    workspaces: tuple[Buffer, ...]
    arguments: tuple[int, ...]

    @property
    def in_place(self) -> bool:
        return len(self.payloads) == 1


def run_case(fabric: Fabric, plan: Plan) -> RankOutcome:
    """Run a plan's launches on this rank and check what came out.

    All ranks call it with the same plan. Raises ValueError for a plan that is not for this world, HeapFull when its
    memory does not fit, and what the fabric raises.
    """
    case = plan.case
    if case.world_size != fabric.world_size:
        raise ValueError(f"the case is for {case.world_size} ranks, this world has {fabric.world_size}")
    spec = catalogue.find(case.name)
    outputs: list[torch.Tensor] = []
    faults: list[str] = []
    with SymmetricPool(fabric) as pool:
        binding = bind(fabric, pool, plan, spec)
        data = make_input(case, fabric.rank, binding.input.size_bytes // case.itemsize, device_of(fabric))
        launch = spec.launch(case)
        between = launches_between(case) if plan.between is None else plan.between
        for index in range(plan.launches):
            if index:
                _launch_on_other_data(fabric, binding, plan, launch, data, between)
            _prepare(fabric, binding, data, index)
            fabric.synchronize()
            if not index:
                fabric.barrier()  # no peer may reach this memory before it's ready; later the kernels see to that
            fabric.launch(plan.executable, launch.grid, launch.block, binding.arguments)
            fabric.synchronize()
            if report := status_report(fabric, binding.workspaces):
                raise Deadlock(report)
            if plan.check:
                outputs.append(binding.output.inspect(fabric).clone().view(data.dtype))
                faults += _faults(fabric, binding, data, index)
            if between:  # a rank that was let go too early overwrites what others still read
                fill(fabric, binding.payloads, binding.input, _complement(data))
            fabric.barrier()
    if not plan.check:
        return RankOutcome(fabric.rank, None)
    given = digest_of(data)
    return RankOutcome(fabric.rank, check_rank(case, spec, fabric.rank, outputs, faults, input_digest=given))


def launches_between(case: Case) -> int:
    """Launches on other data before each checked one but the first: as many as any kernel has banks, where they are
    cheap."""
    return 3 if case.size_bytes <= SMALL_BYTES else 1


def _complement(data: torch.Tensor) -> torch.Tensor:
    """Other data: no byte is the same."""
    return (~data.view(torch.uint8)).view(data.dtype)


def _launch_on_other_data(
    fabric: Fabric, binding: Binding, plan: Plan, launch: Launch, data: torch.Tensor, count: int
) -> None:
    """Launches that nobody looks at, on the complement of the data, back to back: the ranks' hosts don't meet.

    So what they leave in buffers, banks and flags is not what the next launch has to give, and a kernel that reads it
    too early, or that lets a rank go on too early, is seen.
    """
    other = _complement(data)
    for _ in range(count):
        fill(fabric, binding.payloads, binding.input, other)
        fabric.synchronize()
        fabric.launch(plan.executable, launch.grid, launch.block, binding.arguments)
        fabric.synchronize()


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """A baseline's case, run like a kernel's but through its library: no guards, memory that the library wants."""

    case: Case
    launches: int = 2
    check: bool = True


def run_baseline(fabric: Fabric, plan: BaselinePlan) -> RankOutcome:
    """Run a baseline's launches on this rank and check what came out. All ranks call it with the same plan.

    Raises what the fabric and the library raise.
    """
    case = plan.case
    baseline = find_baseline(case.algorithm)
    if baseline is None:
        raise ValueError(f"{case.algorithm} is no baseline")
    count = catalogue.collective(case.op).counts(case.numel, case.world_size)[0]
    data = make_input(case, fabric.rank, count, device_of(fabric))
    outputs: list[torch.Tensor] = []
    with SymmetricPool(fabric) as pool, baseline_contender(case.algorithm, fabric, pool, case, 1) as contender:
        for _ in range(plan.launches):
            contender.write(0, data)
            fabric.synchronize()
            fabric.barrier()
            contender.launch(0)
            fabric.synchronize()
            if plan.check:
                outputs.append(contender.output(0).clone())
            fabric.barrier()
    if not plan.check:
        return RankOutcome(fabric.rank, None)
    given = digest_of(data)
    return RankOutcome(fabric.rank, check_rank(case, baseline, fabric.rank, outputs, (), input_digest=given))


def bind(fabric: Fabric, pool: SymmetricPool, plan: Plan, spec: KernelSpec) -> Binding:
    """Allocate what the case's kernel needs, zero its workspaces, and make its arguments from the spec's parameters."""
    case = plan.case
    layout = layout_of(case)
    payloads = tuple(
        guarded(pool, name, size_bytes, plan.guard_bytes, layout.offset_bytes)
        for name, size_bytes in zip(("input", "output"), layout.payloads_bytes, strict=False)
    )
    source, target = halves(layout, payloads, fabric.rank)
    workspaces = bind_workspaces(fabric, pool, case, spec, plan.guard_bytes)
    buffers = {"input": source, "output": target} | {workspace.name: workspace for workspace in workspaces}
    tables: dict[str, int] = {}
    for name in peers_of(spec):
        table = pool.tensor(case.world_size, torch.int64, name=f"peers of {name}")
        table.write(torch.tensor(buffers[name].peer_addresses(), dtype=torch.int64))
        tables[name] = table.address
    arguments = arguments_of(spec, fabric, case, buffers, tables, plan.patience_s)
    kept = layout.kept(fabric.rank, catalogue.collective(case.op).gives(case, fabric.rank))
    return Binding(source, target, payloads, kept, workspaces, arguments)


def bind_workspaces(
    fabric: Fabric, pool: SymmetricPool, case: Case, spec: KernelSpec, guard_bytes: int, prefix: str = ""
) -> tuple[Buffer, ...]:
    """Allocate and fill what the kernel keeps between launches. prefix makes the tensors' names tell kernels apart."""
    workspaces = []
    for wanted in spec.workspaces(case):
        size_bytes = wanted.numel * getattr(torch, wanted.dtype).itemsize
        workspace = replace(guarded(pool, prefix + wanted.name, size_bytes, guard_bytes), name=wanted.name)
        initial = wanted.initial(size_bytes)
        if initial is not None:
            workspace.write(fabric, torch.frombuffer(bytearray(initial), dtype=torch.uint8))
        workspaces.append(workspace)
    return tuple(workspaces)


def peers_of(spec: KernelSpec) -> tuple[str, ...]:
    """The buffers of which a kernel wants a table of all ranks' addresses, each once."""
    return tuple(dict.fromkeys(parameter.of for parameter in spec.parameters if parameter.kind == "peers"))


def arguments_of(
    spec: KernelSpec,
    fabric: Fabric,
    case: Case,
    buffers: Mapping[str, Buffer],
    tables: Mapping[str, int],
    patience_s: float,
) -> tuple[int, ...]:
    """The kernel's arguments on this rank. tables: addresses of the tables of peers, by buffer."""
    return tuple(_argument(parameter, fabric, case, buffers, tables, patience_s) for parameter in spec.parameters)


def device_of(fabric: Fabric) -> torch.device:
    """Where a rank's memory is: its GPU, or the host for a fabric without one."""
    return getattr(fabric, "device", CPU)


def status_report(fabric: Fabric, workspaces: Sequence[Buffer]) -> str:
    """What a kernel said about a wait that it gave up; "" when it said nothing. Only after a synchronize."""
    for workspace in workspaces:
        if workspace.name == STATUS:
            from kernels.dsl.status import describe

            words = workspace.inspect(fabric).cpu().clone().view(torch.int32).tolist()
            return str(describe(words)) if any(words) else ""
    return ""


def forget(fabric: Fabric, _: object) -> None:
    """A per-rank program: give up all inputs and references that are kept between cases, and torch's spare memory."""
    forget_references()
    forget_inputs()
    if device_of(fabric).type == "cuda":
        torch.cuda.empty_cache()


def _argument(
    parameter: Parameter,
    fabric: Fabric,
    case: Case,
    buffers: Mapping[str, Buffer],
    tables: Mapping[str, int],
    patience_s: float,
) -> int:
    """The value of one kernel parameter on this rank."""
    match parameter.kind:
        case "address":
            return buffers[parameter.of].address
        case "peers":
            return tables[parameter.of]
        case "multicast":
            return buffers[parameter.of].multicast_address()
        case "numel":
            return case.numel
        case "rank":
            return fabric.rank
        case "root":
            return case.root
        case "patience":
            return 0 if fabric.traits.simulated else int(patience_s * 1e9)


def _prepare(fabric: Fabric, binding: Binding, data: torch.Tensor, launch: int) -> None:
    """Fill the input, and make all else unlike any result.

    The first launch has the fresh memory's poison around all buffers, in the output and, in place, beside the input: a
    fabric that knows poison reports a kernel that reads it. Later launches have 0xFF written there, and the pattern
    around the buffers.
    """
    if launch == 0:
        binding.input.write(fabric, data)
        return
    fill(fabric, binding.payloads, binding.input, data)
    if launch == 1:
        for buffer in (*binding.payloads, *binding.workspaces):
            buffer.fill_guards(fabric, data.device)


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
