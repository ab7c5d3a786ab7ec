"""The per-rank program of a custom kernel: allocate, fill, launch, bring home. A World runs it on every rank.

Each buffer lies between guard zones; one that a launch writes to is reported. Local buffers lie in symmetric memory,
too, but no other rank gets their addresses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch

from kernels.own.arguments import BroughtArgument, pointers_of, referred, tables_of
from memory.fabric import Argument, Executable, Fabric, Launch
from memory.pool import Pool, SymmetricPool
from memory.tensor import flat_bytes
from runner.case.allocation import ADDRESS_BYTES, GUARD_BYTES
from runner.case.binding import device_of, write_peers
from runner.case.brought_arguments import BroughtMemory, bound, value_of
from runner.case.buffers import POISON, Buffer, changed_guards, guarded
from runner.case.stress import on_streams, own_stream
from runner.custom.contents import content_of
from runner.custom.nouns import BufferSpec, Contents, CustomSpec, Fill

POISONS = (POISON, 0x5A)
"""What poisoned buffers hold before launches, in turns: NaN for a kernel that reads it, then a number."""

LEAST_LAUNCHES = len(POISONS)
"""Checked launches where a fabric can't tell what was written."""

Call = tuple[Executable, Launch, tuple[Argument, ...]]
"""A launch of a kernel on a rank, with its arguments there."""


@dataclass(frozen=True, slots=True)
class CompiledCustom:
    """A custom kernel that can be launched. launch: of PTX on all ranks, of a CuTe DSL function on rank 0. then: those
    that follow."""

    executable: Executable
    launch: Launch
    then: tuple[CompiledCustom, ...] = ()

    @property
    def whole(self) -> Executable:
        """The executable; of several kernels one that names all and has the PTX of all, for records."""
        if not self.then:
            return self.executable
        made = [self.executable, *(one.executable for one in self.then)]
        ptx = "\n".join(one.ptx for one in made)
        digest = f"sha256:{hashlib.sha256(ptx.encode()).hexdigest()}"
        return replace(self.executable, entry=", ".join(one.entry for one in made), ptx=ptx, digest=digest, cubin=b"")


