"""The per-rank program: allocate, fill, launch, bring home. A plain function that a World runs on every rank.

It knows no algorithm: memory and arguments are bound from what the kernel's spec declares. Every buffer lies between
two guard zones, and a kernel that writes into one, or into an input that isn't its output, is reported with its result.
On a GPU inputs, outputs and their reference stay there: what comes home is what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from kernels import catalogue
from kernels.spec import DTYPES, Case, KernelSpec, Parameter
from memory.fabric import Deadlock, Executable, Fabric
from memory.pool import SymmetricPool
from memory.tensor import SymmetricTensor
from runner.baselines import baseline_contender, find_baseline
from runner.check import RankCheck, check_rank, forget_references
from runner.inputs import CPU, forget_inputs, make_input

BUFFER_ALIGNMENT_BYTES = 16
"""What vector accesses of kernels may count on for the beginning of a buffer."""

POISON = 0xFF
"""What fresh memory reads as; outputs are filled with it again before later launches."""

STATUS = "status"
"""The workspace in which kernels leave their report of a wait that they gave up (kernels/status.py)."""

GUARD_PATTERN = 0xA5
"""What guards hold in later launches: a kernel that writes poison there is seen, too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks are to run: a case's kernel, how often, and how it is watched.

    launches follow each other with the same workspaces. guard_bytes lie before and after each buffer. check=False
    brings nothing home. patience_s is how long a kernel on a real GPU waits for another rank before it reports that.
    """

    case: Case
    executable: Executable
    launches: int = 2
    guard_bytes: int = 256
    check: bool = True
    patience_s: float = 10.0

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
class Buffer:
    """size_bytes of payload at offset_bytes of a symmetric tensor of bytes; what lies around it are guards."""

    name: str
    tensor: SymmetricTensor
    offset_bytes: int
    size_bytes: int

    @property
    def address(self) -> int:
        return self.tensor.address + self.offset_bytes

    def peer_addresses(self) -> tuple[int, ...]:
        """Where this rank sees the payload of each rank, by rank."""
        return tuple(address + self.offset_bytes for address in self.tensor.peer_addresses())

    def multicast_address(self) -> int:
        return self.tensor.multicast().address + self.offset_bytes

    def write(self, fabric: Fabric, data: torch.Tensor) -> None:
        """Copy a tensor of size_bytes into the payload."""
        fabric.write(self.tensor.region, self.offset_bytes, data.view(torch.uint8))

    def inspect(self, fabric: Fabric) -> torch.Tensor:
        """The payload (flat uint8) after all launches so far, to be looked at: see Fabric.inspect."""
        return fabric.inspect(self.tensor.region)[self.offset_bytes :][: self.size_bytes]


@dataclass(frozen=True, slots=True)
class Binding:
    """A case's memory on this rank, and the kernel's arguments in it. output is input in place."""

    input: Buffer
    output: Buffer
    workspaces: tuple[Buffer, ...]
    arguments: tuple[int, ...]

    @property
    def in_place(self) -> bool:
        return self.output is self.input

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Each of them once."""
        return (self.input, *(() if self.in_place else (self.output,)), *self.workspaces)


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
        for index in range(plan.launches):
            _prepare(fabric, binding, data, index)
            # Both, and in this order: no peer may reach this memory before it's ready.
            fabric.synchronize()
            fabric.barrier()
            fabric.launch(plan.executable, launch.grid, launch.block, binding.arguments)
            fabric.synchronize()
            if report := status_report(fabric, binding.workspaces):
                raise Deadlock(report)
            if plan.check:
                output, found = _bring_home(fabric, binding, data, index)
                outputs.append(output.view(data.dtype))
                faults += found
            fabric.barrier()
    if not plan.check:
        return RankOutcome(fabric.rank, None)
    return RankOutcome(fabric.rank, check_rank(case, spec, fabric.rank, outputs, faults))


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
    return RankOutcome(fabric.rank, check_rank(case, baseline, fabric.rank, outputs, ()))


