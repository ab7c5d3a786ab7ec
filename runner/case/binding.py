"""A case's memory on one rank, and the kernel's arguments in it: bound from what the kernel's spec declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from cases import ops
from cases.case import Case
from kernels.spec import KernelSpec, Parameter
from memory.fabric import Argument, Fabric
from memory.pool import SymmetricPool
from runner.case.allocation import ADDRESS_BYTES, COUNTS, allocate_case
from runner.case.buffers import Buffer, halves
from runner.case.inputs import CPU
from runner.case.layout import Piece, layout_of

STATUS = "status"
"""The workspace in which kernels leave their report of a wait that they gave up (kernels/dsl/status.py)."""


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
    arguments: tuple[Argument, ...]

    @property
    def in_place(self) -> bool:
        return len(self.payloads) == 1


def bind(
    fabric: Fabric, pool: SymmetricPool, spec: KernelSpec, case: Case, guard_bytes: int, patience_s: float
) -> Binding:
    """Allocate what the case's kernel needs, zero its workspaces, and make its arguments from the spec's parameters."""
    layout = layout_of(case)
    memory = allocate_case(pool, spec, case, guard_bytes)
    fill_workspaces(fabric, spec, case, memory.workspaces)
    source, target = halves(layout, memory.payloads, fabric.rank)
    buffers = {"input": source, "output": target} | {workspace.name: workspace for workspace in memory.workspaces}
    write_tables(fabric, memory.tables, [case], [buffers])
    tables = {name: table.address for name, table in memory.tables.items()}
    arguments = arguments_of(spec, fabric, case, buffers, tables, patience_s)
    kept = layout.kept(fabric.rank, ops.collective(case.op).gives(case, fabric.rank))
    return Binding(source, target, memory.payloads, kept, memory.workspaces, arguments)


def fill_workspaces(fabric: Fabric, spec: KernelSpec, case: Case, workspaces: Sequence[Buffer]) -> None:
    """Write what the kernel's workspaces hold before the first launch, in the order of spec.workspaces."""
    for wanted, workspace in zip(spec.workspaces(case), workspaces, strict=True):
        initial = wanted.initial(workspace.size_bytes)
        if initial is not None:
            workspace.write(fabric, torch.frombuffer(bytearray(initial), dtype=torch.uint8))


def write_tables(
    fabric: Fabric, tables: Mapping[str, Buffer], cases: Sequence[Case], buffers: Sequence[Mapping[str, Buffer]]
) -> None:
    """Write a kernel's tables: a row of world_size int64 for each slot, whose case and buffers these are."""
    for name, table in tables.items():
        if name == COUNTS:
            for slot, case in enumerate(cases):
                write_counts(fabric, table, case, slot)
            continue
        write_peers(fabric, table, [of_slot[name] for of_slot in buffers])


def write_peers(fabric: Fabric, table: Buffer, buffers: Sequence[Buffer]) -> None:
    """Write a table of peers: a row for each buffer, of world_size int64 addresses."""
    rows = torch.tensor([buffer.peer_addresses() for buffer in buffers], dtype=torch.int64)
    table.write(fabric, rows.view(-1))


def write_counts(fabric: Fabric, table: Buffer, case: Case, slot: int) -> None:
    """Write what this rank sends to each in a case to a slot's row of the table of counts."""
    sends = ops.collective(case.op).sends
    assert sends is not None, f"{case.op} has no counts per peer"
    row_bytes = ADDRESS_BYTES * case.world_size
    row = Buffer(table.name, table.tensor, table.offset_bytes + row_bytes * slot, row_bytes)
    row.write(fabric, torch.tensor(sends(case)[fabric.rank], dtype=torch.int64))


def arguments_of(
    spec: KernelSpec,
    fabric: Fabric,
    case: Case,
    buffers: Mapping[str, Buffer],
    tables: Mapping[str, int],
    patience_s: float,
) -> tuple[Argument, ...]:
    """The kernel's arguments on this rank. tables: addresses of its tables (runner.case.allocation.tables_of)."""
    return tuple(
        parameter.argument(_value(parameter, fabric, case, buffers, tables, patience_s))
        for parameter in spec.parameters
    )


def device_of(fabric: Fabric) -> torch.device:
    """Where a rank's memory is: its GPU, or the host for a fabric without one."""
    return getattr(fabric, "device", CPU)


def status_report(fabric: Fabric, workspaces: Sequence[Buffer]) -> str:
    """What a kernel said about a wait that it gave up; "" when it said nothing. Only after a synchronize."""
    for workspace in workspaces:
        if workspace.name == STATUS:
            from kernels.dsl.status import describe

            words = workspace.inspect(fabric).cpu().clone().view(torch.int32).tolist()
            return str(describe(words, fabric.rank)) if any(words) else ""
    return ""


def _value(
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
        case "counts":
            return tables[COUNTS]
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