@dataclass(frozen=True, slots=True)
class CustomPlan:
    """What all ranks are to run. It is sent to other processes, so spec holds no function.

    given: by buffer, what it holds on each rank before a launch, where no fill says that. brings: the buffers that come
    home after each launch. launches follow each other, each on freshly filled buffers.
    """

    spec: CustomSpec
    compiled: CompiledCustom
    seed: int = 0
    launches: int = 2
    brings: tuple[str, ...] = ()
    given: Mapping[str, tuple[torch.Tensor, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CustomOutcome:
    """What one rank brings home: its buffers after each launch, as host tensors, and a line for each guard that a
    launch wrote to. unwritten: of a buffer that had poison, which elements (flat bool) the launches did not write, if
    there are any."""

    rank: int
    outputs: tuple[Contents, ...]
    guard_faults: tuple[str, ...]
    unwritten: Contents = field(default_factory=dict)


def allocate_custom(pool: Pool, spec: CustomSpec, world_size: int, prefix: str = "") -> BroughtMemory:
    """Collective: allocate what a custom kernel needs, with nothing written to it yet. prefix: of tensors' names."""
    return allocate_buffers(pool, spec.buffers, spec.every_argument, world_size, GUARD_BYTES, prefix)


def allocate_buffers(
    pool: Pool,
    buffers: Sequence[BufferSpec],
    arguments: Sequence[BroughtArgument],
    world_size: int,
    guard_bytes: int,
    prefix: str = "",
) -> BroughtMemory:
    """Collective: allocate buffers, guard_bytes on either side, and the tables and structs that arguments lead to."""
    placed = {one.name: guarded(pool, prefix + one.name, one.size_bytes, guard_bytes) for one in buffers}
    row_bytes = ADDRESS_BYTES * world_size
    tables = {
        name: Buffer(name, pool.bytes(row_bytes, name=f"{prefix}peers of {name}"), 0, row_bytes)
        for name in tables_of(arguments)
    }
    structs = tuple(
        pool.bytes(one.target.size_bytes, name=f"{prefix}struct {number} of the arguments")
        for number, one in enumerate(pointers_of(arguments), start=1)
    )
    return BroughtMemory(placed, tables, structs)


def run_custom(fabric: Fabric, plan: CustomPlan) -> CustomOutcome:
    """Run a plan's launches on this rank. Raises HeapFull if its memory does not fit, and what the fabric raises.

    A fabric that can't tell what was written needs two launches with different poison for that, if anything is
    compared.
    """
    spec = plan.spec
    outputs: list[Contents] = []
    faults: list[str] = []
    unwritten: dict[str, torch.Tensor] = {}
    brought = [one for one in spec.buffers if one.name in plan.brings]
    poisoned = [one for one in brought if one.fill is Fill.poison and one.name not in plan.given]
    with SymmetricPool(fabric) as pool:
        memory = allocate_custom(pool, spec, fabric.world_size)
        calls = custom_launches(fabric, plan.spec, plan.compiled, memory)
        tells = all(memory.buffers[one.name].never_written(fabric) is not None for one in poisoned)
        for index in range(plan.launches if tells else max(plan.launches, LEAST_LAUNCHES)):
            for buffer in spec.buffers:
                _prepare(fabric, memory.buffers[buffer.name], buffer, plan, index)
            fabric.synchronize()
            fabric.barrier()  # no peer may reach this memory before it is ready
            launch_all(fabric, calls)
            fabric.synchronize()
            fabric.barrier()  # peers may still have written here
            outputs.append({one.name: _content(fabric, memory.buffers[one.name], one) for one in brought})
            for buffer in spec.buffers:
                itemsize = buffer.size_bytes // buffer.numel
                faults += changed_guards(fabric, memory.buffers[buffer.name], buffer.name, index, itemsize)
            for one in poisoned if tells and not index else ():
                found = memory.buffers[one.name].never_written(fabric)
                assert found is not None
                unwritten[one.name] = found.view(one.numel, -1).any(dim=1)
            fabric.barrier()  # all have looked before anything is filled again
    if not tells:
        unwritten = {one.name: _kept_poison([by_name[one.name] for by_name in outputs]) for one in poisoned}
    unwritten = {name: elements for name, elements in unwritten.items() if bool(elements.any())}
    return CustomOutcome(fabric.rank, tuple(outputs), tuple(faults), unwritten)


def custom_launches(fabric: Fabric, spec: CustomSpec, compiled: CompiledCustom, memory: BroughtMemory) -> list[Call]:
    """Collective: write the tables of peers, declare what is local, and return the launches in a row on this rank."""
    publish(fabric, spec.buffers, memory)
    made = zip((spec, *spec.then), (compiled, *compiled.then), strict=True)
    kernels = [(one.executable, one.launch, given.arguments) for given, one in made]
    return [call for calls in bound_launches(fabric, kernels, memory, spec.launches) for call in calls]


def bound_launches(
    fabric: Fabric,
    kernels: Sequence[tuple[Executable, Launch, Sequence[BroughtArgument]]],
    memory: BroughtMemory,
    launches: int,
) -> list[tuple[Call, ...]]:
    """Return what to launch on this rank: for each of the launches in a row all kernels, bound to memory."""
    by_kernel, structs = [], iter(memory.structs)
    numbers = dict.fromkeys(launch.stream for _, launch, _ in kernels)
    streams = {number: own_stream(fabric, number) for number in numbers}
    for executable, launch, arguments in kernels:
        own = replace(memory, structs=tuple(islice(structs, len(pointers_of(arguments)))))
        here = replace(launch, stream=streams[launch.stream])
        function = executable.host
        if function is None:
            values = [bound(fabric, arguments, own, number) for number in range(launches)]
        else:
            here = replace(function.by_rank[fabric.rank].launch, stream=here.stream)
            values = [function.arguments(fabric.rank, lambda one: value_of(one, memory))] * launches
        by_kernel.append([(executable, here, one) for one in values])
    return list(zip(*by_kernel, strict=True))


def launch_all(fabric: Fabric, calls: Sequence[Call]) -> None:
    """Launch in order, each on its stream; what follows on the default one comes after all."""

    def queue() -> None:
        for call in calls:
            fabric.launch(*call)

    on_streams(fabric, (launch.stream for _, launch, _ in calls), queue)


def publish(fabric: Fabric, buffers: Sequence[BufferSpec], memory: BroughtMemory) -> None:
    """Write the tables of peers, and declare what is local."""
    for reference, table in memory.tables.items():
        name, offset_bytes = referred(reference)
        write_peers(fabric, table, [memory.buffers[name]], offset_bytes)
        fabric.declare_local(table.tensor.region)
    for buffer in buffers:
        if not buffer.symmetric:
            fabric.declare_local(memory.buffers[buffer.name].tensor.region)


def _prepare(fabric: Fabric, placed: Buffer, buffer: BufferSpec, plan: CustomPlan, launch: int) -> None:
    """Fill a buffer and its guards before a launch. Poison is another byte in every second launch, so that what was
    never written differs, and is not what the reference says in both."""
    placed.fill_guards(fabric, device_of(fabric), launch)
    if buffer.name in plan.given:
        content = plan.given[buffer.name][fabric.rank]
    elif buffer.fill is Fill.poison:
        if launch:  # before, fresh memory: a fabric that knows poison reports a kernel that reads it
            placed.fill(fabric, POISONS[launch % 2], device_of(fabric))
        return
    else:
        content = content_of(buffer, fabric.rank, fabric.world_size, plan.seed)
    placed.write(fabric, flat_bytes(content).to(device_of(fabric)))


def _kept_poison(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Which elements of a buffer hold after each launch the poison that they held before it."""
    rows = [flat_bytes(one).view(one.numel(), -1) for one in outputs]
    kept = [(row == POISONS[launch % 2]).all(dim=1) for launch, row in enumerate(rows)]
    return torch.stack(kept).all(dim=0)


def _content(fabric: Fabric, placed: Buffer, buffer: BufferSpec) -> torch.Tensor:
    """A host copy of a buffer after all launches so far."""
    from cases.dtypes import DTYPES

    copied = placed.inspect(fabric).cpu().clone()
    return copied.view(DTYPES[buffer.dtype]).view(buffer.shape)