def bind(fabric: Fabric, pool: SymmetricPool, plan: Plan, spec: KernelSpec) -> Binding:
    """Allocate what the case's kernel needs, zero its workspaces, and make its arguments from the spec's parameters."""
    case = plan.case
    input_count, output_count = catalogue.collective(case.op).counts(case.numel, case.world_size)
    itemsize = DTYPES[case.dtype].itemsize
    source = _buffer(pool, "input", input_count * itemsize, plan.guard_bytes)
    target = source
    if case.placement != "in_place":
        target = _buffer(pool, "output", output_count * itemsize, plan.guard_bytes)
    workspaces = bind_workspaces(fabric, pool, case, spec, plan.guard_bytes)
    buffers = {"input": source, "output": target} | {workspace.name: workspace for workspace in workspaces}
    tables: dict[str, int] = {}
    for name in peers_of(spec):
        table = pool.tensor(case.world_size, torch.int64, name=f"peers of {name}")
        table.write(torch.tensor(buffers[name].peer_addresses(), dtype=torch.int64))
        tables[name] = table.address
    return Binding(source, target, workspaces, arguments_of(spec, fabric, case, buffers, tables, plan.patience_s))


def bind_workspaces(
    fabric: Fabric, pool: SymmetricPool, case: Case, spec: KernelSpec, guard_bytes: int, prefix: str = ""
) -> tuple[Buffer, ...]:
    """Allocate and fill what the kernel keeps between launches. prefix makes the tensors' names tell kernels apart."""
    workspaces = []
    for wanted in spec.workspaces(case):
        size_bytes = wanted.numel * getattr(torch, wanted.dtype).itemsize
        tensor = _buffer(pool, prefix + wanted.name, size_bytes, guard_bytes).tensor
        workspace = Buffer(wanted.name, tensor, guard_bytes, size_bytes)
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
            from kernels.status import describe

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
        case "patience":
            return 0 if fabric.traits.simulated else int(patience_s * 1e9)


def _buffer(pool: SymmetricPool, name: str, size_bytes: int, guard_bytes: int) -> Buffer:
    # The payload is as aligned as kernels count on: the allocation is to 256 bytes, and Plan holds guard_bytes to it.
    tensor = pool.tensor(size_bytes + 2 * guard_bytes, torch.uint8, name=name)
    return Buffer(name, tensor, guard_bytes, size_bytes)


def _prepare(fabric: Fabric, binding: Binding, data: torch.Tensor, launch: int) -> None:
    """Fill the input, and make the output unlike any result.

    The first launch has the fresh memory's poison around all buffers and in the output: a fabric that knows poison
    reports a kernel that reads it. Later launches have 0xFF written in the output, and the pattern around the buffers.
    """
    device = data.device
    binding.input.write(fabric, data)
    if launch == 0:
        return
    if not binding.in_place:
        poison = torch.full((binding.output.size_bytes,), POISON, dtype=torch.uint8, device=device)
        binding.output.write(fabric, poison)
    if launch == 1:
        for buffer in binding.buffers:
            guard = torch.full((buffer.offset_bytes,), GUARD_PATTERN, dtype=torch.uint8, device=device)
            fabric.write(buffer.tensor.region, 0, guard)
            fabric.write(buffer.tensor.region, buffer.offset_bytes + buffer.size_bytes, guard)


def _bring_home(fabric: Fabric, binding: Binding, data: torch.Tensor, launch: int) -> tuple[torch.Tensor, list[str]]:
    """The output's bytes after a launch, and what the launch changed that was not its to change."""
    faults: list[str] = []
    output = torch.empty(0, dtype=torch.uint8)
    for buffer in binding.buffers:
        content = fabric.inspect(buffer.tensor.region)
        start, end = buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes
        before, payload, after = content[:start], content[start:end], content[end:]
        where = f"rank {fabric.rank}: {buffer.name}"
        guard = torch.full_like(before, GUARD_PATTERN if launch else POISON)
        faults += _changes(f"{where}'s guard before the buffer", before, guard, -start, launch)
        faults += _changes(f"{where}'s guard after the buffer", after, guard, buffer.size_bytes, launch)
        if buffer is binding.input and not binding.in_place:
            faults += _changes(where, payload, data.view(torch.uint8), 0, launch)
        if buffer is binding.output:
            output = payload.clone()
    return output, faults


def _changes(what: str, found: torch.Tensor, expected: torch.Tensor, first_byte: int, launch: int) -> Iterator[str]:
    """One line about the bytes that differ, if any do. first_byte: the offset of found in its buffer."""
    if torch.equal(found, expected):
        return
    wrong = (found != expected).nonzero().flatten()
    if len(wrong):
        index = int(wrong[0])
        yield (
            f"{what} changed at byte {first_byte + index} in launch {launch}: "
            f"{int(found[index]):#04x}, was {int(expected[index]):#04x} ({len(wrong)} bytes changed)"
        )
