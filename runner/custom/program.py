"""The per-rank program of a custom kernel: allocate, fill, launch, bring home. A World runs it on every rank.

Each buffer lies between guard zones; one that a launch writes to is reported. Local buffers lie in symmetric memory,
too, but no other rank gets their addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from memory.fabric import Argument, Executable, Fabric, Launch
from memory.pool import SymmetricPool
from runner.case.allocation import ADDRESS_BYTES, GUARD_BYTES
from runner.case.binding import device_of, write_peers
from runner.case.buffers import Buffer, changed_guards, guarded
from runner.custom.contents import content_of
from runner.custom.functions import FunctionLaunch, Input
from runner.custom.nouns import BufferSpec, Contents, CustomSpec, Fill


@dataclass(frozen=True, slots=True)
class CompiledCustom:
    """A custom kernel that can be launched. function: how a CuTe DSL function launches it on each rank; None of PTX,
    whose launch is the same on all ranks, and whose arguments are its parameters."""

    executable: Executable
    launch: Launch
    function: FunctionLaunch | None = None


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
    launch wrote to."""

    rank: int
    outputs: tuple[Contents, ...]
    guard_faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CustomMemory:
    """A rank's buffers and tables of peers, by buffer name."""

    buffers: dict[str, Buffer]
    tables: dict[str, Buffer]


def allocate_custom(pool: SymmetricPool, spec: CustomSpec, world_size: int, prefix: str = "") -> CustomMemory:
    """Collective: allocate what a custom kernel needs, with nothing written to it yet. prefix: of tensors' names."""
    buffers = {one.name: guarded(pool, prefix + one.name, one.size_bytes, GUARD_BYTES) for one in spec.buffers}
    row_bytes = ADDRESS_BYTES * world_size
    tables = {
        name: Buffer(name, pool.bytes(row_bytes, name=f"{prefix}peers of {name}"), 0, row_bytes) for name in spec.tables
    }
    return CustomMemory(buffers, tables)


def run_custom(fabric: Fabric, plan: CustomPlan) -> CustomOutcome:
    """Run a plan's launches on this rank. Raises HeapFull if its memory does not fit, and what the fabric raises."""
    spec = plan.spec
    outputs: list[Contents] = []
    faults: list[str] = []
    with SymmetricPool(fabric) as pool:
        memory = allocate_custom(pool, spec, fabric.world_size)
        launch, arguments = bound_launch(fabric, plan.spec, plan.compiled, memory)
        for index in range(plan.launches):
            for buffer in spec.buffers:
                _prepare(fabric, memory.buffers[buffer.name], buffer, plan, index)
            fabric.synchronize()
            fabric.barrier()  # no peer may reach this memory before it is ready
            fabric.launch(plan.compiled.executable, launch, arguments)
            fabric.synchronize()
            fabric.barrier()  # peers may still have written here
            outputs.append(
                {
                    one.name: _content(fabric, memory.buffers[one.name], one)
                    for one in spec.buffers
                    if one.name in plan.brings
                }
            )
            for name, placed in memory.buffers.items():
                faults += changed_guards(fabric, placed, name, index)
            fabric.barrier()  # all have looked before anything is filled again
    return CustomOutcome(fabric.rank, tuple(outputs), tuple(faults))


def bound_launch(
    fabric: Fabric, spec: CustomSpec, compiled: CompiledCustom, memory: CustomMemory
) -> tuple[Launch, tuple[Argument, ...]]:
    """Collective: write the tables of peers, declare what is local, and return the launch on this rank with its
    arguments."""
    for name, table in memory.tables.items():
        write_peers(fabric, table, [memory.buffers[name]])
        fabric.declare_local(table.tensor.region)
    for buffer in spec.buffers:
        if not buffer.symmetric:
            fabric.declare_local(memory.buffers[buffer.name].tensor.region)
    function = compiled.function
    if function is not None:
        arguments = function.arguments(fabric.rank, lambda one: _address(one, memory))
        return function.by_rank[fabric.rank].launch, arguments
    return compiled.launch, tuple(
        one.bound(fabric.rank, fabric.world_size, _address(Input(one), memory)) for one in spec.arguments
    )


def _address(one: Input, memory: CustomMemory) -> int:
    """The address that an input is on this rank; 0 of a number."""
    argument = one.argument
    if not argument.buffer:
        return 0
    buffer = memory.buffers[argument.buffer]
    if one.peer is not None:
        return buffer.peer_addresses()[one.peer]
    if argument.kind == "peers":
        return memory.tables[argument.buffer].address
    return buffer.multicast_address() if argument.kind == "multicast" else buffer.address


def _prepare(fabric: Fabric, placed: Buffer, buffer: BufferSpec, plan: CustomPlan, launch: int) -> None:
    """Fill a buffer before a launch; from the second on also its guards, whose fresh memory was the first's."""
    if launch == 1:
        placed.fill_guards(fabric, device_of(fabric))
    if buffer.name in plan.given:
        content = plan.given[buffer.name][fabric.rank]
    elif buffer.fill is Fill.poison and not launch:
        return  # fresh memory: a fabric that knows poison reports a kernel that reads it
    else:
        content = content_of(buffer, fabric.rank, fabric.world_size, plan.seed)
    placed.write(fabric, content.reshape(-1).view(torch.uint8).to(device_of(fabric)))


def _content(fabric: Fabric, placed: Buffer, buffer: BufferSpec) -> torch.Tensor:
    """A host copy of a buffer after all launches so far."""
    from kernels.numeric.dtypes import DTYPES

    copied = placed.inspect(fabric).cpu().clone()
    return copied.view(DTYPES[buffer.dtype]).view(buffer.shape)
